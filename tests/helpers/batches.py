"""Random inputs: elements [B, T], policies in float64, and batches of theirs."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from redline.algorithms import registry
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.distributions import Categorical, Distribution, MultiCategorical
from redline.algorithms.core.gaussians import DiagGaussian, TanhGaussian
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, Progress, Rollout
from redline.envs.policies import MLPPolicy

START = Progress(0, 100)

AGGREGATES = {
    "token_mean": Aggregate("token_mean"),
    "seq_mean": Aggregate("seq_mean"),
    "seq_sum": Aggregate("seq_sum"),
    "fixed_length": Aggregate("fixed_length", length=10),
    "group_sum": Aggregate("group_sum", group_size=4),
}

DISTRIBUTIONS: dict[str, Distribution] = {
    "categorical": Categorical(4),
    "multi_categorical": MultiCategorical((2, 3)),
    "gaussian": DiagGaussian(2),
    "squashed": TanhGaussian((0.5, 2.0)),
}


class Elements(NamedTuple):
    """The arrays that a surrogate sees, all [B, T]."""

    log_prob: Any
    old_log_prob: Any
    advantage: Any
    mask: Any


def elements(seed: int, shape: tuple[int, int] = (6, 9)) -> Elements:
    """Ratios between about 0.1 and 10, both signs of A, one full and one fully masked row."""
    rng = np.random.default_rng(seed)
    old_log_prob = rng.normal(-1.0, 0.5, shape)
    mask = rng.random(shape) < 0.6
    mask[0], mask[1] = True, False
    return Elements(
        log_prob=old_log_prob + rng.normal(0.0, 0.8, shape),
        old_log_prob=old_log_prob,
        advantage=rng.normal(0.0, 1.0, shape),
        mask=mask,
    )


def algorithm(name: str) -> Algorithm:
    """The recipe `name` with its defaults."""
    built: Algorithm = registry.get(name)().build()
    return built


def bounds_of(method: Algorithm) -> tuple[float, float] | None:
    """The bounds in force at the start of a run."""
    return method.clip.bounds(START) if method.clip is not None else None


def objective_of(method: Algorithm, penalties: Penalties | None = None) -> Objective:
    """The objective of one update at the start of a run, its advantages taken as they are."""
    return Objective(
        surrogate=method.surrogate,
        aggregate=method.aggregate,
        penalties=method.penalties if penalties is None else penalties,
        bounds=bounds_of(method),
        standardise=False,
    )


def make_policy(
    distribution: Distribution, activation: Any = "tanh", seed: int = 0, spread: float = 0.3
) -> MLPPolicy:
    """A float64 policy on 3 numbers whose outputs vary from state to state."""
    rng = np.random.default_rng(seed)
    policy = MLPPolicy(3, distribution, (7, 5), activation, rng, dtype=np.float64)
    policy.parameters += rng.normal(0.0, spread, policy.parameters.shape)
    return policy


def moved(policy: MLPPolicy, batch: Batch, by: float, seed: int) -> Any:
    """How `policy` would evaluate `batch` with parameters a random step away."""
    start = policy.snapshot()
    step = np.random.default_rng(seed).normal(0.0, by, start.shape)
    policy.restore(start + step)
    evaluation = policy.evaluate(batch)
    policy.restore(start)
    return evaluation


def make_batch(
    policy: MLPPolicy, shape: tuple[int, ...] = (5, 8), seed: int = 1, by: float = 0.2
) -> Batch:
    """Actions of `policy`; pi_old and the reference policy lie random steps `by` away (0: none)."""
    rng = np.random.default_rng(seed)
    observation = rng.normal(0.0, 1.0, (*shape, 3))
    action = policy.act(observation.reshape(-1, 3), rng)
    action = action.reshape(*shape, *action.shape[1:])
    mask = rng.random(shape) < 0.7 if len(shape) > 1 else np.ones(shape, dtype=bool)
    advantage = rng.normal(0.0, 1.0, shape)
    batch = Batch(observation, action, advantage, advantage, mask)
    old = moved(policy, batch, by, seed + 1)
    anchor = moved(policy, batch, by, seed + 2)
    return Batch(observation, action, old.log_prob, advantage, mask, old.params, anchor.log_prob)


def make_rollout(reward: Any, mask: Any = None, *, ends: Any = None, **fields: Any) -> Rollout:
    """Rows of `reward`; by default every row is one episode that terminates at its last element.

    Args:
        reward: [B, T].
        mask: [B, T], all True by default; valid elements come first in a row.
        ends: [B, T] True on the last element of every episode, for several episodes in a row.
        fields: Other values for the fields of `Rollout`.
    """
    reward = np.asarray(reward, dtype=np.float64)
    mask = np.ones(reward.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if ends is None:
        ends = mask & ~np.pad(mask, ((0, 0), (0, 1)))[:, 1:]
    ends = np.asarray(ends, dtype=bool)
    number = np.zeros(mask.size, dtype=int)
    number[1:] = np.cumsum((ends & mask).ravel())[:-1]
    episode_id = np.where(mask, number.reshape(mask.shape), -1)
    defaults = {
        "observation": np.zeros((*mask.shape, 3)),
        "action": np.zeros(mask.shape, dtype=int),
        "terminated": ends,
        "truncated": np.zeros_like(ends),
        "group_of_episode": np.arange(int(ends.sum())),
        "bootstrap": None,
        "whole_episodes": True,
        "steps": int(mask.sum()),
    }
    return Rollout(reward=reward, mask=mask, episode_id=episode_id, **(defaults | fields))


def mixture_start(space: str, rows: int = 400, seed: int = 0) -> tuple[MixturePolicy, Batch]:
    """One policy, and on-policy elements whose advantage depends on state and action."""
    policy = make_policy(DISTRIBUTIONS[space], seed=seed)
    batch = make_batch(policy, shape=(rows,), seed=seed + 1, by=0.0)
    action = batch.action if batch.action.ndim > 1 else batch.action[:, None]
    signal = np.sign(batch.observation[:, 0]) * np.sign(action[:, 0] - 0.5)
    return MixturePolicy([policy]), replace(batch, advantage=signal - signal.mean())
