"""Episodes as rows, where properties on a few elements cannot see."""

from dataclasses import replace

import numpy as np
import pytest
from batches import make_rollout
from closeness import identical

from redline.algorithms.core.episodes import by_episode


def test_long_episodes_keep_their_order() -> None:
    # Sorting algorithms that are not stable are so on a few elements.
    ends = np.zeros((2, 300), dtype=bool)
    ends[:, [99, 149, 299]] = True
    rollout = make_rollout(np.arange(600.0).reshape(2, 300), ends=ends)
    number = np.where(rollout.episode_id >= 0, 5 - rollout.episode_id, -1)
    (reward,), mask = by_episode(replace(rollout, episode_id=number), (rollout.reward,))
    assert mask.sum(axis=1).tolist() == [150, 50, 100, 150, 50, 100]
    first = [450, 400, 300, 150, 100, 0]
    for row, start in enumerate(first):
        valid = reward[row][mask[row]]
        identical(valid, np.arange(start, start + len(valid), dtype=float))


def test_cut_episodes_are_refused() -> None:
    rollout = replace(make_rollout([[1.0, 2.0]]), whole_episodes=False)
    with pytest.raises(ValueError, match="ask for a number of episodes instead of steps"):
        by_episode(rollout, (rollout.reward,))
