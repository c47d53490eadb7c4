"""Rows as whole episodes, for methods whose unit is the sequence."""

from __future__ import annotations

import numpy as np

from redline.algorithms.core.types import Array, Rollout


def require_whole_episodes(rollout: Rollout) -> None:
    """Refuse a rollout that holds episodes which are cut.

    Raises:
        ValueError: It does.
    """
    if not rollout.whole_episodes:
        raise ValueError(
            "a sequence-level method needs whole episodes, and this rollout cuts them; "
            "ask for a number of episodes instead of steps"
        )


def by_episode(rollout: Rollout, fields: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
    """Rearrange [B, T, ...] fields so that every row is one episode, zero-padded on the right.

    Args:
        rollout: Gives mask and episode numbers.
        fields: Arrays [B, T, ...]; None stays None.

    Returns:
        The fields as [E, T', ...], and their mask [E, T'].

    Raises:
        ValueError: The rollout holds episodes that are cut.
    """
    require_whole_episodes(rollout)
    episode = rollout.episode_id[rollout.mask]
    length = np.bincount(episode)
    order = np.argsort(episode, kind="stable")
    mask = np.arange(length.max()) < length[:, None]

    def arrange(field: Array) -> Array:
        if field is None:
            return None
        rows = np.zeros(mask.shape + field.shape[2:], dtype=field.dtype)
        rows[mask] = field[rollout.mask][order]
        return rows

    return tuple(arrange(field) for field in fields), mask
