"""Clip bounds. `low` and `high` are distances from 1; `lo` and `hi` are bounds on the ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.types import Progress


@dataclass(frozen=True)
class Clip:
    """Bounds [1 - low, 1 + high] on the ratio pi/pi_old.

    Attributes:
        low: Distance of the lower bound from 1, in [0, 1].
        high: Distance of the upper bound from 1, >= 0.
        schedule: "fixed", or "linear" (both distances fall to 0 over the budget, rl-zoo's lin_0.2).

    Raises:
        ValueError: A distance is out of its range.
    """

    low: float = 0.2
    high: float = 0.2
    schedule: Literal["fixed", "linear"] = "fixed"

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= 1.0:
            raise ValueError(f"clip.low is a distance from 1 in [0, 1], got {self.low}")
        if not self.high >= 0.0:
            raise ValueError(f"clip.high is a distance from 1, at least 0, got {self.high}")

    def bounds(self, progress: Progress) -> tuple[float, float]:
        """The bounds (lo, hi) in force."""
        scale = 1.0 if self.schedule == "fixed" else 1.0 - progress.fraction
        return 1.0 - self.low * scale, 1.0 + self.high * scale
