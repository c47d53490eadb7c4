"""The rows of `redline bench llm`: settings at which both libraries train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from redline.benchmark.errors import unknown


@dataclass(frozen=True)
class LanguageComparison:
    """One row.

    Attributes:
        name: grpo/<model>/<what>.
        steps_per_rollout: Optimiser steps, each on other completions of the rollout.
        goal: Accuracy whose CPU time is compared; None: completions per second are.
        rollouts: Of a run.
        task: Whose problems are asked.
        prompts: Per rollout.
        group_size: Completions of a prompt.
        max_completion: Their longest, in tokens.
        lr: Constant.
        clip: Both distances of the bounds from 1.
        max_grad_norm: Clip of the gradient norm.
    """

    name: str
    steps_per_rollout: int
    goal: float | None = None
    rollouts: int = 60
    task: str = "llm:arithmetic"
    prompts: int = 32
    group_size: int = 8
    max_completion: int = 64
    lr: float = 1e-4
    clip: float = 0.2
    max_grad_norm: float = 0.5


ROWS = (
    LanguageComparison("grpo/tiny/mu1", 1),
    LanguageComparison("grpo/tiny/mu4", 4),
    LanguageComparison("grpo/tiny/time-to-0.80", 4, goal=0.8),
)


def chosen(names: Iterable[str]) -> list[LanguageComparison]:
    """The rows called `names`, in the order of the table; all of them where there are none.

    Raises:
        BadInput: No row is called so.
    """
    wanted, known = list(names), [row.name for row in ROWS]
    for name in wanted:
        if name not in known:
            raise unknown("row", name, known)
    return [row for row in ROWS if not wanted or row.name in wanted]
