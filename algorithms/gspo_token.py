"""GSPO-token: the sequence's ratio with an advantage per token."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.sequence_surrogates import GSPO_TOKEN
from redline.algorithms.gspo import GSPO
from redline.algorithms.registry import register


@register("gspo_token")
@dataclass(frozen=True)
class GSPOToken(GSPO):
    """GSPO-token (arXiv:2507.18071 Eq. 13): sg(s) pi_t / sg(pi_t) in GSPO's objective.

    Differs from the paper: nothing; with one advantage per sequence it is GSPO.
    """

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(GSPO_TOKEN, self.clip)
