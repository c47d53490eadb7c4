"""Conservative policy iteration as a penalty on the KL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.config import EpochsConfig
from redline.algorithms.core.penalised import KLPenalty
from redline.algorithms.core.surrogates import RATIO
from redline.algorithms.registry import register


@register("cpi_penalty")
@dataclass(frozen=True)
class CPIPenalty(EpochsConfig):
    """Conservative policy iteration, penalty form (arXiv:1502.05477 Eq. 9): E[r A] - C KL.

    Attributes:
        penalty: C; None: the theoretical one, 4 max|A| gamma / (1 - gamma).
        kl_over: "max" over the elements (the bound) or their "mean" (a heuristic).
        kl_reverse: KL(new||old) instead of KL(old||new).
        horizon: Longest episode; at gamma 1 the theoretical C needs it, 2 max|A| (T - 1).
    """

    penalty: float | None = None
    kl_over: Literal["max", "mean"] = "max"
    kl_reverse: bool = False
    horizon: int | None = None

    def build(self) -> Algorithm:
        """The method as parts."""
        bound = (self.gamma, self.horizon, self.penalty, self.kl_over, self.kl_reverse)
        rule = KLPenalty(self.first_order(), *bound)
        return self.algorithm(surrogate=RATIO, update=rule, standardise="batch")
