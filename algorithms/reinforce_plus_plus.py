"""REINFORCE++: returns standardised over the whole batch, PPO's clip, no critic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redline.algorithms.core.advantages import Advantage, GroupRelative, RewardToGo
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("reinforce_plus_plus")
@dataclass(frozen=True)
class ReinforcePlusPlus(ClippedGroupConfig):
    """REINFORCE++ (arXiv:2501.03262): returns-to-go, standardised over all elements of the batch.

    Differs from the paper: a KL penalty (`kl_coef`) is part of the objective, not of the reward.
    `std` and `grouping` are not read.

    Attributes:
        baseline: First compare with the mean of the group (the "-baseline" variant).
    """

    baseline: bool = False

    def advantage(self) -> Advantage:
        """How an element is judged before the standardisation."""
        if self.baseline:
            return GroupRelative(self.gamma, std=False, per=self.per)
        return RewardToGo(self.gamma)

    def build(self) -> Algorithm:
        """The method as parts."""
        return replace(self.of(CLIPPED_RATIO, self.clip), standardise="batch")
