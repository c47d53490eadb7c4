"""Advantages as public reports describe them going wrong, with values worked by hand."""

from typing import Any

import numpy as np
import pytest
from batches import make_rollout
from closeness import close, identical

from redline.algorithms.core.advantages import (
    GAE,
    GroupRelative,
    RewardToGo,
    generalised_advantage,
    group_relative,
)
from redline.algorithms.core.masked import standardise
from redline.algorithms.grpo import GRPO

# Two episodes in one row: the first ends at index 2, the second goes on after index 3.
REWARD = np.array([[1.0, 1.0, 2.0, 1.0]])
VALUE = np.array([[3.0, 4.0, 5.0, 10.0]])
AT_2 = np.array([[False, False, True, False]])
NEVER = np.zeros((1, 4), dtype=bool)


def gae(*, next_value: Any, terminated: Any, truncated: Any) -> Any:
    return generalised_advantage(
        reward=REWARD,
        value=VALUE,
        next_value=np.array([next_value]),
        mask=np.ones((1, 4), dtype=bool),
        terminated=terminated,
        truncated=truncated,
        gamma=0.9,
        lam=0.8,
    )


def test_case_1_a_time_limit_bootstraps_from_the_final_observation() -> None:
    # DLR-RM/stable-baselines3#633: d2 = 2 + 0.9 * 6 - 5 = 2.4, A1 = 1.5 + 0.72 * 2.4,
    # A0 = 1.6 + 0.72 * 3.228, d3 = 1 + 0.9 * 7 - 10.
    actual = gae(next_value=[4.0, 5.0, 6.0, 7.0], terminated=NEVER, truncated=AT_2)
    close(actual, np.array([[3.92416, 3.228, 2.4, -2.7]]))


def test_case_1_an_end_state_is_worth_nothing() -> None:
    # d2 = 2 - 5 = -3; the value of the observation after the reset must not matter.
    for after in (0.0, 10.0, 1e6):
        actual = gae(next_value=[4.0, 5.0, after, 7.0], terminated=AT_2, truncated=NEVER)
        close(actual, np.array([[1.1248, -0.66, -3.0, -2.7]]))


def test_case_1_termination_wins_over_a_time_limit() -> None:
    one, yes = np.ones((1, 1)), np.ones((1, 1), dtype=bool)
    rollout = make_rollout(one, terminated=yes, truncated=yes)
    estimate = GAE(0.99, 0.95)(rollout, 10.0 * one, 50.0 * one)
    close(estimate.advantage, -9.0 * one)
    close(estimate.returns, one)


def test_case_6_a_last_minibatch_of_one_and_equal_advantages() -> None:
    # DLR-RM/stable-baselines3#325, #440.
    identical(standardise(np.full(4, 2.0)), np.zeros(4))
    identical(standardise(np.array([7.0])), np.array([7.0]))
    identical(standardise(np.full(3, 2.0, np.float32)), np.zeros(3, np.float32))
    identical(standardise(np.full(7, 0.1, np.float32)), np.zeros(7, np.float32))


def test_case_13_the_return_from_each_step() -> None:
    # udacity/deep-reinforcement-learning#42; no factor gamma^t is applied.
    returns = RewardToGo(0.5)(make_rollout([[1.0, 2.0, 4.0]]), None, None).advantage
    identical(returns, np.array([[3.0, 4.0, 4.0]]))
    loss = -returns * np.array([[-1.0, -2.0, -3.0]])
    close(loss.sum(), 23.0)
    close(loss.mean(), 7.666667, rtol=1e-6)


ONE_GROUP = {
    "n - 1": ({}, [1.0, 0.0, 0.0, 0.0], [1.499700, -0.499900, -0.499900, -0.499900]),
    "n": ({"ddof": 0}, [1.0, 0.0, 0.0, 0.0], [1.731651, -0.577217, -0.577217, -0.577217]),
    "no std": ({"std": False}, [1.0, 0.0, 0.0, 0.0], [0.75, -0.25, -0.25, -0.25]),
    "small spread": ({}, [0.3] * 7 + [0.9], [-0.353387] * 7 + [2.473708]),
    "tiny spread": ({"eps": 1e-6}, [1.0, 1.00002], [-0.660409, 0.660409]),
}


@pytest.mark.parametrize("case", ONE_GROUP)
def test_case_20_group_advantages(case: str) -> None:
    # huggingface/trl#2858; 1e-4 is added to the standard deviation unless said.
    settings, reward, expected = ONE_GROUP[case]
    actual = group_relative(np.array(reward), np.zeros(len(reward), dtype=int), **settings)
    close(actual, np.array(expected), rtol=2e-6)


@pytest.mark.parametrize(
    "reward",
    [np.ones(4), np.full(8, 0.35, np.float32), np.full(6, 0.7, np.float32), np.full(6, 0.7)],
)
def test_case_20_equal_rewards_say_nothing(reward: Any) -> None:
    actual = group_relative(reward, np.zeros(len(reward), dtype=int))
    close(actual, np.zeros(len(reward)), atol=1e-11)


def test_case_20_a_group_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="group_size must be at least 2"):
        GRPO(group_size=1)
    rollout = make_rollout([[1.0], [2.0], [3.0]], group_of_episode=np.array([0, 0, 1]))
    with pytest.raises(ValueError, match="at least 2 episodes"):
        GroupRelative()(rollout, None, None)


def test_case_32_padding_stays_out_of_the_moments() -> None:
    # NovaSky-AI/SkyRL#1305: mean 2 (34.7 with the padding); n - 1 gives the spread sqrt(2).
    mask = np.array([[True, True, False]])
    actual = standardise(np.array([[1.0, 3.0, 100.0]]), mask)
    close(actual, np.array([[-1.0, 1.0, 0.0]]) / np.sqrt(2.0), rtol=1e-7)


@pytest.mark.parametrize("padding", [50.0, 1e6, np.nan])
def test_case_32_padding_stays_out_of_token_advantages(padding: float) -> None:
    # d1 = 2 - 1, d0 = 0 + 1 - 0.5; A0 = 0.5 + 0.9.
    ends = np.array([[False, True, False]])
    mask = np.array([[True, True, False]])
    rollout = make_rollout([[0.0, 2.0, padding]], mask, terminated=ends)
    value = np.array([[0.5, 1.0, padding]])
    estimate = GAE(1.0, 0.9)(rollout, value, np.array([[1.0, padding, padding]]))
    close(estimate.advantage, np.array([[1.4, 1.0, 0.0]]))
    close(estimate.returns, np.array([[1.9, 2.0, 0.0]]))
