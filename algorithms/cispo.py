"""CISPO: the clip bounds a weight, and drops no element."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.token_surrogates import cispo
from redline.algorithms.registry import register


@register("cispo")
@dataclass(frozen=True)
class CISPO(ClippedGroupConfig):
    """CISPO (arXiv:2506.13585): sg(clip(r, lo, hi)) A log pi, no bound below.

    Differs from the paper: eps_high is 0.28 by default; the paper tunes it without naming it.

    Attributes:
        cap: "relative": hi = 1 + clip.high (the paper); "absolute": hi = clip.high (TRL).
        mask: Drop the elements that PPO's clip drops.
    """

    clip: Clip = field(default_factory=lambda: Clip(1.0, 0.28))
    cap: Literal["relative", "absolute"] = "relative"
    mask: bool = False

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(cispo(self.cap, self.mask), self.clip)
