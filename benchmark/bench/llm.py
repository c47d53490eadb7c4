"""Completions per second of GRPO on the language model that ships: ours, and TRL's.

Both sides train the same weights on the same kind of problems with the same prompts per rollout,
group size, longest completion, optimiser steps per rollout, learning rate, clip and average over
tokens, in this process on one thread, one after the other. What counts is CPU time.
"""

from __future__ import annotations

import gc
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.benchmark.arguments import resolve
from redline.benchmark.bench.comparisons_llm import LanguageComparison
from redline.benchmark.config import Resolved
from redline.benchmark.train import opened

# Rollouts of either side that come before a row and are not counted.
_WARM_UP = 2
# Rollouts whose mean accuracy must reach the goal of a time-to row: one is noisy.
WINDOW = 4


@dataclass(frozen=True)
class Curve:
    """One run.

    Attributes:
        seconds: CPU time after every rollout and its update.
        accuracy: Share of its completions that were right.
        completions: Of a rollout.
    """

    seconds: Sequence[float]
    accuracy: Sequence[float]
    completions: int

    @property
    def rate(self) -> float:
        """Completions per second of CPU time."""
        return self.completions * len(self.seconds) / self.seconds[-1]

    def time_to(self, goal: float) -> float:
        """CPU time until the mean accuracy of four rollouts reaches the goal; inf: it does not."""
        for i in range(WINDOW, len(self.accuracy) + 1):
            if statistics.fmean(self.accuracy[i - WINDOW : i]) >= goal:
                return self.seconds[i - 1]
        return math.inf


Side = Callable[[LanguageComparison, int, int], Curve]


def redline(row: LanguageComparison, seed: int, rollouts: int) -> Curve:
    """Our side, with its metrics and TensorBoard files, without evaluations."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        loop = stack.enter_context(opened(resolved(row, seed, rollouts), folder))
        gc.collect()
        start = time.process_time()
        seconds, accuracy = [], []
        while not loop.finished:
            accuracy.append(loop.update().metrics["llm/accuracy"])
            seconds.append(time.process_time() - start)
        return Curve(seconds, accuracy, row.prompts * row.group_size)


def resolved(row: LanguageComparison, seed: int, rollouts: int) -> Resolved:
    """Our run of a row."""
    completions = row.prompts * row.group_size
    values: dict[str, Any] = {
        "task": row.task,
        "seed": seed,
        "steps": rollouts * completions,
        "evals": 0,
        "breaker": "off",
        "groups": row.prompts,
        "group-size": row.group_size,
        "max-completion": row.max_completion,
        "epochs": 1,
        "minibatch-size": completions // row.steps_per_rollout,
        "lr": row.lr,
        "clip.low": row.clip,
        "clip.high": row.clip,
        "max-grad-norm": row.max_grad_norm,
        "aggregate": "token_mean",
    }
    arguments = [part for name, value in values.items() for part in (f"--{name}", str(value))]
    return resolve("grpo", [*arguments, "--no-lr-decay", "--std"])


def pairs(
    row: LanguageComparison, repeats: int, rollouts: int | None, sides: tuple[Side, Side]
) -> Iterator[tuple[Curve, Curve]]:
    """Repeats one after the other, each with its own seed; the first side changes every time.

    Args:
        row: What is run.
        repeats: Number of pairs.
        rollouts: Of a run; None: the row's own.
        sides: Ours and theirs.
    """
    count = rollouts or row.rollouts
    for side in sides:
        side(row, 0, min(_WARM_UP, count))
    for seed in range(repeats):
        order = (0, 1) if seed % 2 == 0 else (1, 0)
        found = {index: sides[index](row, seed, count) for index in order}
        yield found[0], found[1]


def ratio(row: LanguageComparison, ours: Curve, theirs: Curve) -> float:
    """How many times our CPU time the other side takes; nan where neither reaches the goal."""
    if row.goal is None:
        return ours.rate / theirs.rate
    mine, other = ours.time_to(row.goal), theirs.time_to(row.goal)
    return math.nan if math.isinf(mine) and math.isinf(other) else other / mine
