"""REINFORCE with a critic as baseline, and A2C as a setting of it."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.config import OwnCriticConfig
from redline.algorithms.core.surrogates import SCORE_FUNCTION
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.registry import register


@register("reinforce_baseline")
@dataclass(frozen=True)
class ReinforceBaseline(OwnCriticConfig):
    """REINFORCE with baseline (Williams 1992): grad log pi(a|s) * (G_t - V(s_t)), one step.

    `--episodes none --n-steps 5` makes it A2C, and `--gae-lambda 0` the one-step actor-critic.

    Attributes:
        lr: Learning rate of the policy.
        lr_decay: Let it fall linearly to 0 over the budget.
        max_grad_norm: Clip of the gradient norm, None for no clip.
    """

    episodes: int | None = 8
    gae_lambda: float = 1.0
    lr: float = 1e-2
    lr_decay: bool = True
    max_grad_norm: float | None = None

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=SCORE_FUNCTION,
            update=FirstOrder(self.lr, self.lr_decay, max_grad_norm=self.max_grad_norm),
            standardise="batch",
        )
