"""`redline table`: a suite whose finished runs are committed as summaries, and their table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark import matrix, ranks, suite, suite_files
from redline.benchmark.commands.training import (
    Stopped,
    carry_out,
    check_numbers,
    failures,
    list_plan,
)
from redline.benchmark.errors import BadInput
from redline.benchmark.launchers import LocalPool
from redline.benchmark.outcomes import Outcome
from redline.benchmark.parsing import parse
from redline.benchmark.preflight import check_tasks
from redline.benchmark.suite import Cell
from redline.benchmark.tracks import LANGUAGE, track_of

_DESCRIPTION = (
    "Train every run of a suite that has no current summary in OUT/cells, and write the table of "
    "all that have. Raw runs are not needed for summaries that are there."
)


@dataclass(frozen=True)
class TableConfig:
    """Settings of `redline table`.

    Attributes:
        suite: A shipped suite (`redline list suites`) or a .toml file.
        jobs: Runs at the same time, each on one thread.
        out: Folder of cells, table and raw runs; None: results/<suite>.
        seeds: Train these seeds alone; the table counts all seeds of the suite.
        only: Train these methods or tasks alone; patterns such as "ppo*" too.
        patience: Seconds without an update after which a run is ended and tried once more.
        no_train: Only summarise the runs that are complete, and write the table.
        dry_run: List what is there and what would be trained, and end.
    """

    suite: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")] = None
    jobs: int = 1
    out: Path | None = None
    seeds: tuple[int, ...] | None = None
    only: tuple[str, ...] = ()
    patience: float | None = 1800.0
    no_train: bool = False
    dry_run: bool = False


def main(arguments: Sequence[str]) -> int:
    """Train what lacks a summary and write the table; 1 when a run failed."""
    config = parse(TableConfig, arguments, prog="redline table", description=_DESCRIPTION)
    if config.suite is None:
        raise BadInput("say which suite: redline table SUITE (redline list suites shows them)")
    check_numbers(config.jobs, config.patience)
    ranks.require_alone("redline table")
    from redline.benchmark.published import cells as published
    from redline.benchmark.published import table
    from redline.benchmark.published.reference import reference

    chosen = suite_files.read(config.suite)
    root = config.out or Path("results") / chosen.name
    every = [published.placed(cell, root) for cell in suite.cells(chosen, root)]
    _check(chosen.tasks, chosen.seeds, config.seeds)
    wanted = suite.chosen(_of_seeds(every, config.seeds), config.only)
    wanted = published.ordered(wanted, reference().gates)
    done = [cell for cell in wanted if published.is_current(cell, root)]
    missing = [cell for cell in wanted if cell not in done]
    check_tasks(cell.resolved for cell in missing)
    raw = matrix.plan(missing, overwrite=True)
    plan = matrix.Plan([*done, *raw.done], raw.todo)
    if config.dry_run:
        return list_plan(plan, root, config.jobs, published.paces(every, root))
    unread = _summarise(raw.done, root)

    def finished(cell: Cell) -> None:
        published.write_summary(cell, root)
        table.write(every, root)

    if config.no_train:
        return _say(root, table.write(every, root), len(every), unread)
    launcher = Summarising(config.jobs, config.patience, finished)
    command = shlex.join(["redline", "table", *arguments])
    try:
        outcomes = carry_out(root / "runs", chosen, every, plan, command, launcher)
    except Stopped as stopped:
        return stopped.code
    failed = failures(outcomes) + unread
    return _say(root, table.write(every, root), len(every), failed)


def _say(root: Path, found: int, expected: int, failed: int) -> int:
    print(f"table: {root / 'table.md'} ({found} of {expected} runs)")
    return 1 if failed else 0


def _summarise(cells: Sequence[Cell], root: Path) -> int:
    """Summaries of runs that are there already; gives of how many none could be made."""
    from redline.benchmark.published.cells import write_summary

    unread = 0
    for cell in cells:
        try:
            write_summary(cell, root)
        except (BadInput, OSError) as error:
            unread += 1
            print(f"redline: {error}; remove {cell.folder} to train it again", file=sys.stderr)
    return unread


class Summarising(LocalPool):
    """Workers on this machine whose finished cells are told to `finished` first.

    A cell that cannot be summarised counts as failed; its run is kept.
    """

    def __init__(self, jobs: int, patience: float | None, finished: Callable[[Cell], None]) -> None:
        super().__init__(jobs, patience)
        self._finished = finished

    def run(
        self, cells: Sequence[Cell], watch: Callable[[Mapping[Cell, int]], None]
    ) -> Iterator[tuple[Cell, Outcome]]:
        """See `LocalPool`."""
        for cell, outcome in super().run(cells, watch):
            if outcome.error is None:
                try:
                    self._finished(cell)
                except (BadInput, OSError) as error:
                    outcome = replace(outcome, error=str(error))
            yield cell, outcome


def _check(tasks: Sequence[str], known: Sequence[int], asked: Sequence[int] | None) -> None:
    for task in tasks:
        if track_of(task) is LANGUAGE:
            raise BadInput(f"redline table takes control tasks alone, got {task}")
    for seed in asked or ():
        if seed not in known:
            raise BadInput(f"--seeds must be seeds of the suite ({list(known)}), got {seed}")


def _of_seeds(cells: Sequence[Cell], seeds: Sequence[int] | None) -> list[Cell]:
    return [cell for cell in cells if seeds is None or cell.resolved.run.seed in seeds]
