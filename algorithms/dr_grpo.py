"""Dr. GRPO: GRPO without its two normalisations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.registry import register


@register("dr_grpo")
@dataclass(frozen=True)
class DrGRPO(ClippedGroupConfig):
    """Dr. GRPO (arXiv:2503.20783): A = R - mean over the group, sum over tokens / a constant.

    Differs from the paper: several epochs by default, where the paper takes one.
    """

    std: bool = False
    aggregate: Literal["token_mean", "seq_mean", "fixed_length"] = "fixed_length"

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(CLIPPED_RATIO, self.clip)
