"""What the environment says of the processes that a launcher started side by side.

Without torch, so that a command knows at once who it is; `redline.llm_track.ranks` does the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from redline.benchmark.errors import BadInput

T = TypeVar("T")


def count() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """This process is the one that writes and speaks."""
    return count() == 1 or os.environ.get("RANK", "0") == "0"


def sharded() -> bool:
    """Each of several processes holds a part of the parameters, as accelerate's launcher asked."""
    return count() > 1 and os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")


def layout() -> list[int]:
    """How many processes there are, and in how many parts they hold the parameters."""
    return [count(), count() if sharded() else 1]


def of_first(function: Callable[[], T]) -> T:
    """What a function gives in the first process, in all of them, which must have met."""
    if count() == 1:
        return function()
    from redline.llm_track.ranks import share

    found: T = share(function() if first() else None)
    return found


def require_sharable(algo: str, needs_whole: str) -> None:
    """Refuse a method that every process needs all parameters for, where they are spread.

    Args:
        algo: Its name.
        needs_whole: Why it does; "" where it does not.

    Raises:
        BadInput: It does.
    """
    if needs_whole and sharded():
        raise BadInput(
            f"{algo} cannot train parameters that are spread over processes (FSDP): {needs_whole}; "
            "choose data parallelism (distributed_type: MULTI_GPU) or a first-order method such "
            "as grpo"
        )


def lost(error: BaseException) -> bool:
    """Another process has ended while this one waited for what it would give."""
    said = str(error)
    return count() > 1 and isinstance(error, RuntimeError) and ("peer" in said or "NCCL" in said)


def require_alone(what: str) -> None:
    """Refuse what several processes would do several times.

    Raises:
        BadInput: There are several.
    """
    if count() > 1:
        raise BadInput(
            f"{what} runs in one process, and {count()} were launched; side by side they train one "
            "language model: accelerate launch $(which redline) run ALGO --task llm:arithmetic"
        )
