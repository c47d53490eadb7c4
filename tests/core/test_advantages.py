"""Returns, GAE and group comparisons by hand, and what they refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import make_rollout
from closeness import close, identical

from redline.algorithms.core.advantages import (
    GAE,
    GroupRelative,
    RewardToGo,
    backward_scan,
    reward_to_go,
)
from redline.algorithms.core.types import Rollout

RNG = np.random.default_rng(0)

# Group 0: returns 1, 3; group 1: returns 10, 20, 60.
EPISODES = [[1.0, 0.0], [1.0, 2.0], [10.0, 0.0], [5.0, 15.0], [60.0, 0.0]]
LENGTHS = np.array([2, 2, 1, 2, 2])
GROUPS = np.array([0, 0, 1, 1, 1])


def grouped(reward: Any = EPISODES, lengths: Any = LENGTHS, groups: Any = GROUPS) -> Rollout:
    mask = np.arange(np.shape(reward)[1]) < np.asarray(lengths)[:, None]
    return make_rollout(reward, mask, group_of_episode=np.asarray(groups))


def advantage(rollout: Rollout, **settings: Any) -> Any:
    estimate = GroupRelative(**settings)(rollout, None, None)
    assert estimate.returns is None
    return estimate.advantage


def test_backward_scan() -> None:
    decay = np.array([[0.5, 0.0, 2.0, 9.0]])  # the last has nothing after it
    actual = backward_scan(np.array([[1.0, 2.0, 3.0, 4.0]]), decay)
    identical(actual, np.array([[2.0, 2.0, 11.0, 4.0]]))


def test_returns_end_with_their_episode_whatever_ends_it() -> None:
    reward = np.array([[1.0, 2.0, 4.0, 8.0, 1e6]])
    mask = np.array([[True, True, True, True, False]])
    end = np.array([[False, True, False, True, False]])
    actual = reward_to_go(reward=reward, mask=mask, end=end, gamma=0.5)
    identical(actual, np.array([[2.0, 2.0, 8.0, 8.0, 0.0]]))
    for flags in ({"terminated": end}, {"terminated": end & False, "truncated": end}):
        rollout = make_rollout(reward, mask, ends=end, **flags)
        identical(RewardToGo(0.5)(rollout, None, None).advantage, actual)


def test_scaling_divides_by_the_root_mean_square_and_never_centres() -> None:
    rollout = make_rollout([[3.0, 1e6], [-4.0, 1e6]], [[True, False], [True, False]])
    scaled = RewardToGo(1.0, scale=True)(rollout, None, None).advantage
    close(scaled, np.array([[3.0, 0.0], [-4.0, 0.0]]) / np.sqrt(12.5))
    nothing = make_rollout([[0.0, 0.0]])
    identical(RewardToGo(1.0, scale=True)(nothing, None, None).advantage, np.zeros((1, 2)))


def test_gae_between_its_two_limits() -> None:
    reward, value, after = RNG.normal(size=(3, 2, 6))
    rollout = make_rollout(reward)
    after[:, :-1] = value[:, 1:]
    one_step = GAE(0.9, 0.0)(rollout, value, after).advantage
    close(one_step, reward + 0.9 * np.where(rollout.terminated, 0.0, after) - value)
    whole = GAE(0.9, 1.0)(rollout, value, after)
    returns = RewardToGo(0.9)(rollout, None, None).advantage
    close(whole.advantage, returns - value, rtol=1e-11)
    assert whole.returns is not None
    close(whole.returns, returns, rtol=1e-11)


def test_gae_is_the_weighted_sum_of_deltas() -> None:
    gamma, lam = 0.9, 0.7
    reward, value, after = RNG.normal(size=(3, 1, 5))
    rollout = replace(make_rollout(reward), terminated=np.zeros((1, 5), dtype=bool))
    delta = (reward + gamma * after - value)[0]
    expected = [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, 5)) for t in range(5)]
    close(GAE(gamma, lam)(rollout, value, after).advantage[0], np.array(expected), rtol=1e-11)


def test_groups_are_compared_with_themselves() -> None:
    # Means 2 and 30; an episode's number stands at each of its elements.
    expected = np.array([[-1.0, -1.0], [1.0, 1.0], [-20.0, 0.0], [-10.0, -10.0], [30.0, 30.0]])
    close(advantage(grouped(), std=False), expected)
    spread = np.array([np.sqrt(2.0), np.sqrt(2.0)] + [np.sqrt(700.0)] * 3)  # n - 1
    close(advantage(grouped()), expected / (spread[:, None] + 1e-4))


def test_the_whole_batch_may_be_one_group() -> None:
    total = np.array([1.0, 3.0, 10.0, 20.0, 60.0]) - 18.8
    mask = grouped().mask
    close(advantage(grouped(), std=False, grouping="batch"), np.where(mask, total[:, None], 0.0))
    expected = total / (total.std(ddof=1) + 1e-4)
    close(advantage(grouped(), grouping="batch"), np.where(mask, expected[:, None], 0.0))


def test_the_return_inside_a_group_is_discounted() -> None:
    # 1 + 0.5 * 0 = 1 against 1 + 0.5 * 2 = 2.
    actual = advantage(grouped(), gamma=0.5, std=False)
    close(actual[:2], np.array([[-0.5, -0.5], [0.5, 0.5]]))


def test_returns_to_go_are_compared_at_the_same_step() -> None:
    # Group 0: (1, 3) and (0, 2). Group 1: (10, 20, 60) and, among the two alive, (15, 0).
    expected = np.array([[-1.0, -1.0], [1.0, 1.0], [-20.0, 0.0], [-10.0, 7.5], [30.0, -7.5]])
    close(advantage(grouped(), std=False, per="timestep"), expected)


def test_a_lone_survivor_gets_nothing() -> None:
    rollout = grouped([[1.0, 0.0, 0.0], [1.0, 5.0, 7.0]], [1, 3], [0, 0])
    actual = advantage(rollout, per="timestep")
    identical(actual[:, 1:], np.zeros((2, 2)))
    assert actual[1, 0] > 0.0 > actual[0, 0]


def test_several_episodes_in_a_row_are_told_apart() -> None:
    # Row 0 holds episodes 0 and 1, row 1 holds 2 and 3; groups are {0, 2} and {1, 3}.
    reward = [[1.0, 2.0, 5.0, 1e6], [4.0, 3.0, 4.0, 2.0]]
    mask = [[True, True, True, False], [True, True, True, True]]
    ends = [[False, True, True, False], [True, False, False, True]]
    rollout = make_rollout(reward, mask, ends=ends, group_of_episode=np.array([0, 1, 0, 1]))
    # Returns 3, 5, 4, 9.
    expected = np.array([[-0.5, -0.5, -2.0, 0.0], [0.5, 2.0, 2.0, 2.0]])
    close(advantage(rollout, std=False), expected)


@pytest.mark.parametrize("per", ["episode", "timestep"])
@pytest.mark.parametrize("std", [True, False])
def test_a_constant_added_to_the_rewards_of_a_group_changes_nothing(std: bool, per: Any) -> None:
    reward = RNG.normal(size=(6, 1))
    shift = np.array([5.0, 5.0, -3.0, -3.0, -3.0, -3.0])[:, None]
    lengths, groups = np.ones(6), np.array([0, 0, 1, 1, 1, 1])
    plain = advantage(grouped(reward, lengths, groups), std=std, per=per)
    moved = advantage(grouped(reward + shift, lengths, groups), std=std, per=per)
    close(moved, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"std": False}, {"per": "timestep"}])
def test_padding_is_inert(settings: Any) -> None:
    rollout = grouped()
    dirty = replace(rollout, reward=np.where(rollout.mask, rollout.reward, 1e6))
    actual = advantage(dirty, **settings)
    identical(actual, advantage(rollout, **settings))
    assert not actual[~rollout.mask].any()


def test_group_numbers_may_have_gaps() -> None:
    # As when a group was left out of the rollout.
    groups = np.where(GROUPS == 1, 3, GROUPS)
    identical(advantage(grouped(groups=groups)), advantage(grouped()))


@pytest.mark.parametrize("grouping", ["start", "batch"])
def test_an_episode_without_company_is_refused(grouping: Any) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        advantage(grouped([[1.0]], [1], [0]), grouping=grouping)


def test_which_estimators_need_a_critic_or_whole_episodes() -> None:
    assert GAE(0.9, 0.9).needs_critic and not GAE(0.9, 0.9).needs_whole_episodes
    for estimator in (RewardToGo(0.9), GroupRelative()):
        assert not estimator.needs_critic and estimator.needs_whole_episodes
