"""Cells on worker processes, each of them reused; one that dies takes only its own cell with it."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from redline.benchmark import threads
from redline.benchmark.arguments import from_record
from redline.benchmark.errors import describe
from redline.benchmark.suite import Cell
from redline.benchmark.worker import Worker

# Seconds between two looks at the running cells.
_TICK = 0.2

Watch = Callable[[Mapping[Cell, int]], None]


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        seconds: Wall time.
        final: Its last evaluation; empty when it failed.
        error: Why it failed, None when it did not.
        trace: The traceback, "" where there is none.
    """

    seconds: float
    final: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    trace: str = ""


class LocalPool:
    """Worker processes on this machine; leaving the `with` block ends them, whatever they do.

    Args:
        jobs: How many cells run at the same time.
    """

    def __init__(self, jobs: int) -> None:
        threads.pin()
        self._slots = [_Slot() for _ in range(jobs)]

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for slot in self._slots:
            slot.end()

    def run(self, cells: Sequence[Cell], watch: Watch) -> Iterator[tuple[Cell, Outcome]]:
        """Train cells in their order; yields each as it ends.

        Args:
            cells: What to train.
            watch: Called several times a second with the steps that running cells have done.
        """
        waiting, idle = deque(cells), list(self._slots)
        running: dict[Future[Outcome], tuple[_Slot, Cell]] = {}
        while waiting or running:
            while waiting and idle:
                slot, cell = idle.pop(0), waiting.popleft()
                running[slot.submit(cell)] = slot, cell
            ended, _ = wait(running, timeout=_TICK, return_when=FIRST_COMPLETED)
            for future in ended:
                slot, cell = running.pop(future)
                idle.append(slot)
                yield cell, slot.outcome(future)
            watch({cell: slot.steps for slot, cell in running.values()})


class _Slot:
    """One worker process at a time, replaced when it dies."""

    def __init__(self) -> None:
        # Plain shared memory: a lock or a queue could be left locked by a worker that is killed.
        self._steps = multiprocessing.get_context("spawn").RawArray("q", 1)
        self._worker = Worker(_share, self._steps)
        self._started = 0.0

    @property
    def steps(self) -> int:
        return int(self._steps[0])

    def submit(self, cell: Cell) -> Future[Outcome]:
        record = {**cell.resolved.to_json(), "overrides": dict(cell.resolved.overrides)}
        self._steps[0], self._started = 0, time.perf_counter()
        try:
            return self._call(_train_cell, record, cell.folder)
        except OSError as error:  # no process, memory or descriptor left: the cell fails
            self.end()
            failed: Future[Outcome] = Future()
            failed.set_exception(error)
            return failed

    def _call(self, *call: Any) -> Future[Outcome]:
        try:
            return self._worker.call(*call)
        except BrokenProcessPool:
            self.end()
            return self._worker.call(*call)

    def outcome(self, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool:
            error = f"the worker process {self._worker.last_words()}"
            return Outcome(time.perf_counter() - self._started, error=error)
        except Exception as error:
            seconds, trace = time.perf_counter() - self._started, traceback.format_exc()
            return Outcome(seconds, error=describe(error), trace=trace)

    def end(self) -> None:
        """End the worker at once."""
        self._worker.end()


# In the worker.

_worker_steps: Any = None


def _share(steps: Any) -> None:
    global _worker_steps
    _worker_steps = steps


def _train_cell(record: Mapping[str, Any], folder: Path) -> Outcome:
    start = time.perf_counter()

    def report(step: int, last: Mapping[str, float]) -> None:
        _worker_steps[0] = step

    try:
        from redline.benchmark.train import train

        final = train(from_record(record), folder, report)
    except BaseException as error:  # also SystemExit: an environment that exits fails its cell
        seconds, trace = time.perf_counter() - start, traceback.format_exc()
        return Outcome(seconds, error=describe(error), trace=trace)
    return Outcome(time.perf_counter() - start, final)
