"""What the environment says of the processes that a launcher started side by side.

Without torch, so that a command knows at once who it is; `redline.llm_track.ranks` does the work.
"""

from __future__ import annotations

import os

from redline.benchmark.errors import BadInput


def count() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """This process is the one that writes and speaks."""
    return count() == 1 or os.environ.get("RANK", "0") == "0"


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
