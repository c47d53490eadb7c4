"""CPU time of whole training runs: another library's, divided by ours, at the same settings."""

from __future__ import annotations

import gc
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from redline.benchmark.baselines.sb3 import StableBaselines3
from redline.benchmark.bench.comparisons import Comparison
from redline.benchmark.config import Resolved
from redline.benchmark.loop import Loop
from redline.benchmark.train import opened

# Environment steps of the run of either side that precedes a row and is not counted.
_WARM_UP = 2_048


class Contestant(Protocol):
    """One run of one library."""

    @property
    def steps(self) -> int:
        """Environment steps so far."""

    @property
    def returns(self) -> list[float]:
        """Returns of all episodes so far, in the order in which they ended."""

    def learn(self) -> None:
        """Train to the end of the budget; the part that is timed."""


Enter = Callable[[Resolved, ExitStack], Contestant]


class Redline:
    """A run of ours with its metrics and TensorBoard files, without evaluations."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.returns: list[float] = []

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self._loop.step

    def learn(self) -> None:
        """Train to the end of the budget, by whole rollouts."""
        while not self._loop.finished:
            self.returns += self._loop.update().episode_return


def redline(resolved: Resolved, stack: ExitStack) -> Contestant:
    """Our side, written to a temporary folder."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return Redline(stack.enter_context(opened(resolved, folder)))


def stable_baselines3(resolved: Resolved, stack: ExitStack) -> Contestant:
    """The other side."""
    return stack.enter_context(closing(StableBaselines3(resolved)))


@dataclass(frozen=True)
class Timed:
    """A run that was measured.

    Attributes:
        seconds: CPU time of `learn`.
        steps: Environment steps.
        start: Mean return of the first tenth of its episodes, nan when none ended.
        end: The same of the last tenth.
    """

    seconds: float
    steps: int
    start: float
    end: float

    @property
    def per_step(self) -> float:
        """CPU time per environment step, in microseconds."""
        return 1e6 * self.seconds / self.steps


@dataclass(frozen=True)
class Pair:
    """Both sides of one repeat."""

    ours: Timed
    theirs: Timed

    @property
    def ratio(self) -> float:
        """How many times our CPU time the other library takes."""
        return self.theirs.seconds / self.ours.seconds


@dataclass(frozen=True)
class Measured:
    """A row and all its repeats."""

    comparison: Comparison
    pairs: Sequence[Pair]

    @property
    def ratios(self) -> list[float]:
        """One per repeat."""
        return [pair.ratio for pair in self.pairs]

    def row(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return {
            "name": self.comparison.name,
            "ratio_median": statistics.median(self.ratios),
            "ratio_min": min(self.ratios),
            "ratio_max": max(self.ratios),
            "repeats": len(self.pairs),
        }


def timed(enter: Enter, resolved: Resolved) -> Timed:
    """CPU time of one run; what is built before it and closed after it does not count."""
    with ExitStack() as stack:
        contestant = enter(resolved, stack)
        gc.collect()
        start = time.process_time()
        contestant.learn()
        seconds = time.process_time() - start
        return Timed(seconds, contestant.steps, *ends(contestant.returns))


def ends(returns: Sequence[float]) -> tuple[float, float]:
    """Mean of the first and of the last tenth, nan where there are none."""
    if not returns:
        return math.nan, math.nan
    count = max(1, len(returns) // 10)
    return statistics.fmean(returns[:count]), statistics.fmean(returns[-count:])


def pairs(
    comparison: Comparison,
    repeats: int,
    steps: int | None = None,
    sides: tuple[Enter, Enter] = (redline, stable_baselines3),
) -> Iterator[Pair]:
    """Repeats one after the other, each with its own seed; the first side changes every time.

    Args:
        comparison: What is run.
        repeats: Number of pairs.
        steps: Environment steps; None: the row's own.
        sides: Ours and theirs.
    """
    for enter in sides:
        timed(enter, comparison.resolved(0, min(_WARM_UP, steps or comparison.steps)))
    for seed in range(repeats):
        resolved = comparison.resolved(seed, steps)
        order = (0, 1) if seed % 2 == 0 else (1, 0)
        found = {side: timed(sides[side], resolved) for side in order}
        yield Pair(found[0], found[1])
