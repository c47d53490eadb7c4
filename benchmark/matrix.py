"""A matrix of runs: what is missing is trained, cell by cell, and nothing that is there is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from redline.benchmark.errors import BadInput, describe
from redline.benchmark.files import Busy, Hold
from redline.benchmark.launchers import LocalPool, Outcome
from redline.benchmark.runs import is_done, read_run
from redline.benchmark.suite import Cell, Suite
from redline.benchmark.writing import record_failure

RECORD = "matrix.json"


@dataclass(frozen=True)
class Plan:
    """What a call has to do.

    Attributes:
        done: Cells whose very run is complete.
        todo: Cells to train: missing, failed, half written, or to be overwritten.
    """

    done: Sequence[Cell]
    todo: Sequence[Cell]


class Display(Protocol):
    """Shows how far a matrix is."""

    def watch(self, steps: Mapping[Cell, int]) -> None:
        """Steps that the running cells have done."""

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """A cell is done or failed."""


def plan(cells: Sequence[Cell], overwrite: bool) -> Plan:
    """Sort cells into what is there and what is to be trained.

    Args:
        cells: The whole matrix.
        overwrite: Replace runs with other settings; a run that is the same is kept nevertheless.

    Raises:
        BadInput: Runs with other settings are there, and `overwrite` is False.
    """
    done: list[Cell] = []
    todo: list[Cell] = []
    refused: list[BadInput] = []
    for cell in cells:
        try:
            (done if is_done(cell.folder, cell.resolved) else todo).append(cell)
        except BadInput as error:
            refused.append(error)
            todo.append(cell)
    if refused and not overwrite:
        others = f" (and {len(refused) - 1} more like it)" if len(refused) > 1 else ""
        raise BadInput(f"{refused[0]}{others}")
    return Plan(done, todo)


@contextmanager
def claim(root: Path) -> Iterator[None]:
    """Hold the results folder, so that no two matrices write the same runs.

    Raises:
        BadInput: It cannot be written, or another matrix holds it.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        hold = Hold(root)
    except Busy as error:
        raise BadInput(f"another matrix is writing to {root}; wait for it") from error
    except OSError as error:
        raise BadInput(f"cannot write to {root}: {error.strerror or error}") from error
    try:
        yield
    finally:
        hold.release()


def record(root: Path, suite: Suite, cells: Sequence[Cell], command: str) -> None:
    """Write down what was asked for, so that a report knows what is missing.

    Cells of earlier calls (other seeds, perhaps) stay listed.
    """
    before = read_record(root)
    asked = {
        cell.folder.relative_to(root).as_posix(): {
            "task": cell.resolved.run.task,
            "variant": cell.variant,
            "seed": cell.resolved.run.seed,
        }
        for cell in cells
    }
    data = {
        "suite": suite.name,
        "question": suite.question,
        "command": command,
        "cells": {**before.get("cells", {}), **asked},
    }
    temporary = root / f".{RECORD}.tmp"
    temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    temporary.replace(root / RECORD)


def read_record(root: Path) -> dict[str, Any]:
    """What `record` wrote; empty where there is nothing, or nothing readable."""
    try:
        data = json.loads((root / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def execute(todo: Sequence[Cell], jobs: int, display: Display) -> dict[Cell, Outcome]:
    """Train cells; a cell that fails is recorded as such and the others go on.

    Args:
        todo: What to train, in this order.
        jobs: Cells at the same time.
        display: Is told of every step and end.

    Raises:
        KeyboardInterrupt: After every worker was ended; finished cells stay.
    """
    outcomes: dict[Cell, Outcome] = {}
    try:
        with LocalPool(min(jobs, len(todo))) as workers:
            for cell, outcome in workers.run(todo, display.watch):
                outcomes[cell] = outcome if outcome.error is None else _record(cell, outcome)
                display.ended(cell, outcomes[cell])
    except KeyboardInterrupt:
        for cell in todo:
            data = read_run(cell.folder)
            if data is not None and data["status"] == "running":
                record_failure(cell.folder, cell.resolved, "interrupted", "")
        raise
    return outcomes


def _record(cell: Cell, outcome: Outcome) -> Outcome:
    """See to it that run.json says how a cell failed; a full disk must not stop the others."""
    assert outcome.error is not None
    try:
        record_failure(cell.folder, cell.resolved, outcome.error, outcome.trace)
    except OSError as error:
        text = f"{outcome.error} (run.json could not be written: {describe(error)})"
        return Outcome(outcome.seconds, error=text, trace=outcome.trace)
    return outcome
