"""Conservative policy iteration: a mixture of the old policy and a greedy one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.config import FirstOrderConfig
from redline.algorithms.core.conservative import ConservativeMixture, Distillation
from redline.algorithms.core.surrogates import RATIO
from redline.algorithms.registry import register


@register("cpi")
@dataclass(frozen=True)
class CPI(FirstOrderConfig):
    """Conservative policy iteration (Kakade & Langford 2002): (1 - alpha) pi + alpha pi'.

    Attributes:
        alpha: How the weight of pi' is found: from the "bound" (its theoretical value), or the
            largest one within `delta` by "line_search".
        delta: Limit of the line search on the mean KL(old||new), in nats.
        horizon: Longest episode; the bound needs it at gamma 1.
        holdout: Share of the rollout that measures the advantage of pi', on which it did not train.
        max_components: A larger mixture is distilled into one network.
        distill_epochs: Passes of the distillation over a rollout.
    """

    alpha: Literal["bound", "line_search"] = "bound"
    delta: float = 0.01
    horizon: int | None = None
    holdout: float = 0.25
    max_components: int = 16
    distill_epochs: int = 30

    def build(self) -> Algorithm:
        """The method as parts."""
        rule = ConservativeMixture(
            self.first_order(),
            *(self.gamma, self.horizon, self.alpha, self.delta, self.holdout, self.max_components),
            distillation=Distillation(epochs=self.distill_epochs),
        )
        return self.algorithm(surrogate=RATIO, update=rule, standardise="batch")
