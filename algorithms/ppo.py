"""PPO with a clipped ratio."""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.config import EpochsConfig
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("ppo")
@dataclass(frozen=True)
class PPO(EpochsConfig):
    """PPO-clip (arXiv:1707.06347 Eq. 7): min(r A, clip(r, 1-low, 1+high) A), several epochs.

    Attributes:
        clip: Bounds on the ratio.
    """

    clip: Clip = field(default_factory=Clip)

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=CLIPPED_RATIO,
            clip=self.clip,
            update=self.first_order(),
            standardise="minibatch",
        )
