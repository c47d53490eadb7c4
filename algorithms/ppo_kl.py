"""PPO with an adaptive KL penalty instead of a clip."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.config import EpochsConfig
from redline.algorithms.core.penalised import AdaptiveKL
from redline.algorithms.core.surrogates import RATIO
from redline.algorithms.registry import register


@register("ppo_kl")
@dataclass(frozen=True)
class PPOKL(EpochsConfig):
    """PPO with adaptive KL penalty (arXiv:1707.06347 Eq. 8): E[r A] - beta KL(old||new).

    Attributes:
        kl_target: beta is doubled above 1.5 times this mean KL, halved below 1 / 1.5 of it.
        kl_coef_init: The first beta.
    """

    kl_target: float = 0.01
    kl_coef_init: float = 1.0

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=RATIO,
            update=AdaptiveKL(self.first_order(), self.kl_target, self.kl_coef_init),
            standardise="minibatch",
        )
