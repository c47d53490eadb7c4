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
# Draws in a row that repeat what was found, for every problem found, before the space is taken for
# exhausted: with one of N equally likely problems left that is wrong with probability exp(-20).
_PATIENCE = 20


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
    repeats = 0
    while len(found) < count and repeats <= _PATIENCE * (len(found) + 1):
        item = draw()
        repeats = repeats + 1 if identity(item) in found else 0
        found.setdefault(identity(item), item)
    if len(found) < count:
        raise TaskError(
            f"there are only {len(found)} different held-out problems, not {count}: ask for fewer, "
            "or for a task with more"
        )
    return list(found.values())
