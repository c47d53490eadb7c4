"""GRPO whose advantages get a bonus for uncertain elements."""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("entropy_advantage")
@dataclass(frozen=True)
class EntropyAdvantage(ClippedGroupConfig):
    """Entropy advantage (arXiv:2506.14758) on GRPO: A + min(0.4 H, |A| / 2), clip 0.2 and 0.28.

    Differs from the paper: on Box actions H is max(0, differential entropy). Every other method
    takes the same bonus with --shaping.entropy.
    """

    clip: Clip = field(default_factory=lambda: Clip(0.2, 0.28))
    shaping: Shaping = field(default_factory=lambda: Shaping(entropy=0.4))

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(CLIPPED_RATIO, self.clip)
