"""Comparison of formulas by math-verify, in a process that can be ended whatever it is doing.

No signal interrupts a computation with huge integers, and timers that raise work in the main
thread alone. So the library runs in a process of its own under a timer and a limit of memory that
the operating system keeps. When one is reached, that process is gone; its parent, which has loaded
the library already, forks another one within milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from importlib.util import find_spec
from typing import IO, Any

# Seconds that one comparison may take, and bytes that the process may map.
LIMIT = 2.0
MEMORY = 3 * 2**30

_START = 120.0  # seconds until a process has imported everything, on a busy machine
_ENDED = ""


class Finding(StrEnum):
    """What comes of a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    GOLD_UNREADABLE = "gold unreadable"
    OUT_OF_BOUNDS = "out of bounds"  # of time or memory
    FAILED = "failed"  # the library raised


class SymbolicError(RuntimeError):
    """math-verify cannot be used at all, in one sentence."""


def available() -> bool:
    """Whether math-verify is installed."""
    return find_spec("math_verify") is not None


def compare(gold: str, answer: str) -> Finding:
    r"""Whether two formulas in LaTeX, without signs around them, mean the same.

    Works in every thread and process alike, within `LIMIT` seconds from the moment at which the
    comparison starts. Before that, the first question of a process also waits for the library to
    load (some seconds), and threads wait for each other; no question waits for a process that a
    bound has ended.

    Raises:
        SymbolicError: math-verify is not installed or does not start.
    """
    return _CHECKER.ask(gold, answer)


def read(gold: str) -> Finding:
    """EQUAL for a formula that math-verify reads, otherwise what hinders it.

    Raises:
        SymbolicError: As `compare`.
    """
    return _CHECKER.ask(gold, gold)


class Checker:
    """Processes that compare; they start with the first question and end with this process."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the process, which belongs to the parent after a fork."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ready = False

    def ask(self, gold: str, answer: str) -> Finding:
        """See `compare`."""
        question = json.dumps([gold, answer])
        with self._lock:
            process = self._require()
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).write(question + "\n")
                _pipe(process.stdin).flush()
            # Its own timer comes first, unless something stopped the processes.
            reply = _line(process, 2.0 * LIMIT)
            if reply == _ENDED:
                self._end()
                self._start()  # the next question need not wait for all of it
                return Finding.OUT_OF_BOUNDS
            return Finding(reply)

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    def _require(self) -> subprocess.Popen[str]:
        """The process, ready for a question."""
        if self._process is None and not available():
            raise SymbolicError(
                'comparing formulas needs math-verify: pip install "redline-rl[llm]"'
            )
        if self._process is not None and self._ready and _speaks(self._process, 0.0):
            self._end()  # it ended, or lost its child: what it says is no reply to a question
        process = self._process or self._start()
        if not self._ready and _line(process, _START) != "ready":
            self._end()
            raise SymbolicError("the process that compares formulas does not start")
        self._ready = True
        return process

    def _start(self) -> subprocess.Popen[str]:
        self._ready = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # so that all of it can be ended at once
        )
        return self._process

    def _end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                _pipe(pipe).close()
        self._process = None


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _line(process: subprocess.Popen[str], seconds: float) -> str:
    """The next line, which is never long; `_ENDED` where none comes."""
    return _pipe(process.stdout).readline().strip() if _speaks(process, seconds) else _ENDED


def _speaks(process: subprocess.Popen[str], seconds: float) -> bool:
    """Whether a line, or the end, comes from it in so many seconds."""
    return bool(select.select([_pipe(process.stdout)], [], [], seconds)[0])


_CHECKER = Checker()
os.register_at_fork(after_in_child=_CHECKER.reset)
atexit.register(_CHECKER.close)


def _comparer() -> Callable[[str, str], Finding]:
    """What the process does; math-verify's own timers are off, since ours hold everywhere."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    config = LatexExtractionConfig(
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=True,
            units=False,
            malformed_operators=False,
            nits=False,
            boxed="all",
            equations=False,
        ),
    )

    def read(text: str) -> list[Any]:
        boxed = f"\\boxed{{{text}}}"
        found: list[Any] = parse(boxed, [config], fallback_mode="no_fallback", parsing_timeout=None)
        return found

    def compare(gold: str, answer: str) -> Finding:
        expected = read(gold)
        if not expected:
            return Finding.GOLD_UNREADABLE
        given = expected if answer == gold else read(answer)
        if answer == gold or (given and verify(expected, given, timeout_seconds=None)):
            return Finding.EQUAL
        return Finding.DIFFERENT

    return compare


def _serve() -> None:
    """Answer questions from standard input until it ends, in a child that bounds may end."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # whatever a library prints is no reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks is interrupted, and ends this
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    compare = _comparer()
    compare("\\frac{1}{2}", "\\sqrt{2}")  # loads what is loaded late
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("ready", file=replies, flush=True)
    while child := os.fork():
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        print(Finding.OUT_OF_BOUNDS, file=replies, flush=True)
    _answer(compare, replies)


def _answer(compare: Callable[[str, str], Finding], replies: IO[str]) -> None:
    for line in sys.stdin:
        gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        try:
            finding = compare(gold, answer)
        except MemoryError:
            finding = Finding.OUT_OF_BOUNDS
        except Exception:
            finding = Finding.FAILED
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        print(finding, file=replies, flush=True)


if __name__ == "__main__":
    _serve()
