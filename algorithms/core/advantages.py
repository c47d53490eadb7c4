"""Advantage estimators: Rollout -> advantage [B, T] (and regression targets for a critic)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from redline.algorithms.core.types import Array, Rollout


class Estimate(NamedTuple):
    """Advantages, and targets for V where the method has a critic; 0 where masked."""

    advantage: Array
    returns: Array | None


class Advantage(Protocol):
    """An estimator; `needs_critic` says whether values are passed."""

    @property
    def needs_critic(self) -> bool:
        """Values must be given."""

    @property
    def needs_whole_episodes(self) -> bool:
        """Cut episodes are refused."""

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        """Estimate from a rollout; `value`, `next_value` are [B, T] or None without a critic."""


class Estimator(Protocol):
    """An advantage of one run, which may remember former rollouts."""

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        """As `Advantage`."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


class _Forgetful:
    """An advantage that depends on its rollout alone."""

    def __init__(self, advantage: Advantage) -> None:
        self._advantage = advantage

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        return self._advantage(rollout, value, next_value)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def bound(advantage: Advantage) -> Estimator:
    """The estimator of one run: what `bind()` gives, where the advantage has a memory."""
    bind: Callable[[], Estimator] | None = getattr(advantage, "bind", None)
    return _Forgetful(advantage) if bind is None else bind()


def backward_scan(value: Array, decay: Array) -> Array:
    """y_t = x_t + decay_t * y_{t+1} along the last axis, in float64."""
    result = np.empty(value.shape)
    for row, (xs, ds) in enumerate(zip(value.tolist(), decay.tolist(), strict=True)):
        running = 0.0
        # Plain floats: numpy's per-call overhead on B numbers is larger than this whole loop.
        for t in range(len(xs) - 1, -1, -1):
            running = xs[t] + ds[t] * running
            xs[t] = running
        result[row] = xs
    return result


def reward_to_go(*, reward: Array, mask: Array, end: Array, gamma: float) -> Array:
    """G_t = r_t + gamma G_{t+1} within each episode, [B, T].

    The factor gamma^t of the textbook policy gradient is left out, as is usual.

    Args:
        reward: [B, T].
        mask: True where an element counts.
        end: True on the last element of an episode.
        gamma: Discount in [0, 1].
    """
    return backward_scan(np.where(mask, reward, 0.0), gamma * (mask & ~end))


def generalised_advantage(
    *,
    reward: Array,
    value: Array,
    next_value: Array,
    mask: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
) -> Array:
    """GAE (arXiv:1506.02438 Eq. 16), [B, T].

    delta_t = r_t + gamma V(s_{t+1}) (1 - terminated_t) - V(s_t)
    A_t = delta_t + gamma lam (1 - terminated_t or truncated_t) A_{t+1}

    A time limit is not an end state: it cuts the sum but bootstraps through `next_value`, which
    must be the value of the episode's own final observation. Where both flags are set the state
    is an end state.
    """
    bootstrap = np.where(terminated, 0.0, next_value)
    delta = np.where(mask, reward + gamma * bootstrap - value, 0.0)
    return backward_scan(delta, gamma * lam * (mask & ~(terminated | truncated)))


@dataclass(frozen=True)
class RewardToGo:
    """A_t = G_t, optionally divided by the root mean square of the batch; never centred.

    Attributes:
        gamma: Discount.
        scale: Divide by sqrt(mean G^2), so that the learning rate does not depend on the reward's
            unit. A positive scale leaves the gradient's direction alone.
    """

    gamma: float
    scale: bool = False
    needs_critic = False
    needs_whole_episodes = True

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        mask = rollout.mask
        returns = reward_to_go(
            reward=rollout.reward,
            mask=mask,
            end=rollout.terminated | rollout.truncated,
            gamma=self.gamma,
        )
        if self.scale:
            valid = returns[mask]
            root_mean_square = float(np.sqrt(valid @ valid / max(1, valid.size)))
            returns = returns / root_mean_square if root_mean_square > 0.0 else returns
        return Estimate(returns, None)


