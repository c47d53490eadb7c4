"""GSPO: one clipped ratio per sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.group_config import ClippedGroupConfig
from redline.algorithms.core.sequence_surrogates import GSPO as SURROGATE
from redline.algorithms.registry import register


@register("gspo")
@dataclass(frozen=True)
class GSPO(ClippedGroupConfig):
    """GSPO (arXiv:2507.18071): min(s A, clip(s) A), s = (pi/pi_old of the sequence)^(1/|o|).

    Differs from the paper: on control a sequence is an episode. An advantage per timestep is
    averaged over its episode; gspo_token keeps it.
    """

    clip: Clip = field(default_factory=lambda: Clip(3e-4, 4e-4))
    aggregate: Literal["token_mean", "seq_mean", "fixed_length"] = "seq_mean"
    minibatch_size: int | None = 4

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(SURROGATE, self.clip)
