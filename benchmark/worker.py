"""One process beside this one that runs functions, and outlives neither this one nor its use."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import Any, Self

from redline.benchmark.process import ENDING


class Worker:
    """A spawned process; leaving the `with` block ends it, whatever it does.

    It starts with the first call. It ends with this process too, however that ends.

    Args:
        prepare: Run in the process before anything else.
        arguments: Of `prepare`; what cannot be sent to a process that runs may be among them.
    """

    def __init__(self, prepare: Callable[..., None] | None = None, *arguments: Any) -> None:
        self._prepare = prepare, arguments
        self._executor: ProcessPoolExecutor | None = None
        self._process: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a function in the process, after those of the calls before.

        Raises:
            BrokenProcessPool: The process has died.
            OSError: It cannot be started.
        """
        if self._executor is not None:
            return self._executor.submit(function, *arguments)
        self._executor = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=self._prepare
        )
        others = set(multiprocessing.active_children())
        # An interrupt waits until the process is there, and can be ended. It inherits the blocked
        # signals and keeps SIGINT so: Ctrl-C reaches this process alone, which ends the other, and
        # none but this one answers with a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return self._executor.submit(function, *arguments)
        finally:
            self._process = next(iter(set(multiprocessing.active_children()) - others), None)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> int:
        """End the process at once; its exit code, 0 where there is none."""
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

    def last_words(self) -> str:
        """How the process ended, where it did so by itself."""
        exit_code = self.end()
        if exit_code >= 0:
            return f"ended with exit code {exit_code}"
        name = signal.Signals(-exit_code).name
        memory = "; the machine may have run out of memory" if -exit_code == signal.SIGKILL else ""
        return f"was ended by {name}{memory}"


# In the process.


def _begin(prepare: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(ENDING) - {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
