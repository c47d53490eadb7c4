"""What surrounds a command: streams that may be gone, and signals that ask it to end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """Let no stream stop the work: closed ones go nowhere, and stderr never raises."""
    before = sys.stdout, sys.stderr
    # Also so that no file of a run is opened as descriptor 1, which libraries print to.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    sys.stderr = _Unbreakable(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def drop(stream: IO[str]) -> None:
    """Send the rest of a stream nowhere, so that the interpreter's last flush does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Unbreakable:
    """A text stream that goes on when nobody can read it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            drop(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            drop(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Every request to end is a KeyboardInterrupt, the first one; the clean-up is left in peace."""
    # What is ignored stays so: nohup, or a shell's background job.
    caught = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        caught = []
    interrupted = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for other in caught:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in caught}
    try:
        yield
    finally:
        # After an interrupt the process ends, and a second one has nothing to stop.
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)
