"""REINFORCE with a group's mean, with a critic, and as A2C, against what they are by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import (
    DISTRIBUTIONS,
    algorithm,
    make_batch,
    make_policy,
    make_rollout,
    objective_of,
)
from closeness import close
from torch_reference import reference

from redline.algorithms.core.types import Bootstrap, Need
from redline.algorithms.reinforce_baseline import ReinforceBaseline
from redline.algorithms.reinforce_group import ReinforceGroup
from redline.benchmark.arguments import resolve

REWARD = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0], [5.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
GROUPS = np.array([0, 0, 1, 1])  # returns 3 and 1, 5 and 3


@pytest.mark.parametrize(
    ("std", "advantage"), [(False, [1.0, -1.0, 1.0, -1.0]), (True, [0.5**0.5, -(0.5**0.5)] * 2)]
)
@pytest.mark.parametrize("space", ["categorical", "multi_categorical", "gaussian"])
def test_a_group_step_is_the_gradient_of_mean_a_log_pi(
    space: str, std: bool, advantage: list[float]
) -> None:
    method = ReinforceGroup(std=std).build()
    rollout = make_rollout(REWARD, group_of_episode=GROUPS)
    estimate = method.advantage(rollout, None, None)
    expected = np.repeat(np.array(advantage)[:, None], 3, axis=1)
    close(estimate.advantage, expected, rtol=1e-3 if std else 1e-12)  # std + 1e-8

    policy = make_policy(DISTRIBUTIONS[space])
    batch = make_batch(policy, shape=(12,), by=0.0).with_advantage(estimate.advantage.reshape(-1))
    objective_of(method).gradient(policy, batch)
    flat = torch.tensor(policy.parameters).requires_grad_(True)
    log_prob = reference(policy, flat, batch.observation).log_prob(torch.tensor(batch.action))
    (gradient,) = torch.autograd.grad((torch.tensor(batch.advantage) * log_prob).mean(), flat)
    close(policy.gradient_buffer, gradient, rtol=1e-9, atol=1e-12)
    assert method.clip is None and method.need == Need(groups=2, group_size=8)
    assert not method.needs_critic


def test_the_baseline_is_taken_from_the_return() -> None:
    method = ReinforceBaseline(gamma=0.5).build()
    assert method.need == Need(groups=8)
    value = np.array([[0.3, -0.2, 0.1]])
    after = np.array([[-0.2, 0.1, 0.0]])
    estimate = method.advantage(make_rollout([[1.0, 2.0, 4.0]]), value, after)
    returns = np.array([[1.0 + 0.5 * 2.0 + 0.25 * 4.0, 2.0 + 0.5 * 4.0, 4.0]])
    close(estimate.advantage, returns - value)
    close(estimate.returns, returns)


def a2c(*flags: str) -> Any:
    resolved = resolve("reinforce_baseline", ["--task", "Pendulum-v1", *flags])
    return resolved.recipe.build()


def test_a2c_on_the_command_line() -> None:
    method = a2c("--episodes", "none", "--n-steps", "5", "--gamma", "0.5")
    assert method.need == Need(steps=5) and method.advantage.lam == 1.0
    assert method.update.epochs == 1 and method.update.minibatch_size is None
    # Five steps of one environment: the fourth ends an episode, the fifth is cut and bootstraps.
    reward = [[1.0, 2.0, 0.0, 4.0, 8.0]]
    ends = [[False, False, False, True, False]]
    last = Bootstrap(np.array([0]), np.array([4]), np.zeros((1, 3)))
    rollout = make_rollout(
        reward, ends=ends, bootstrap=last, whole_episodes=False, group_of_episode=np.zeros(1)
    )
    value = np.array([[0.1, 0.2, 0.3, 0.4, 0.5]])
    after = np.array([[0.2, 0.3, 0.4, 0.0, 6.0]])
    advantage = method.advantage(rollout, value, after).advantage
    expected = [
        1.0 + 0.5 * 2.0 + 0.125 * 4.0 - 0.1,
        2.0 + 0.25 * 4.0 - 0.2,
        0.5 * 4.0 - 0.3,
        4.0 - 0.4,
        8.0 + 0.5 * 6.0 - 0.5,
    ]
    close(advantage, [expected])
    one = a2c("--episodes", "none", "--n-steps", "5", "--gae-lambda", "0", "--gamma", "0.5")
    close(
        one.advantage(rollout, value, after).advantage,
        np.array(reward) + 0.5 * after - value,
    )


def test_both_take_one_unclipped_step() -> None:
    for name in ("reinforce_group", "reinforce_baseline"):
        method = algorithm(name)
        weights = method.surrogate.weights(
            np,
            log_prob=np.array([[-0.5]]),
            old_log_prob=np.array([[-3.0]]),
            advantage=np.array([[2.0]]),
            mask=np.array([[True]]),
            bounds=None,
        )
        assert weights.w == 2.0 and weights.keep.all()
