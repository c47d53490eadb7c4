"""GRPO: group-relative advantages, no critic, clipped ratio."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("grpo")
@dataclass(frozen=True)
class GRPO(ClippedGroupConfig):
    """GRPO (arXiv:2402.03300): A = (R - mean) / std over the group, PPO's clip, no critic.

    Differs from the paper: elements are averaged over all tokens by default (`aggregate`), and
    the KL penalty is off by default.
    """

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(CLIPPED_RATIO, self.clip)
