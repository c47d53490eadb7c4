"""A matrix of runs: what is missing is trained, cell by cell, and nothing that is there is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from redline.benchmark.errors import BadInput, describe
from redline.benchmark.files import Busy, Hold, replacing
from redline.benchmark.outcomes import Fault, Outcome
from redline.benchmark.run_record import record_failure
from redline.benchmark.runs import is_done, read_run
from redline.benchmark.suite import Cell, Suite

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

    def lost(self, cell: Cell, outcome: Outcome) -> None:
        """A cell lost its worker and will be tried once more."""


class Launcher(Protocol):
    """Trains cells somewhere; leaving its `with` block ends whatever still trains."""

    def __enter__(self) -> Self:
        """Start."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""

    def run(
        self, cells: Sequence[Cell], watch: Callable[[Mapping[Cell, int]], None]
    ) -> Iterator[tuple[Cell, Outcome]]:
        """Train cells; yields each as it ends.

        Args:
            cells: What to train.
            watch: Called several times a second with the steps that running cells have done.
        """


class DiskFault(Exception):
    """Nothing can be written any more; says why."""


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
    with replacing(root / RECORD) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read_record(root: Path) -> dict[str, Any]:
    """What `record` wrote; empty where there is nothing, or nothing readable."""
    try:
        data = json.loads((root / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def execute(todo: Sequence[Cell], launcher: Launcher, display: Display) -> dict[Cell, Outcome]:
    """Train cells; a cell that fails is recorded as such and the others go on.

    A cell whose worker was killed, hung, or had no memory left is tried once more, after all
    others and alone, from its last checkpoint.

    Args:
        todo: What to train, in this order.
        launcher: Trains them.
        display: Is told of every step and end.

    Raises:
        KeyboardInterrupt: After every worker was ended; finished cells stay.
        DiskFault: The same, for no cell could write what it computes.
    """
    outcomes: dict[Cell, Outcome] = {}
    again: list[Cell] = []
    try:
        with launcher as workers:
            for cell, outcome in workers.run(todo, display.watch):
                if outcome.error is not None and outcome.fault is Fault.WORKER:
                    again.append(cell)
                    display.lost(cell, outcome)
                else:
                    outcomes[cell] = _settled(cell, outcome, display)
            for lost in again:
                for cell, outcome in workers.run([lost], display.watch):
                    outcomes[cell] = _settled(cell, _twice(outcome), display)
    except (KeyboardInterrupt, DiskFault):
        for cell in todo:
            data = read_run(cell.folder)
            if data is not None and data["status"] == "running":
                with suppress(OSError):
                    record_failure(cell.folder, cell.resolved, "interrupted", "")
        raise
    return outcomes


def _twice(outcome: Outcome) -> Outcome:
    if outcome.error is None or outcome.fault is not Fault.WORKER:
        return outcome
    return replace(outcome, error=f"{outcome.error} (at the second try too)")


def _settled(cell: Cell, outcome: Outcome, display: Display) -> Outcome:
    """See to it that run.json says how a cell failed.

    Raises:
        DiskFault: The cell could not write, and no other could.
    """
    if outcome.error is not None:
        if outcome.fault is Fault.DISK:
            raise DiskFault(outcome.error)
        try:
            record_failure(cell.folder, cell.resolved, outcome.error, outcome.trace)
        except OSError as error:
            text = f"{outcome.error} (run.json could not be written: {describe(error)})"
            outcome = replace(outcome, error=text)
    display.ended(cell, outcome)
    return outcome
