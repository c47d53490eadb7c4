"""DAPO: GRPO with a higher upper bound, dynamic sampling and a soft penalty on length."""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("dapo")
@dataclass(frozen=True)
class DAPO(ClippedGroupConfig):
    """DAPO (arXiv:2503.14476): clip 0.2 below and 0.28 above, mean over tokens, mixed groups only.

    Differs from the paper: rewards are 0 and 1 (the paper's are -1 and 1, which is the same after
    the division by the group's std), so the overlong penalty weighs twice as much; it is off on
    control, and on language tasks its length is a preset. A rollout stops looking for mixed groups
    after eight samples.
    """

    clip: Clip = field(default_factory=lambda: Clip(0.2, 0.28))
    mixed: bool = True

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(CLIPPED_RATIO, self.clip)
