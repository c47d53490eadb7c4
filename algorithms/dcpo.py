"""DCPO: bounds from the probability of an action, and smooth advantages."""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.algorithms.core.advantages import Advantage
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import HIGHEST_RATIO, Clip
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.smooth import SmoothGroupRelative
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.core.token_surrogates import RatioLimits
from redline.algorithms.registry import register


@register("dcpo")
@dataclass(frozen=True)
class DCPO(ClippedGroupConfig):
    """DCPO (arXiv:2509.02333): |r - 1| r q <= eps as bounds, smooth standardisation, token mean.

    Differs from the paper: `starts` must be given for prompts to come back (in a data set they do
    by themselves); with ever new ones every visit is the first, and the advantage is GRPO's.
    `std`, `grouping`, `per` and `aggregate` are not read.
    """

    clip: Clip = field(default_factory=lambda: Clip(0.16, 0.2, schedule="by-prob"))
    ratio: RatioLimits = field(default_factory=lambda: RatioLimits(dual_clip=HIGHEST_RATIO))

    def advantage(self) -> Advantage:
        """How an episode is judged."""
        return SmoothGroupRelative(self.gamma)

    def coefficients(self) -> Aggregate:
        """How elements are averaged."""
        return Aggregate("group_sum", group_size=self.group_size)

    def build(self) -> Algorithm:
        """The method as parts."""
        if self.mixed:
            raise ValueError(
                "dcpo learns from groups whose outcomes are all equal too (from what their prompt "
                "earned before), so mixed cannot be set"
            )
        return self.of(CLIPPED_RATIO, self.clip)
