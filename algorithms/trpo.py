"""TRPO: natural step, shortened until the true KL and the true objective allow it."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.config import NaturalConfig
from redline.algorithms.core.natural import TrustRegion
from redline.algorithms.core.surrogates import RATIO
from redline.algorithms.registry import register


@register("trpo")
@dataclass(frozen=True)
class TRPO(NaturalConfig):
    """TRPO (arXiv:1502.05477 Eq. 14): max E[r A] subject to mean KL(old||new) <= delta.

    Attributes:
        backtrack: Factor between the line search's candidates.
        max_backtracks: Number of candidates; when all fail the policy stays as it is.
    """

    backtrack: float = 0.8
    max_backtracks: int = 10

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=RATIO,
            update=TrustRegion(
                self.delta,
                self.delta_decay,
                self.fisher_solve(),
                self.backtrack,
                self.max_backtracks,
            ),
            standardise="batch",
        )
