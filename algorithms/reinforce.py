"""REINFORCE: unclipped policy gradient, no baseline."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.advantages import RewardToGo
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import SCORE_FUNCTION
from redline.algorithms.core.types import Need
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.registry import register


@register("reinforce")
@dataclass(frozen=True)
class Reinforce:
    """REINFORCE (Williams 1992): grad log pi(a|s) * G_t with the reward-to-go G_t.

    Attributes:
        episodes: Whole episodes per update.
        gamma: Discount.
        lr: Learning rate.
        lr_decay: Let it fall linearly to 0 over the budget.
        scale_return: Divide G by its root mean square in the batch (a scale, never a centring).
        entropy_coef: Entropy bonus.
        max_grad_norm: Clip of the gradient norm, None for no clip.
    """

    episodes: int = 8
    gamma: float = 0.99
    lr: float = 1e-2
    lr_decay: bool = True
    scale_return: bool = True
    entropy_coef: float = 0.0
    max_grad_norm: float | None = None

    def build(self) -> Algorithm:
        """The method as parts."""
        return Algorithm(
            need=Need(groups=self.episodes),
            advantage=RewardToGo(self.gamma, self.scale_return),
            surrogate=SCORE_FUNCTION,
            update=FirstOrder(self.lr, self.lr_decay, max_grad_norm=self.max_grad_norm),
            penalties=Penalties(entropy=self.entropy_coef),
        )
