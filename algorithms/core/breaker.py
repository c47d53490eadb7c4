"""Says when an update went further than any update should, whatever the method's own bounds are."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, get_args

from redline.algorithms.core.actions import Action
from redline.algorithms.core.arrays import namespace
from redline.algorithms.core.contracts import Critic, Policy
from redline.algorithms.core.spread import pooled
from redline.algorithms.core.telemetry import BAND
from redline.algorithms.core.types import Array, Metrics

ACTIONS: tuple[str, ...] = get_args(Action)

# Share of a batch's ratios outside BAND, and mean KL(old||new) in nats, after one update.
MOST_OUTSIDE = 0.8
MOST_KL = 0.5
# What a step is multiplied by after a trip.
SMALLER = 0.25
# After so many trips in a row the size of the step is not to blame.
MOST_IN_A_ROW = 5

_FINITE = (
    "train/loss",
    "train/grad_norm",
    "train/kl",
    "train/kl_sampled",
    "train/entropy",
    "train/entropy_sampled",
    "train/value_loss",
)


class Trip(NamedTuple):
    """One update that was too much.

    Attributes:
        rule: "outside_band", "kl" or "not_finite".
        value: What was measured; nan where that was no number.
        limit: What it may be at most.
        reason: A sentence.
    """

    rule: str
    value: float
    limit: float
    reason: str


def not_finite(what: str) -> Trip:
    """The trip of an update that met nan or infinity.

    Args:
        what: A clause, such as "train/loss is nan".
    """
    return Trip("not_finite", math.nan, math.inf, f"{what}, which is not a finite number")


def judge(metrics: Metrics, policy: Policy, critic: Critic | None = None) -> Trip | None:
    """Why an update must not count; None where nothing is wrong with it.

    In this order: a loss, a gradient norm, a divergence, an entropy or a parameter is not finite;
    mean KL(old||new) over the update is above `MOST_KL`; more than `MOST_OUTSIDE` of the measured
    ratios pi/pi_old of single actions lie outside the fixed `BAND`.

    Args:
        metrics: Of the update, measured after it (see `redline.algorithms.core.telemetry` on what).
        policy: After the update.
        critic: Likewise, where there is one.
    """
    for name in _FINITE:
        if not math.isfinite(metrics.get(name, 0.0)):
            return not_finite(f"{name} is {metrics[name]}")
    for name, part in (("policy", policy), ("critic", critic)):
        unsound = part is not None and not _all_finite(part.parameters)
        if pooled(policy, float(unsound)) > 0.0:
            return not_finite(f"a parameter of the {name} is nan or infinite")
    kl = metrics.get("train/kl", metrics.get("train/kl_sampled", 0.0))
    if kl > MOST_KL:
        reason = f"KL(old||new) over one update is {kl:.3g}, above {MOST_KL}"
        return Trip("kl", kl, MOST_KL, reason)
    outside = metrics.get("train/outside_band", 0.0)
    if outside > MOST_OUTSIDE:
        reason = (
            f"{outside:.0%} of the ratios pi/pi_old lie outside [{BAND[0]}, {BAND[1]}] after one "
            f"update, more than {MOST_OUTSIDE:.0%}"
        )
        return Trip("outside_band", outside, MOST_OUTSIDE, reason)
    return None


def _all_finite(values: Array) -> bool:
    xp = namespace(values)
    return bool(xp.all(xp.isfinite(values)))


class Breaker:
    """Counts trips and says how long a run goes on after them.

    Args:
        action: What a trip leads to.

    Attributes:
        scale: What every step of the update rule is multiplied by.
    """

    def __init__(self, action: Action) -> None:
        self.action = action
        self.scale = 1.0
        self._in_a_row = 0

    @property
    def goes_back(self) -> bool:
        """A trip undoes what was learned since the last good state."""
        return self.action not in ("record", "off")

    def judge(self, metrics: Metrics, policy: Policy, critic: Critic | None = None) -> Trip | None:
        """`judge`, with a good update ending a row of bad ones; None where this is off."""
        trip = None if self.action == "off" else judge(metrics, policy, critic)
        if trip is None:
            self._in_a_row = 0
        return trip

    def tripped(self) -> bool:
        """Note a trip; gives whether the run ends with it."""
        self._in_a_row += 1
        if self.action == "continue-smaller":
            self.scale *= SMALLER
        return self.action == "stop" or (self.goes_back and self._in_a_row >= MOST_IN_A_ROW)

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on needs."""
        return {"scale": self.scale, "in_a_row": self._in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; a smaller step stays so for the action that asks for it."""
        self._in_a_row = int(state["in_a_row"])
        if self.action == "continue-smaller":
            self.scale = float(state["scale"])
