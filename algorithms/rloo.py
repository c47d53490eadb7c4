"""RLOO: an episode against the mean of the others of its group."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.advantages import Advantage, GroupRelative
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("rloo")
@dataclass(frozen=True)
class RLOO(ClippedGroupConfig):
    """RLOO (arXiv:2402.14740): A_i = R_i - mean of the others' R, PPO's clip on token ratios.

    Differs from the paper: it takes one unclipped step per rollout; `epochs 1` with
    `minibatch_size none` is that. TRL clips the ratio of the whole sequence.
    """

    std: bool = False

    def advantage(self) -> Advantage:
        """How an episode is judged."""
        return GroupRelative(self.gamma, self.std, self.grouping, self.per, leave_one_out=True)

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(CLIPPED_RATIO, self.clip)
