"""Clip bounds. `low` and `high` are distances from 1; `lo` and `hi` are bounds on the ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass

from redline.algorithms.core import schedules
from redline.algorithms.core.schedules import ClipState, Distances
from redline.algorithms.core.types import Array, Batch, Namespace, Progress

# Of the bounds that depend on the probability (arXiv:2509.02333).
HIGHEST_RATIO = 10.0


@dataclass(frozen=True)
class Clip:
    """Bounds [1 - low, 1 + high] on the ratio pi/pi_old, and how they change.

    `schedule` names one of the rules below, or several joined by "+", applied from left to right
    ("piecewise+entropy"). t is the share of the budget that is spent.

        fixed         low and high as they are
        linear        to low_end and high_end at t = 1
        piecewise     low and high until t = hold, then linearly to the ends at t = until
        sqrt          times sqrt(1 - t)
        off-for       no bounds for the last off_rounds of every off_every rollouts
        adaptive      gain * std of the ratio below and above its mean, over the last `window`
                      rollouts; low and high count as the first ten of them
        reward-noise  times 0.5 + c, c the intraclass correlation of the rewards of a prompt over
                      the last `window` rollouts: 0 where rewards are noise
        entropy       times 1 + gain (1 - q) H / log|A| for every element, q = pi_old(a|s)
        by-prob       1/2 + sqrt(max(1/4 - low/q, 0)) <= r <= min(10, 1/2 + sqrt(1/4 + high/q)) for
                      every element (DCPO, arXiv:2509.02333 Eq. 9)

    Attributes:
        low: Distance of the lower bound from 1, in [0, 1].
        high: Distance of the upper bound from 1, >= 0.
        schedule: As above.
        low_end: Of "linear" and "piecewise"; None: 0, or half of `low`.
        high_end: Likewise.
        floor: Least distance on either side, whatever the schedule says.
        ceiling: Largest distance on either side.
        hold: Of "piecewise".
        until: Of "piecewise".
        gain: Of "adaptive" and "entropy".
        window: Of "adaptive" and "reward-noise", in rollouts.
        off_every: Of "off-for", in rollouts.
        off_rounds: Of "off-for".

    Raises:
        ValueError: A value is out of its range, or there is no such schedule.
    """

    low: float = 0.2
    high: float = 0.2
    schedule: str = "fixed"
    low_end: float | None = None
    high_end: float | None = None
    floor: float = 0.0
    ceiling: float | None = None
    hold: float = 0.4
    until: float = 0.8
    gain: float = 1.0
    window: int = 1000
    off_every: int = 10
    off_rounds: int = 1

    def __post_init__(self) -> None:
        for name in ("low", "low_end"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"clip.{name} is a distance from 1 in [0, 1], got {value}")
        for name in ("high", "high_end", "floor", "gain"):
            value = getattr(self, name)
            if value is not None and not value >= 0.0:
                what = "" if name == "gain" else "is a distance from 1, "
                raise ValueError(f"clip.{name} {what}at least 0, got {value}".replace("  ", " "))
        if self.ceiling is not None and not self.ceiling >= self.floor:
            raise ValueError(
                f"clip.ceiling must be at least clip.floor, which is {self.floor:g}, "
                f"got {self.ceiling:g}"
            )
        if not 0.0 <= self.hold < self.until <= 1.0:
            raise ValueError(
                "clip.hold and clip.until are shares of the budget with 0 <= hold < until <= 1, "
                f"got {self.hold:g} and {self.until:g}"
            )
        if not (self.window >= 1 and 1 <= self.off_rounds <= self.off_every):
            raise ValueError(
                "clip.window is at least 1 and clip.off_rounds between 1 and clip.off_every, got "
                f"{self.window}, {self.off_rounds} and {self.off_every}"
            )
        schedules.require_known(self.rules)

    @property
    def rules(self) -> list[str]:
        """The schedule's parts."""
        return self.schedule.split("+")

    @property
    def per_element(self) -> bool:
        """Elements have bounds of their own."""
        return any(rule in schedules.PER_ELEMENT for rule in self.rules)

    @property
    def of_entropy(self) -> bool:
        """Bounds depend on the entropy of pi_old."""
        return "entropy" in self.rules

    @property
    def of_groups(self) -> bool:
        """Bounds depend on how rewards differ within a group and between groups."""
        return "reward-noise" in self.rules

    def is_off(self, state: ClipState) -> bool:
        """This rollout is learned from without bounds."""
        rest = state.rollouts % self.off_every
        return schedules.OFF in self.rules and rest >= self.off_every - self.off_rounds

    def bounds(self, progress: Progress, state: ClipState | None = None) -> tuple[float, float]:
        """The bounds (lo, hi) in force before those of single elements."""
        state = state or ClipState(self.window)
        if self.is_off(state):
            return 0.0, math.inf
        low, high = self._distances(progress, state)
        return 1.0 - low, 1.0 + high

    def _distances(self, progress: Progress, state: ClipState) -> Distances:
        at = Distances(self.low, self.high)
        for rule in self.rules:
            if rule in schedules.PER_UPDATE:
                at = schedules.PER_UPDATE[rule](self, at, progress.fraction, state)
        most = math.inf if self.ceiling is None else self.ceiling
        low, high = (min(most, max(self.floor, distance)) for distance in at)
        return Distances(min(1.0, low), high)

    def element_bounds(
        self, xp: Namespace, batch: Batch, bounds: tuple[float, float], most_entropy: float
    ) -> tuple[Array, ...]:
        """(lo, hi), shaped like the mask; empty where all elements have the same.

        Args:
            xp: Array namespace.
            batch: With `entropy`, where the schedule needs it.
            bounds: Those of `bounds`.
            most_entropy: Of the uniform distribution, in nats.
        """
        if not self.per_element or math.isinf(bounds[1]):
            return ()
        low, high = 1.0 - bounds[0], bounds[1] - 1.0
        q = xp.exp(batch.old_log_prob)
        wider = xp.ones_like(q)
        if self.of_entropy:
            assert batch.entropy is not None
            wider = wider + self.gain * (1.0 - q) * batch.entropy / most_entropy
        if schedules.BY_PROB in self.rules:
            return probability_bounds(xp, q, low * wider, high * wider)
        return xp.maximum(1.0 - low * wider, xp.zeros_like(q)), 1.0 + high * wider


def probability_bounds(
    xp: Namespace, q: Array, low: Array | float, high: Array | float
) -> tuple[Array, Array]:
    """DCPO's bounds on the ratio (arXiv:2509.02333 Eq. 9), from |r - 1| r q <= eps.

    1/2 + sqrt(max(1/4 - low/q, 0)) <= r <= min(10, 1/2 + sqrt(1/4 + high/q)); with low 0.16 and
    high 0.2 they meet a fixed clip of 0.2 at q = 1 below and at q = 1/1.2 above.

    Args:
        xp: Array namespace.
        q: pi_old(a|s), in (0, 1].
        low: eps_low.
        high: eps_high.
    """
    q = xp.maximum(q, xp.zeros_like(q) + 1e-30)
    below = xp.maximum(0.25 - low / q, xp.zeros_like(q))
    above = 0.5 + xp.sqrt(0.25 + high / q)
    return 0.5 + xp.sqrt(below), xp.minimum(above, xp.zeros_like(q) + HIGHEST_RATIO)