@dataclass(frozen=True)
class GAE:
    """Generalised advantage estimation with targets A + V for the critic."""

    gamma: float
    lam: float
    needs_critic = True
    needs_whole_episodes = False

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        assert value is not None and next_value is not None
        advantage = generalised_advantage(
            reward=rollout.reward,
            value=value,
            next_value=next_value,
            mask=rollout.mask,
            terminated=rollout.terminated,
            truncated=rollout.truncated,
            gamma=self.gamma,
            lam=self.lam,
        )
        return Estimate(advantage, np.where(rollout.mask, advantage + value, 0.0))


def group_relative(
    value: Array,
    group: Array,
    *,
    std: bool = True,
    leave_one_out: bool = False,
    eps: float = 1e-4,
    ddof: int = 1,
) -> Array:
    """(x - mean) / (std + eps) within each group (arXiv:2402.03300; no std: arXiv:2503.20783).

    Args:
        value: [E] one number per member.
        group: [E] group of every member, counted from 0.
        std: Divide by the standard deviation.
        leave_one_out: The mean is that of the other members: n / (n - 1) times as much
            (RLOO, arXiv:2402.14740).
        eps: Added to the standard deviation.
        ddof: 1 for n - 1 (as TRL), 0 for n. A group of one has no spread and gets 0.
    """
    value = np.asarray(value, dtype=np.float64)
    count = np.bincount(group)
    mean = np.bincount(group, weights=value) / np.maximum(count, 1)
    centred = value - mean[group]
    if leave_one_out:
        centred = centred * (count / np.maximum(count - 1, 1))[group]
    if not std:
        return centred
    variance = np.bincount(group, weights=(value - mean[group]) ** 2) / np.maximum(count - ddof, 1)
    return centred / (np.sqrt(variance)[group] + eps)


@dataclass(frozen=True)
class GroupRelative:
    """An episode's return against the other episodes of its group; no critic.

    Attributes:
        gamma: Discount inside the return.
        std: Divide by the group's standard deviation (n - 1).
        grouping: "start": episodes that share the initial state (or prompt) are compared;
            "batch": all episodes of the rollout are one group.
        per: "episode": one number for all elements of an episode; "timestep": returns-to-go are
            compared among the members that are alive at the same t (a lone survivor gets 0).
        leave_one_out: Compare with the mean of the others (RLOO).

    Raises:
        ValueError: A group has fewer than two members, or an episode is cut.
    """

    gamma: float = 1.0
    std: bool = True
    grouping: Literal["start", "batch"] = "start"
    per: Literal["episode", "timestep"] = "episode"
    leave_one_out: bool = False
    needs_critic = False
    needs_whole_episodes = True

    def __call__(self, rollout: Rollout, value: Array | None, next_value: Array | None) -> Estimate:
        mask, episode = rollout.mask, rollout.episode_id[rollout.mask]
        group = np.asarray(rollout.group_of_episode)
        if self.grouping == "batch":
            group = np.zeros_like(group)
        if np.bincount(group)[group].min() < 2:
            raise ValueError("a group needs at least 2 episodes to compare, got a group of 1")
        returns = reward_to_go(
            reward=rollout.reward,
            mask=mask,
            end=rollout.terminated | rollout.truncated,
            gamma=self.gamma,
        )[mask]
        start = np.full(len(group), episode.size)
        np.minimum.at(start, episode, np.arange(episode.size))
        advantage = np.zeros(mask.shape)
        if self.per == "episode":
            advantage[mask] = self._compared(returns[start], group)[episode]
        else:
            timestep = np.arange(episode.size) - start[episode]
            cell = group[episode] * (timestep.max() + 1) + timestep
            advantage[mask] = self._compared(returns, cell)
        return Estimate(advantage, None)

    def _compared(self, value: Array, group: Array) -> Array:
        return group_relative(value, group, std=self.std, leave_one_out=self.leave_one_out)
