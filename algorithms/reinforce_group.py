"""REINFORCE with a group's mean as baseline: GRPO without its clip."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.group_config import GroupConfig
from redline.algorithms.core.surrogates import SCORE_FUNCTION
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.registry import register


@register("reinforce_group")
@dataclass(frozen=True)
class ReinforceGroup(GroupConfig):
    """REINFORCE with a group baseline (arXiv:2603.18756): one unclipped step per rollout."""

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=SCORE_FUNCTION,
            update=FirstOrder(self.lr, self.lr_decay, max_grad_norm=self.max_grad_norm),
        )
