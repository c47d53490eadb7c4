"""How a cell of a matrix ended, and what its failure says about other tries."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from enum import Enum, auto

from redline.benchmark.errors import describe

# Nothing more can be written: full, over quota, larger than a file may be, read-only.
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
# Of the system, when it has no memory or no process left to give.
_SCARCE = frozenset({errno.ENOMEM, errno.EAGAIN})


class Fault(Enum):
    """What a failure says about other tries."""

    RUN = auto()
    """The run itself failed, and would fail again."""
    WORKER = auto()
    """Its process was lost, hung or had no memory left: another try may succeed."""
    DISK = auto()
    """Nothing can be written any more, whichever cell it is."""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        seconds: Wall time.
        final: Its last evaluation; empty when it failed.
        error: Why it failed, None when it did not.
        trace: The traceback, "" where there is none.
        fault: What the failure says about other tries; of no meaning where there was none.
    """

    seconds: float
    final: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    trace: str = ""
    fault: Fault = Fault.RUN


def failed(error: BaseException, started: float) -> Outcome:
    """The outcome of a cell that an exception ended; called where it was caught.

    Args:
        error: The exception.
        started: `time.perf_counter()` at the start of the cell.
    """
    seconds, trace = time.perf_counter() - started, traceback.format_exc()
    return Outcome(seconds, error=describe(error), trace=trace, fault=_fault(error))


def _fault(error: BaseException) -> Fault:
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) else None
        if number in _DISK:
            return Fault.DISK
        if number in _SCARCE or isinstance(cause, MemoryError | BrokenProcessPool):
            return Fault.WORKER
        # What torch raises has no class of its own on the CPU.
        if type(cause).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(cause):
            return Fault.WORKER
    return Fault.RUN


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__
