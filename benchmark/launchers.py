"""Cells on worker processes, each of them reused; one that dies takes only its own cell with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from redline.benchmark import threads
from redline.benchmark.arguments import from_record
from redline.benchmark.errors import describe
from redline.benchmark.process import ENDING
from redline.benchmark.suite import Cell

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
        self._context = multiprocessing.get_context("spawn")
        # Plain shared memory: a lock or a queue could be left locked by a worker that is killed.
        self._steps = self._context.RawArray("q", 1)
        self._executor: ProcessPoolExecutor | None = None
        self._process: Any = None
        self._started = 0.0

    @property
    def steps(self) -> int:
        return int(self._steps[0])

    def submit(self, cell: Cell) -> Future[Outcome]:
        record = {**cell.resolved.to_json(), "overrides": dict(cell.resolved.overrides)}
        self._steps[0], self._started = 0, time.perf_counter()
        try:
            return self.call(_train_cell, record, cell.folder)
        except OSError as error:  # no process, memory or descriptor left: the cell fails
            self.end()
            failed: Future[Outcome] = Future()
            failed.set_exception(error)
            return failed

    def call(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a function in the worker; a worker that died meanwhile is replaced first."""
        if self._executor is not None:
            try:
                return self._executor.submit(function, *arguments)
            except BrokenProcessPool:
                self.end()
        self._executor = ProcessPoolExecutor(
            1, self._context, initializer=_start_worker, initargs=(self._steps,)
        )
        before = set(multiprocessing.active_children())
        # An interrupt waits until the worker is there, and can be ended. A worker inherits the
        # blocked signals and keeps SIGINT so: Ctrl-C reaches the parent alone, which ends the
        # workers, and no worker answers it with a traceback of its own.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return self._executor.submit(function, *arguments)
        finally:
            self._process = next(iter(set(multiprocessing.active_children()) - before), None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def outcome(self, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool:
            error = _last_words(self.end())
            return Outcome(time.perf_counter() - self._started, error=error)
        except Exception as error:
            seconds, trace = time.perf_counter() - self._started, traceback.format_exc()
            return Outcome(seconds, error=describe(error), trace=trace)

    def end(self) -> int:
        """End the worker at once; its exit code, 0 where there is none."""
        if self._executor is None:
            return 0
        executor, process = self._executor, self._process
        self._executor = self._process = None
        if process is None:  # it could not be started
            executor.shutdown(wait=False, cancel_futures=True)
            return 0
        process.kill()
        executor.shutdown(cancel_futures=True)
        return int(process.exitcode)


def _last_words(exit_code: int) -> str:
    if exit_code >= 0:
        return f"the worker process ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    memory = "; the machine may have run out of memory" if -exit_code == signal.SIGKILL else ""
    return f"the worker process was ended by {name}{memory}"


# In the worker.

_worker_steps: Any = None


def _start_worker(steps: Any) -> None:
    global _worker_steps
    _worker_steps = steps
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(ENDING) - {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """No orphan goes on training after the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
