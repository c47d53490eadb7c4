"""SAPO: a soft gate in place of the clip."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.group_config import RatioGroupConfig
from redline.algorithms.core.token_surrogates import sapo
from redline.algorithms.registry import register


@register("sapo")
@dataclass(frozen=True)
class SAPO(RatioGroupConfig):
    """SAPO (arXiv:2511.20347): (4 / tau) sigmoid(tau (r - 1)) A, a weight that fades from r = 1.

    Differs from the paper: elements are averaged over all tokens by default (`aggregate`).

    Attributes:
        tau_positive: tau where A > 0.
        tau_negative: tau elsewhere.
    """

    tau_positive: float = 1.0
    tau_negative: float = 1.05

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.of(sapo(self.tau_positive, self.tau_negative))
