"""Dynamic sampling: which groups stay, and how rollouts are put together."""

from typing import Any

import numpy as np
import pytest
from batches import make_rollout
from closeness import identical

from redline.algorithms.core.resampling import (
    MOST_ROUNDS,
    collect_mixed,
    kept,
    merged,
    mixed_groups,
)
from redline.algorithms.core.types import Bootstrap, Need, Rollout


def rollout(outcomes: Any, width: int = 3, prompt: int = 2, first: int = 0) -> Rollout:
    """Groups of two, one episode a row; every number names its episode."""
    flat = np.asarray(outcomes, dtype=float).reshape(-1)
    count = len(flat)
    mask = np.arange(width) < 1 + np.arange(count)[:, None] % width
    name = first + np.arange(count)[:, None]
    return make_rollout(
        np.where(mask, name, 0.0),
        mask,
        observation=np.concatenate(
            [np.full((count, prompt), 100) + name, np.where(mask, name, 0)], axis=1
        ),
        action=np.where(mask, name, 0),
        outcome=flat,
        group_of_episode=np.arange(count) // 2,
        start_of_group=[f"start {first + 2 * i}" for i in range(count // 2)],
        bootstrap=Bootstrap(np.arange(count), mask.sum(axis=1) - 1, np.full((count, 1), 9.0)),
        episode_return=flat.tolist(),
        episode_length=mask.sum(axis=1).tolist(),
        steps=int(mask.sum()),
        metrics={"share": float(flat.mean())},
    )


def test_groups_whose_outcomes_differ() -> None:
    found = mixed_groups(rollout([[1, 0], [1, 1], [0, 0], [2, 1]]))
    assert found.tolist() == [True, False, False, True]


def test_what_is_kept_is_counted_anew() -> None:
    found = kept(rollout([[1, 1], [1, 0], [0, 0], [0, 1]]), np.array([False, True, False, True]))
    assert found.group_of_episode.tolist() == [0, 0, 1, 1]
    assert found.start_of_group == ["start 2", "start 6"]
    identical(found.outcome, np.array([1.0, 0.0, 0.0, 1.0]))
    # Rows 2, 3, 6, 7 with 3, 1, 1, 2 elements.
    identical(found.mask.sum(axis=1), np.array([3, 1, 1, 2]))
    assert found.episode_id.tolist() == [[0, 0, 0], [1, -1, -1], [2, -1, -1], [3, 3, -1]]
    identical(found.action[:, 0], np.array([2, 3, 6, 7]))
    identical(found.bootstrap.row, np.arange(4))
    assert (found.terminated.sum(axis=1) == 1).all()


def test_episodes_that_share_a_slot_are_kept_apart() -> None:
    # Slot 0 plays episodes 0 and 1, slot 1 episodes 2 and 3; group 0 is episodes 0 and 2.
    whole = make_rollout(
        np.arange(8.0).reshape(2, 4),
        ends=[[False, True, False, True]] * 2,
        outcome=np.array([1.0, 5.0, 0.0, 5.0]),
        group_of_episode=np.array([0, 1, 0, 1]),
        start_of_group=["a", "b"],
    )
    found = kept(whole, mixed_groups(whole))
    assert found.episode_id.tolist() == [[0, 0, -1, -1], [1, 1, -1, -1]]
    assert found.terminated.tolist() == [[False, True, False, False]] * 2
    assert found.group_of_episode.tolist() == [0, 0] and found.start_of_group == ["a"]


def test_rollouts_of_different_widths_are_put_together() -> None:
    one, two = rollout([[1, 0]], width=2, prompt=1), rollout([[0, 1]], width=4, prompt=3, first=2)
    both = merged([one, two])
    assert both.mask.shape == (4, 4) and both.observation.shape == (4, 7)
    # Prompts end, and completions start, in the same column.
    assert both.observation[0].tolist() == [0, 0, 100, 0, 0, 0, 0]
    assert both.observation[3].tolist() == [103, 103, 103, 3, 3, 0, 0]
    assert both.episode_id.max(axis=1).tolist() == [0, 1, 2, 3]
    assert both.group_of_episode.tolist() == [0, 0, 1, 1]
    identical(both.bootstrap.row, np.arange(4))
    assert (both.episode_id == -1).sum() == (~both.mask).sum()


class Source:
    """Gives prepared rollouts, one for every call."""

    def __init__(self, *rollouts: Any) -> None:
        self.rollouts, self.asked = list(rollouts), []

    def __call__(self, need: Need) -> Rollout:
        self.asked.append(need)
        return rollout(self.rollouts[min(len(self.asked), len(self.rollouts)) - 1])


NEED = Need(groups=3, group_size=2, mixed=True)


def test_groups_are_sampled_until_there_are_enough() -> None:
    source = Source([[1, 1], [1, 0], [0, 0]], [[0, 1], [1, 1]], [[1, 0]])
    found = collect_mixed(source, NEED)
    assert [(need.groups, need.mixed) for need in source.asked] == [
        (3, False),
        (2, False),
        (1, False),
    ]
    assert found.group_of_episode.tolist() == [0, 0, 1, 1, 2, 2] and mixed_groups(found).all()
    samples = [rollout([[1, 1], [1, 0], [0, 0]]), rollout([[0, 1], [1, 1]]), rollout([[1, 0]])]
    # What was thrown away was paid for.
    assert found.steps == sum(each.steps for each in samples)
    assert len(found.episode_return) == 12
    shares = [each.metrics["share"] * each.steps for each in samples]
    assert found.metrics["share"] == pytest.approx(sum(shares) / found.steps)
    assert found.metrics["rollout/sampled_groups"] == 6.0
    assert found.metrics["rollout/mixed_groups"] == 3.0


def test_a_policy_that_is_always_right_ends_the_search() -> None:
    source = Source([[1, 1], [1, 1], [1, 1]])
    found = collect_mixed(source, NEED)
    assert len(source.asked) == MOST_ROUNDS and len(found.outcome) == 6
    assert found.metrics["rollout/mixed_groups"] == 0.0
    # What there is of mixed groups is used alone.
    found = collect_mixed(Source([[1, 0], [1, 1], [1, 1]], [[1, 1], [1, 1]]), NEED)
    assert found.group_of_episode.tolist() == [0, 0]


def test_outcomes_must_be_known() -> None:
    with pytest.raises(ValueError, match="needs the outcome of every episode"):
        mixed_groups(make_rollout([[1.0]]))


def test_a_pool_of_starts_holds_a_rollout() -> None:
    with pytest.raises(ValueError, match="starts must be at least groups, which is 3, got 2"):
        Need(groups=3, group_size=2, starts=2)
