"""The value function of a run: its scale, and advantages estimated anew between passes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import START, make_rollout
from closeness import close, identical
from small import small

from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Rollout
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.core.value import ValueFunction
from redline.envs.policies import MLPCritic, MLPPolicy


def make_critic(seed: int = 0) -> MLPCritic:
    return MLPCritic(3, (5,), "tanh", np.random.default_rng(seed), dtype=np.float64)


def rollout(seed: int = 0, scale: float = 1.0) -> Rollout:
    rng = np.random.default_rng(seed)
    shape = (3, 8)
    return make_rollout(
        scale * rng.normal(size=shape),
        observation=rng.normal(size=(*shape, 3)),
        action=rng.integers(0, 2, shape),
    )


def test_the_scale_is_the_std_of_all_returns_so_far() -> None:
    value = ValueFunction(make_critic(), CriticFit(scale_returns=True))
    assert value.scale == 1.0
    parts = [np.random.default_rng(k).normal(50.0, 7.0, (2, 5)) for k in range(3)]
    mask = np.array([[True] * 5, [True, True, False, False, False]])
    for part in parts:
        value.observe(np.where(mask, part, 1e9), mask)
    close(value.scale, np.concatenate([part[mask] for part in parts]).std(), rtol=1e-8)
    plain = ValueFunction(make_critic(), CriticFit())
    plain.observe(parts[0], mask)
    assert plain.scale == 1.0


def test_values_are_in_units_of_reward_whatever_the_critic_predicts() -> None:
    data, critic = rollout(), make_critic()
    value = ValueFunction(critic, CriticFit(scale_returns=True))
    predicted = critic.values(data.observation, data.mask)
    value.observe(np.where(data.mask, [[-6.0, 6.0] * 4] * 3, 0.0), data.mask)
    now, after = value(data)
    close(now, 6.0 * predicted, rtol=1e-8)
    close(after[:, :-1], 6.0 * predicted[:, 1:], rtol=1e-8)


def test_the_critic_is_fitted_to_scaled_targets() -> None:
    data = rollout()
    returns = np.where(data.mask, [[-6.0, 6.0] * 4] * 3, 0.0)
    value = ValueFunction(make_critic(), CriticFit(lr=0.05, scale_returns=True, epochs=1))
    value.observe(returns, data.mask)
    metrics = value.fit(data, returns, START, np.random.default_rng(1), epochs=400)
    assert metrics["train/value_loss"] < 1.0  # of targets +-1; unscaled ones begin at 36
    by_hand = ValueFunction(make_critic(), CriticFit(lr=0.05, epochs=1))
    by_hand.fit(data, returns / value.scale, START, np.random.default_rng(1), epochs=400)
    identical(value.critic.parameters, by_hand.critic.parameters)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_restored_value_function_predicts_the_same(scaled: bool) -> None:
    data, settings = rollout(), CriticFit(scale_returns=scaled)
    value, fresh = ValueFunction(make_critic(), settings), ValueFunction(make_critic(9), settings)
    value.observe(data.reward, data.mask)
    value.fit(data, data.reward, START, np.random.default_rng(1), epochs=2)
    fresh.load_state_dict(value.state_dict())
    for one, other in zip(value(data), fresh(data), strict=True):
        identical(one, other)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_scaled_returns_learn_alike_whatever_the_unit_of_reward(scale: float) -> None:
    """The first critic is 0 before any fit only in the limit, so from the second update on."""
    algorithm = small("ppo", scale_returns=True, minibatch_size=24, standardise_advantage=True)
    losses = []
    learner = make_learner(algorithm)
    for seed in range(6):
        losses.append(learner.update(rollout(seed, scale), START)["train/value_loss"])
    assert 0.1 < losses[-1] < 3.0


def make_learner(algorithm: Any) -> Learner:
    policy = MLPPolicy(3, Categorical(2), (5,), "tanh", np.random.default_rng(3), dtype=np.float64)
    return Learner(algorithm, policy, make_critic(), np.random.default_rng(4))


@pytest.mark.parametrize("standardise", ["none", "batch"])
def test_advantages_are_estimated_anew_between_passes(standardise: Any) -> None:
    data = rollout()
    algorithm = small("ppo", epochs=3, critic_epochs=None, lr=1e-2, recompute_advantage=True)
    assert isinstance(algorithm.update, FirstOrder)
    algorithm = replace(
        algorithm,
        standardise=standardise,
        update=replace(algorithm.update, minibatch_size=None),
        critic=replace(algorithm.critic, minibatch_size=None),
    )
    learner = make_learner(algorithm)
    metrics = learner.update(data, START)
    assert metrics["train/n_updates"] == 3.0

    once = replace(
        algorithm,
        recompute_advantage=False,
        update=replace(algorithm.update, epochs=1),
        critic=replace(algorithm.critic, epochs=1),
    )
    by_hand = make_learner(once)
    old = None
    for _ in range(3):
        # The ratio stays the one to the policy that collected.
        held = data if old is None else replace(data, log_prob=old)
        if old is None:
            flat, _ = by_hand._batch(data, data.reward)
            old = flat.old_log_prob.reshape(data.mask.shape)
        by_hand.update(held, START)
    close(learner.policy.parameters, by_hand.policy.parameters, rtol=1e-9, atol=1e-12)
    assert learner.critic is not None and by_hand.critic is not None
    identical(learner.critic.parameters, by_hand.critic.parameters)

    plain = make_learner(replace(algorithm, recompute_advantage=False))
    plain.update(data, START)
    assert np.abs(plain.policy.parameters - learner.policy.parameters).max() > 1e-6


def test_the_critic_makes_all_its_passes_when_the_policy_stops_early() -> None:
    data, fitted = rollout(), []

    class Counting(ValueFunction):
        def fit(self, *arguments: Any, epochs: int) -> Any:
            fitted.append(epochs)
            return super().fit(*arguments, epochs=epochs)

    algorithm = small(
        "ppo",
        epochs=5,
        critic_epochs=None,
        lr=0.5,
        target_kl=1e-6,
        recompute_advantage=True,
    )
    learner = make_learner(algorithm)
    learner.value = Counting(make_critic(), algorithm.critic)
    assert learner.update(data, START)["train/stopped_early"] == 1.0
    assert sum(fitted) == 5


def test_a_critic_is_fitted_every_few_rollouts_and_at_once_where_it_lags() -> None:
    value = ValueFunction(make_critic(), CriticFit(every=3))
    mask, zeros = np.ones((1, 4), dtype=bool), np.zeros((1, 4))
    fitted = []
    for error in (1.0, 1.9, 1.9, 0.5, 2.1, 1.0):
        value.judge(zeros + np.sqrt(error), zeros, mask)
        fitted.append(value.due)
        value.rounds += 1
    assert fitted == [True, False, False, True, True, False]
    other = ValueFunction(make_critic(), CriticFit(every=3))
    other.load_state_dict(value.state_dict())
    other.judge(zeros + 1.5, zeros, mask)  # 2.25 times the first
    assert other.due and other.rounds == 6


def test_a_learner_fits_a_critic_that_lags() -> None:
    learner = make_learner(small("ppo", critic_every=5, minibatch_size=24))
    assert learner.value is not None
    before = []
    for scale in (1.0, 1.0, 10.0):
        before.append(learner.value.critic.snapshot())
        learner.update(rollout(scale=scale), START)
    after = learner.value.critic.snapshot()
    identical(before[1], before[2])
    assert (before[0] != before[1]).any() and (before[2] != after).any()
