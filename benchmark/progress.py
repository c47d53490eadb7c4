"""What a matrix shows while it runs: bars on a terminal, one line per cell elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from redline.benchmark.errors import first_line
from redline.benchmark.outcomes import Outcome
from redline.benchmark.suite import Cell
from redline.benchmark.tracks import Track, track_of


class MatrixProgress:
    """Bars for the whole matrix and for every running cell.

    Args:
        todo: Cells that will run.
        console: Where to show them; lines instead of bars when it is no terminal.
    """

    def __init__(self, todo: Sequence[Cell], console: Console) -> None:
        self._console = console
        self._cells, self._ended, self._failed = len(todo), 0, 0
        self._steps_done = 0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            # Methods differ in speed, and all of them take turns: look far back for the estimate.
            speed_estimate_period=3600,
        )
        total = sum(cell.resolved.run.steps for cell in todo)
        self._whole = self._bars.add_task("matrix", total=total, note=self._count())
        self._running: dict[Cell, TaskID] = {}

    def __enter__(self) -> MatrixProgress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def watch(self, steps: Mapping[Cell, int]) -> None:
        for cell in self._running.keys() - steps.keys():
            self._bars.remove_task(self._running.pop(cell))
        for cell, step in steps.items():
            total = cell.resolved.run.steps
            if cell not in self._running:
                self._running[cell] = self._bars.add_task(f"  {cell.name}", total=total, note="")
            self._bars.update(self._running[cell], completed=min(step, total))
        self._bars.update(self._whole, completed=self._steps_done + sum(steps.values()))

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        self._ended += 1
        self._failed += outcome.error is not None
        self._steps_done += cell.resolved.run.steps
        self._bars.update(self._whole, note=self._count())
        if not self._console.is_terminal:
            result = _result(outcome, track_of(cell.resolved.run.task))
            line = f"[{self._ended}/{self._cells}] {cell.name}: {result}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def lost(self, cell: Cell, outcome: Outcome) -> None:
        line = f"{cell.name}: {first_line(outcome.error or '')}; it is tried once more at the end"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _count(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._ended} of {self._cells} cells{failed}"


def _result(outcome: Outcome, track: Track) -> str:
    if outcome.error is not None:
        return f"failed after {outcome.seconds:.1f} s: {first_line(outcome.error)}"
    return f"{', '.join(track.show(outcome.final))}, {outcome.seconds:.1f} s"
