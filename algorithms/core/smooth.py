"""Smooth advantage standardisation: an episode against all that its prompt has ever earned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.algorithms.core.advantages import Estimate
from redline.algorithms.core.types import Array, Rollout

_EPS = 1e-4


@dataclass(frozen=True)
class SmoothGroupRelative:
    """DCPO's advantage (arXiv:2509.02333 Eq. 11-13) of the i-th visit of a prompt.

    With A_new = (R - mean) / std over this group, and A_tot the same over all rewards that the
    prompt has earned, this group's included (std of n, plus 1e-4):

        SA_new = ((i - 1) A_new + A_tot) / i,   SA_tot = (A_new + (i - 1) A_tot) / i

    and A is the one that is nearer to 0. A group whose rewards are all equal has A = A_tot / i:
    it still teaches what the prompt's former visits tell. At the first visit A_tot = A_new.

    Attributes:
        gamma: Discount inside the return.
    """

    gamma: float = 1.0
    needs_critic = False
    needs_whole_episodes = True

    def bind(self) -> SmoothEstimator:
        """The estimator of one run."""
        return SmoothEstimator(self.gamma)

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        """As at the first visit of every prompt."""
        return self.bind()(rollout, value, next_value)


class SmoothEstimator:
    """Keeps count, mean and variance of the returns of every start; part of a checkpoint.

    Args:
        gamma: Discount inside the return.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        # Of every start: visits, returns, their mean and their variance (of n).
        self._seen: dict[str, tuple[int, int, float, float]] = {}

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        """[B, T], the same for all elements of an episode.

        Raises:
            ValueError: The rollout does not say what its groups start from.
        """
        returns = _episode_returns(rollout, self._gamma)
        group = np.asarray(rollout.group_of_episode)
        if len(rollout.start_of_group) != group.max() + 1:
            raise ValueError(
                "smooth standardisation needs to know what every group starts from: "
                f"{len(rollout.start_of_group)} starts for {group.max() + 1} groups"
            )
        advantage = np.zeros_like(returns)
        for number, start in enumerate(rollout.start_of_group):
            members = group == number
            advantage[members] = self._advantage(str(start), returns[members])
        return Estimate(np.where(rollout.mask, advantage[rollout.episode_id], 0.0), None)

    def _advantage(self, start: str, returns: Array) -> Array:
        visits, count, mean, variance = self._seen.get(start, (0, 0, 0.0, 0.0))
        new_mean, new_variance = float(returns.mean()), float(returns.var())
        total = count + len(returns)
        share = len(returns) / total
        both_mean = mean + share * (new_mean - mean)
        both_variance = (
            share * new_variance
            + (1.0 - share) * variance
            + share * (1.0 - share) * (new_mean - mean) ** 2
        )
        i = visits + 1
        self._seen[start] = (i, total, both_mean, both_variance)
        return smooth_advantage(
            (returns - new_mean) / (new_variance**0.5 + _EPS),
            (returns - both_mean) / (both_variance**0.5 + _EPS),
            i,
        )

    def state_dict(self) -> dict[str, Any]:
        """What is known of every start."""
        return {start: list(known) for start, known in self._seen.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._seen = {
            start: (int(known[0]), int(known[1]), float(known[2]), float(known[3]))
            for start, known in state.items()
        }


def smooth_advantage(new: Array, total: Array, visit: int) -> Array:
    """The one of SA_new and SA_tot that is nearer to 0, at the `visit`-th visit (from 1)."""
    by_new = ((visit - 1) * new + total) / visit
    by_total = (new + (visit - 1) * total) / visit
    return np.where(abs(by_new) < abs(by_total), by_new, by_total)


def _episode_returns(rollout: Rollout, gamma: float) -> Array:
    """[E] discounted returns from the first elements."""
    valid = rollout.mask
    episode, reward = rollout.episode_id[valid], rollout.reward[valid]
    start = np.full(len(rollout.group_of_episode), episode.size)
    np.minimum.at(start, episode, np.arange(episode.size))
    weight = gamma ** (np.arange(episode.size) - start[episode])
    return np.bincount(episode, weights=weight * reward)
