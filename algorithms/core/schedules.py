"""The rules that clip bounds follow, and what they remember of former rollouts."""

from __future__ import annotations

import difflib
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from redline.algorithms.core.types import Array, Rollout

if TYPE_CHECKING:
    from redline.algorithms.core.clipping import Clip

# Rollouts that the starting bounds of "adaptive" count for, so that the first ones move it gently.
_PRIOR = 10


class Distances(NamedTuple):
    """Of the bounds from 1."""

    low: float
    high: float

    def times(self, factor: float) -> Distances:
        """Both scaled."""
        return Distances(self.low * factor, self.high * factor)


class ClipState:
    """What adaptive bounds know of former rollouts; part of a checkpoint.

    Args:
        window: Rollouts that are remembered.
    """

    def __init__(self, window: int) -> None:
        self.rollouts = 0
        self.ratios: deque[tuple[float, float]] = deque(maxlen=window)
        self.rewards: deque[tuple[float, float, float]] = deque(maxlen=window)

    def observe(self, log_ratio: Array, rollout: Rollout, grouped: bool) -> None:
        """Note a rollout that was learned from.

        Args:
            log_ratio: log pi - log pi_old of its valid elements after the update.
            rollout: Gives the rewards.
            grouped: Keep what they say of groups.
        """
        self.rollouts += 1
        ratio = np.exp(np.minimum(log_ratio.astype(np.float64), 20.0))
        self.ratios.append((float(ratio.mean()), float(ratio.var())))
        if grouped:
            self.rewards.append(mean_squares(rollout))

    @property
    def clarity(self) -> float | None:
        """Intraclass correlation (MSB - MSW) / (MSB + (G - 1) MSW), in [0, 1]; None: unknown."""
        if not self.rewards:
            return None
        between, within, size = np.mean(list(self.rewards), axis=0)
        total = between + (size - 1.0) * within
        return float(np.clip((between - within) / total, 0.0, 1.0)) if total > 0.0 else None

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered."""
        return {
            "rollouts": self.rollouts,
            "ratios": [list(pair) for pair in self.ratios],
            "rewards": [list(triple) for triple in self.rewards],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.rollouts = int(state["rollouts"])
        for name in ("ratios", "rewards"):
            kept = getattr(self, name)
            kept.clear()
            kept.extend(tuple(entry) for entry in state[name])


def mean_squares(rollout: Rollout) -> tuple[float, float, float]:
    """Mean squares of the returns between and within groups, and episodes per group."""
    valid = rollout.mask
    returns = np.bincount(rollout.episode_id[valid], weights=rollout.reward[valid])
    group = np.asarray(rollout.group_of_episode)
    count = np.bincount(group)
    mean = np.bincount(group, weights=returns) / count
    within = ((returns - mean[group]) ** 2).sum() / max(1, len(group) - len(count))
    between = (count * (mean - returns.mean()) ** 2).sum() / max(1, len(count) - 1)
    return float(between), float(within), len(group) / len(count)


def _ends(clip: Clip, otherwise: float) -> Distances:
    low = clip.low * otherwise if clip.low_end is None else clip.low_end
    high = clip.high * otherwise if clip.high_end is None else clip.high_end
    return Distances(low, high)


def _between(start: Distances, end: Distances, share: float) -> Distances:
    low, high = ((1.0 - share) * a + share * b for a, b in zip(start, end, strict=True))
    return Distances(low, high)


def _fixed(clip: Clip, at: Distances, t: float, state: ClipState) -> Distances:
    return at


def _linear(clip: Clip, at: Distances, t: float, state: ClipState) -> Distances:
    return _between(at, _ends(clip, 0.0), t)


def _piecewise(clip: Clip, at: Distances, t: float, state: ClipState) -> Distances:
    share = min(1.0, max(0.0, (t - clip.hold) / (clip.until - clip.hold)))
    return _between(at, _ends(clip, 0.5), share)


def _sqrt(clip: Clip, at: Distances, t: float, state: ClipState) -> Distances:
    return at.times(math.sqrt(1.0 - t))


def _adaptive(clip: Clip, at: Distances, t: float, state: ClipState) -> Distances:
    seen = np.array([*state.ratios]).reshape(-1, 2)
    weight = len(seen) + _PRIOR
    shift = float((seen[:, 0] - 1.0).sum()) / weight
    pooled = float((seen[:, 1] + (seen[:, 0] - 1.0 - shift) ** 2).sum())

    def distance(start: float, sign: float) -> float:
        spread = math.sqrt((_PRIOR * (start / max(clip.gain, 1e-12)) ** 2 + pooled) / weight)
        return max(0.0, clip.gain * spread + sign * shift)

    return Distances(min(1.0, distance(at.low, -1.0)), distance(at.high, 1.0))


def _reward_noise(clip: Clip, at: Distances, t: float, state: ClipState) -> Distances:
    clarity = state.clarity
    return at if clarity is None else at.times(0.5 + clarity)


Rule = Callable[["Clip", Distances, float, ClipState], Distances]

PER_UPDATE: dict[str, Rule] = {
    "fixed": _fixed,
    "linear": _linear,
    "piecewise": _piecewise,
    "sqrt": _sqrt,
    "adaptive": _adaptive,
    "reward-noise": _reward_noise,
}
OFF = "off-for"
ENTROPY = "entropy"
BY_PROB = "by-prob"
PER_ELEMENT = (ENTROPY, BY_PROB)


def require_known(rules: Iterable[str]) -> None:
    """Refuse the name of a rule that is none.

    Raises:
        ValueError: With the nearest one.
    """
    known = [*PER_UPDATE, OFF, *PER_ELEMENT]
    for rule in rules:
        if rule not in known:
            near = difflib.get_close_matches(rule, known, n=1, cutoff=0.4)
            raise ValueError(
                f"clip.schedule must be {', '.join(known[:-1])} or {known[-1]}, or several joined "
                f"by +, got {rule!r}" + (f"; nearest: {near[0]}" if near else "")
            )
