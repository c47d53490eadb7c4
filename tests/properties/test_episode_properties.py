"""Returns, advantages and rows of episodes, for episodes of any length in any slot."""

from typing import Any

import numpy as np
import pytest
from closeness import close, identical
from hypothesis import given
from hypothesis import strategies as st
from strategies import arrays, rollouts

from redline.algorithms.core.advantages import GAE, GroupRelative, RewardToGo, group_relative
from redline.algorithms.core.episodes import by_episode
from redline.algorithms.core.types import Rollout

gammas = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def episodes(rollout: Rollout) -> list[tuple[int, Any]]:
    """(row, columns) of every episode, in the order of their numbers."""
    numbers = range(len(rollout.group_of_episode))
    places = [np.nonzero(rollout.episode_id == number) for number in numbers]
    return [(int(rows[0]), columns) for rows, columns in places]


@given(rollouts())
def test_by_episode_puts_every_episode_in_a_row_of_its_own(rollout: Rollout) -> None:
    tagged = np.arange(rollout.mask.size, dtype=float).reshape(rollout.mask.shape)
    wide = np.stack([tagged, -tagged], axis=-1)
    (one, two, nothing), mask = by_episode(rollout, (tagged, wide, None))
    assert nothing is None
    found = episodes(rollout)
    assert mask.shape == (len(found), max(len(columns) for _, columns in found))
    assert mask.sum() == rollout.mask.sum()
    for i, (row, columns) in enumerate(found):
        identical(mask[i], np.arange(mask.shape[1]) < len(columns))
        identical(one[i, : len(columns)], tagged[row, columns])
        identical(two[i, : len(columns)], wide[row, columns])
        assert not one[i, len(columns) :].any() and not two[i, len(columns) :].any()


@given(rollouts())
def test_by_episode_loses_nothing(rollout: Rollout) -> None:
    (reward, number), mask = by_episode(rollout, (rollout.reward, rollout.episode_id))
    order = np.argsort(rollout.episode_id[rollout.mask], kind="stable")
    identical(reward[mask], rollout.reward[rollout.mask][order])
    expected = np.broadcast_to(np.arange(len(mask))[:, None], mask.shape)
    identical(number[mask], expected[mask])


@given(rollouts(), gammas)
def test_returns_are_those_of_each_episode_alone(rollout: Rollout, gamma: float) -> None:
    actual = RewardToGo(gamma)(rollout, None, None).advantage
    assert not actual[~rollout.mask].any()
    for row, columns in episodes(rollout):
        reward = rollout.reward[row, columns]
        expected = [sum(gamma**k * r for k, r in enumerate(reward[t:])) for t in range(len(reward))]
        close(actual[row, columns], np.array(expected), rtol=1e-10, atol=1e-10)


@given(rollouts(), st.data(), gammas, gammas)
def test_gae_is_that_of_each_episode_alone(
    rollout: Rollout, data: Any, gamma: float, lam: float
) -> None:
    value, after = (data.draw(arrays(rollout.mask.shape)) for _ in range(2))
    estimate = GAE(gamma, lam)(rollout, value, after)
    assert estimate.returns is not None
    for row, columns in episodes(rollout):
        advantage = 0.0
        for t in reversed(columns):
            bootstrap = 0.0 if rollout.terminated[row, t] else after[row, t]
            delta = rollout.reward[row, t] + gamma * bootstrap - value[row, t]
            advantage = delta + gamma * lam * advantage
            close(estimate.advantage[row, t], advantage, rtol=1e-10, atol=1e-10)
            close(estimate.returns[row, t], advantage + value[row, t], rtol=1e-10, atol=1e-10)
    assert not estimate.advantage[~rollout.mask].any() and not estimate.returns[~rollout.mask].any()


@st.composite
def groups(draw: Any) -> tuple[Any, Any]:
    """Values of the members of one to three groups of at least two."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    group = np.array(draw(st.permutations(np.repeat(np.arange(len(sizes)), sizes).tolist())))
    return draw(arrays(len(group))), group


@pytest.mark.parametrize("std", [True, False])
@given(groups(), st.floats(-100.0, 100.0))
def test_group_advantages(std: bool, data: Any, shift: float) -> None:
    value, group = data
    actual = group_relative(value, group, std=std)
    moved = group_relative(value + shift * (group + 1), group, std=std)
    close(moved, actual, rtol=1e-3, atol=1e-8)
    for number in range(group.max() + 1):
        members = actual[group == number]
        close(members.sum(), 0.0, atol=1e-9)
        order = np.argsort(value[group == number], kind="stable")
        assert (np.diff(members[order]) >= 0.0).all()
        if std:
            assert members.std(ddof=1) <= 1.0 + 1e-9


@given(groups(), st.randoms())
def test_members_may_come_in_any_order(data: Any, random: Any) -> None:
    value, group = data
    order = list(range(len(group)))
    random.shuffle(order)
    shuffled = group_relative(value[order], group[order])
    close(shuffled, group_relative(value, group)[order], rtol=1e-9, atol=1e-12)


@given(rollouts())
def test_all_elements_of_an_episode_share_its_advantage(rollout: Rollout) -> None:
    if len(rollout.group_of_episode) < 2:
        return
    actual = GroupRelative(gamma=0.9, grouping="batch")(rollout, None, None).advantage
    returns = RewardToGo(0.9)(rollout, None, None).advantage
    found = episodes(rollout)
    start = np.array([returns[row, columns[0]] for row, columns in found])
    expected = group_relative(start, np.zeros(len(start), dtype=int))
    for (row, columns), value in zip(found, expected, strict=True):
        close(actual[row, columns], np.full(len(columns), value), rtol=1e-9, atol=1e-12)
