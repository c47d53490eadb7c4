"""GMPO: the geometric mean of clipped token ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.sequence_surrogates import GMPO as SURROGATE
from redline.algorithms.registry import register

# exp(-0.4) and exp(0.4) as distances from 1.
_RANGE = Clip(1.0 - math.exp(-0.4), math.exp(0.4) - 1.0)


@register("gmpo")
@dataclass(frozen=True)
class GMPO(ClippedGroupConfig):
    """GMPO (arXiv:2507.20673): (prod_t clip(r_t))^(1/|o|) A, r_t within exp(-0.4) and exp(0.4).

    Differs from the paper: on control a sequence is an episode.
    """

    clip: Clip = field(default_factory=lambda: _RANGE)
    aggregate: Literal["token_mean", "seq_mean", "fixed_length"] = "seq_mean"
    minibatch_size: int | None = 4

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(SURROGATE, self.clip)
