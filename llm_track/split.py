"""Which problems are held out: decided by the problem itself, so that no seed can mix them up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import TypeVar

Item = TypeVar("Item")

# One problem in ten is held out, the same ones for every run and seed.
_HELD_OUT_SHARE = 10
# Where the listing of a held-out set starts: far from the seeds of runs.
HELD_OUT_SEED = 10_000_000
# Draws for every problem of a held-out set before the space is taken for exhausted.
_PATIENCE = 1_000


class TaskError(ValueError):
    """A task that does not exist or cannot give what is asked, in one sentence."""


def is_held_out(text: str) -> bool:
    """Whether the problem that `text` identifies belongs to the held-out set."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _HELD_OUT_SHARE == 0


def first_distinct(
    draw: Callable[[], Item], identity: Callable[[Item], Hashable], count: int
) -> list[Item]:
    """The first `count` problems of a stream that differ.

    Raises:
        TaskError: The stream has only repeated itself for a long time.
    """
    found: dict[Hashable, Item] = {}
    for _ in range(count * _PATIENCE):
        if len(found) == count:
            break
        item = draw()
        found.setdefault(identity(item), item)
    if len(found) < count:
        raise TaskError(
            f"there are only {len(found)} different held-out problems, not {count}: ask for fewer, "
            "or for a task with more"
        )
    return list(found.values())
