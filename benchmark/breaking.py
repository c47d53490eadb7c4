"""What a trip of the breaker leaves behind: a record in run.json, and the update for a look at it.

trip.pt holds the policy as the update left it, and the batch that it learned from;
`torch.load("trip.pt", weights_only=True)` reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.benchmark import checkpoint

if TYPE_CHECKING:
    from redline.algorithms.core.breaker import Trip
    from redline.algorithms.core.learner import Learner

TRIP = "trip.pt"
# Trips that run.json tells of one by one; the others are counted.
_LISTED = 20


class Tripped(Exception):
    """The breaker ended a run; the message is a sentence that says why."""


class Trips:
    """Every trip of a run."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._listed: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self._count.total()

    def add(self, trip: Trip, step: int, update: int, action: str) -> None:
        """Note a trip after `step` steps and `update` updates."""
        self._count[trip.rule] += 1
        if len(self._listed) < _LISTED:
            where = {"step": step, "update": update}
            self._listed.append(where | {"action": action} | trip._asdict())

    def to_json(self) -> dict[str, Any]:
        """How many, of which rule, and the first of them."""
        return {"count": len(self), "rules": dict(self._count), "listed": self._listed}

    def load(self, data: Mapping[str, Any]) -> None:
        """Inverse of `to_json`."""
        self._count, self._listed = Counter(data["rules"]), list(data["listed"])


def save(folder: Path, learner: Learner, trip: Trip, step: int, update: int) -> None:
    """Write trip.pt: the policy after the update, and the batch.

    Raises:
        OSError: The folder cannot be written.
    """
    seen = learner.seen
    batch = (
        {}
        if seen is None
        else {
            "observation": seen.batch.observation,
            "action": seen.batch.action,
            "advantage": seen.batch.advantage,
            "mask": seen.batch.mask,
            "old_log_prob": seen.batch.old_log_prob,
            "rows": [seen.rows.start, seen.rows.stop, seen.rows.step],
            "log_prob": seen.log_prob,
        }
    )
    about = {"step": step, "update": update, "reason": trip.reason}
    state = about | {"parameters": learner.policy.snapshot(), "batch": batch}
    checkpoint.write(folder / TRIP, state)


def sentence(trip: Trip, step: int, update: int, good: int) -> str:
    """What the user is told when the run ends.

    Args:
        trip: The last one.
        step: When it was.
        update: Likewise.
        good: Step of the state that the run went back to.
    """
    return (
        f"the breaker ended the run at step {step:,} (update {update:,}): {trip.reason}. The "
        f"policy is that of step {good:,} again; {TRIP} holds the other one with its batch. To go "
        "on from there: the same command with --breaker continue-smaller, or off"
    )
