"""Natural policy gradient: a step along F^-1 g, without a line search."""

from __future__ import annotations

from dataclasses import dataclass

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.config import NaturalConfig
from redline.algorithms.core.natural import NaturalGradient
from redline.algorithms.core.surrogates import RATIO
from redline.algorithms.registry import register


@register("npg")
@dataclass(frozen=True)
class NPG(NaturalConfig):
    """Natural policy gradient (Kakade 2001): theta += scale * F^-1 g.

    Attributes:
        step_size: A fixed scale, as in the paper; None: the scale whose quadratic KL is `delta`
            (arXiv:1502.05477, appendix C).
    """

    step_size: float | None = None

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=RATIO,
            update=NaturalGradient(
                self.delta, self.delta_decay, self.fisher_solve(), self.step_size
            ),
            standardise="batch",
        )
