"""Cells on worker processes, reused; one that dies or hangs takes only its own cell with it."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redline.benchmark import threads
from redline.benchmark.arguments import from_record
from redline.benchmark.gpus import VISIBLE
from redline.benchmark.outcomes import Fault, Outcome, failed
from redline.benchmark.suite import Cell
from redline.benchmark.worker import Worker

# Seconds between two looks at the running cells.
_TICK = 0.2
# Most seconds that one look counts for: while the machine sleeps, nothing hangs.
_LONGEST_TICK = 1.0

Watch = Callable[[Mapping[Cell, int]], None]
Report = Callable[[int, Mapping[str, float]], None]


def record_of(cell: Cell) -> dict[str, Any]:
    """The settings of a cell as plain data, which any process can read."""
    return {**cell.resolved.to_json(), "overrides": dict(cell.resolved.overrides)}


class LocalPool:
    """Worker processes on this machine; leaving the `with` block ends them, whatever they do.

    Args:
        jobs: How many cells run at the same time.
        patience: See below.
        timeout: See below.
        gpus: What each job sees of the GPUs (`redline.benchmark.gpus.shared_out`); (): all.

    Attributes:
        patience: Seconds without an update after which a worker counts as hung and is ended; None:
            it may take as long as it likes.
        timeout: Seconds that a cell may take, after which it is ended and has failed; None: any.
    """

    def __init__(
        self,
        jobs: int,
        patience: float | None = None,
        timeout: float | None = None,
        gpus: Sequence[str | None] = (),
    ) -> None:
        threads.pin()
        self.patience, self.timeout = patience, timeout
        self._slots = [_Slot(gpu) for gpu in gpus or [None] * jobs]

    def __enter__(self) -> Self:
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
        looked = time.monotonic()
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
            now = time.monotonic()
            for slot, _ in running.values():
                slot.look(min(now - looked, _LONGEST_TICK), self.patience, self.timeout)
            looked = now


class _Slot:
    """One worker process at a time, replaced when it dies."""

    def __init__(self, gpu: str | None) -> None:
        # Plain shared memory: a lock or a queue could be left locked by a worker that is killed.
        # Steps that the cell has done, and how often it has said so.
        self._told = multiprocessing.get_context("spawn").RawArray("q", 2)
        self._worker = Worker(_share, self._told, gpu)
        self._started = 0.0
        self._heard, self._silence, self._spent = 0, 0.0, 0.0
        self._hung = self._late = ""

    @property
    def steps(self) -> int:
        return int(self._told[0])

    def submit(self, cell: Cell) -> Future[Outcome]:
        self._told[0], self._started = 0, time.perf_counter()
        self._heard, self._silence, self._spent = self._told[1], 0.0, 0.0
        self._hung = self._late = ""
        try:
            return self._call(_train_cell, record_of(cell), cell.folder)
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

    def look(self, seconds: float, patience: float | None, timeout: float | None) -> None:
        """Count the time that the cell takes, and is silent for; end its worker at too much."""
        self._spent += seconds
        if timeout is not None and self._spent > timeout and not self._late:
            self._late = f"took more than the {timeout:g} s of --timeout and was ended"
            self._worker.end()
            return
        told = self._told[1]
        self._silence = self._silence + seconds if told == self._heard else 0.0
        self._heard = told
        if patience is not None and self._silence > patience and not self._hung:
            self._hung = f"made no update for {patience:g} s and was ended"
            self._worker.end()

    def outcome(self, future: Future[Outcome]) -> Outcome:
        try:
            outcome = future.result()
        except BrokenProcessPool:
            seconds = time.perf_counter() - self._started
            if self._late:
                return Outcome(seconds, error=f"the run {self._late}")
            error = f"the worker process {self._hung or self._worker.last_words()}"
            return Outcome(seconds, error=error, fault=Fault.WORKER)
        except Exception as error:
            return failed(error, self._started)
        if outcome.error is not None and outcome.fault is Fault.WORKER:
            self.end()  # a new process has its memory back
        return outcome

    def end(self) -> None:
        """End the worker at once."""
        self._worker.end()


# In the worker.

_told: Any = None


def _share(told: Any, gpu: str | None) -> None:
    global _told
    _told = told
    if gpu is not None:  # before torch looks for GPUs
        os.environ[VISIBLE] = gpu


def _train_cell(record: Mapping[str, Any], folder: Path) -> Outcome:
    def report(step: int, last: Mapping[str, float]) -> None:
        _told[0] = step
        _told[1] += 1

    return train_cell(record, folder, report)


def train_cell(record: Mapping[str, Any], folder: Path, report: Report) -> Outcome:
    """Train a cell in this process, whatever it does.

    Args:
        record: Its settings, as `record_of` gives them.
        folder: Where it is written.
        report: Called with (step, last evaluation) after every update.
    """
    start = time.perf_counter()
    try:
        from redline.benchmark.train import train

        final = train(from_record(record), folder, report)
    except BaseException as error:  # also SystemExit: an environment that exits fails its cell
        return failed(error, start)
    return Outcome(time.perf_counter() - start, final)
