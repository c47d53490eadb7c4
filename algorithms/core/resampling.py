"""Dynamic sampling (DAPO, arXiv:2503.14476 section 3.2): groups that teach nothing are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from redline.algorithms.core.types import Array, Bootstrap, Need, Rollout

# A policy that is right everywhere has no mixed group left, and must not sample for ever.
MOST_ROUNDS = 8


def mixed_groups(rollout: Rollout) -> Array:
    """[G] True for a group whose outcomes differ.

    Raises:
        ValueError: The rollout does not say its outcomes.
    """
    if rollout.outcome is None:
        raise ValueError("dynamic sampling needs the outcome of every episode")
    group = np.asarray(rollout.group_of_episode)
    lowest = np.full(group.max() + 1, np.inf)
    highest = -lowest
    np.minimum.at(lowest, group, rollout.outcome)
    np.maximum.at(highest, group, rollout.outcome)
    return highest > lowest


def collect_mixed(sample: Callable[[Need], Rollout], need: Need) -> Rollout:
    """`need.groups` groups whose outcomes differ, from as many samples as that takes.

    After eight rounds what is there is used, and where no group is mixed, the last round's groups.
    Every sampled step counts; returns and metrics are those of all samples.

    Args:
        sample: A rollout of any groups.
        need: With `mixed`.
    """
    assert need.groups is not None
    parts: list[Rollout] = []
    sampled: list[Rollout] = []
    missing = need.groups
    while missing and len(sampled) < MOST_ROUNDS:
        rollout = sample(replace(need, groups=missing, mixed=False))
        sampled.append(rollout)
        mixed = mixed_groups(rollout)
        if mixed.any():
            parts.append(kept(rollout, mixed))
            missing -= int(mixed.sum())
    merged_rollout = merged(parts or sampled[-1:])
    groups = sum(len(mixed_groups(rollout)) for rollout in sampled)
    weights = [rollout.steps for rollout in sampled]
    metrics = {
        name: float(np.average([each.metrics[name] for each in sampled], weights=weights))
        for name in sampled[0].metrics
    }
    return replace(
        merged_rollout,
        steps=sum(weights),
        episode_return=[value for rollout in sampled for value in rollout.episode_return],
        episode_length=[value for rollout in sampled for value in rollout.episode_length],
        metrics=metrics
        | {
            "rollout/sampled_groups": float(groups),
            "rollout/mixed_groups": float(need.groups - missing),
        },
    )


def kept(rollout: Rollout, groups: Array) -> Rollout:
    """The rollout without the episodes of other groups.

    Args:
        rollout: Whole episodes.
        groups: [G] True for those that stay.
    """
    of_episode = np.asarray(rollout.group_of_episode)
    stays = groups[of_episode]
    number = np.where(stays, np.cumsum(stays) - 1, -1)
    mask = rollout.mask & stays[rollout.episode_id]
    rows = mask.any(axis=1)
    place = np.cumsum(rows) - 1
    bootstrap = rollout.bootstrap
    if bootstrap is not None:
        real = mask[bootstrap.row, bootstrap.column]
        row, column, observation = (part[real] for part in bootstrap)
        bootstrap = Bootstrap(place[row], column, observation)
    assert rollout.outcome is not None
    sampled = rollout.sampled_log_prob
    fields = {
        name: getattr(rollout, name)[rows] for name in ("observation", "action", "reward")
    } | {name: (getattr(rollout, name) & mask)[rows] for name in ("terminated", "truncated")}
    return replace(
        rollout,
        **fields,
        mask=mask[rows],
        episode_id=np.where(mask, number[rollout.episode_id], -1)[rows],
        group_of_episode=(np.cumsum(groups) - 1)[of_episode[stays]],
        bootstrap=bootstrap,
        log_prob=None if rollout.log_prob is None else rollout.log_prob[rows],
        sampled_log_prob=None if sampled is None else sampled[rows],
        outcome=rollout.outcome[stays],
        start_of_group=[
            start for start, stay in zip(rollout.start_of_group, groups, strict=True) if stay
        ],
    )


def merged(rollouts: Sequence[Rollout]) -> Rollout:
    """One rollout with the rows of all, padded to the longest; episodes and groups are counted on.

    An observation of a whole row (a prompt and its completion) keeps its elements last.
    """
    if len(rollouts) == 1:
        return rollouts[0]
    width = max(rollout.mask.shape[1] for rollout in rollouts)
    before = max(_before(rollout) for rollout in rollouts)
    sampled = rollouts[0].sampled_log_prob

    def rows(name: str, fill: float = 0) -> Array:
        found = [getattr(rollout, name) for rollout in rollouts]
        return np.concatenate([_padded(part, 0, width - part.shape[1], fill) for part in found])

    episodes = _starts(len(rollout.group_of_episode) for rollout in rollouts)
    groups = _starts(int(np.max(rollout.group_of_episode)) + 1 for rollout in rollouts)
    episode_id = np.concatenate(
        [
            _padded(
                np.where(each.mask, each.episode_id + first, -1), 0, width - each.mask.shape[1], -1
            )
            for each, first in zip(rollouts, episodes, strict=True)
        ]
    )
    observation = [
        _padded(each.observation, before - _before(each), width - each.mask.shape[1])
        for each in rollouts
    ]
    return replace(
        rollouts[0],
        **{name: rows(name) for name in ("action", "reward", "mask", "terminated", "truncated")},
        observation=np.concatenate(observation),
        episode_id=episode_id,
        group_of_episode=np.concatenate(
            [
                np.asarray(each.group_of_episode) + first
                for each, first in zip(rollouts, groups, strict=True)
            ]
        ),
        bootstrap=_bootstraps(rollouts),
        log_prob=None if rollouts[0].log_prob is None else rows("log_prob"),
        sampled_log_prob=None if sampled is None else rows("sampled_log_prob"),
        outcome=np.concatenate([each.outcome for each in rollouts]),
        start_of_group=[start for each in rollouts for start in each.start_of_group],
    )


def _starts(counts: Iterable[int]) -> list[int]:
    """Where every part starts when they follow one another."""
    return list(accumulate(counts, initial=0))[:-1]


def _before(rollout: Rollout) -> int:
    """Columns of an observation before those of the elements."""
    return int(rollout.observation.shape[1] - rollout.mask.shape[1])


def _padded(field: Array, left: int, right: int, fill: float = 0) -> Array:
    widths = [(0, 0), (left, right), *[(0, 0)] * (field.ndim - 2)]
    return np.pad(field, widths, constant_values=fill)


def _bootstraps(rollouts: Sequence[Rollout]) -> Bootstrap | None:
    found = [each.bootstrap for each in rollouts]
    if any(each is None for each in found):
        return None
    first = _starts(len(each.mask) for each in rollouts)
    pairs = [(each, at) for each, at in zip(found, first, strict=True) if each is not None]
    return Bootstrap(
        np.concatenate([each.row + at for each, at in pairs]),
        np.concatenate([each.column for each, _ in pairs]),
        np.concatenate([each.observation for each, _ in pairs]),
    )
