"""Going on with a run that was cut, from its last checkpoint, as if it had not been.

A checkpoint says how long the metric files were when it was written. What a cut run wrote after
that is cut off, so nothing stands in them twice; training then continues with the same optimiser,
random numbers and environments, and ends bit for bit where an uncut run ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redline.benchmark import checkpoint
from redline.benchmark.config import Resolved
from redline.benchmark.machine import versions
from redline.benchmark.tracks import track_of

_log = logging.getLogger(__name__)

# Entry of a checkpoint that holds what evaluating a policy does not need.
PROGRESS = "progress"


def pending(
    folder: Path, resolved: Resolved, record: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The checkpoint that an unfinished run goes on from; None where it starts anew.

    Args:
        folder: Of the run.
        resolved: Its settings.
        record: Its run.json; None where there is none.
    """
    run = resolved.run
    if record is None or run.overwrite or not run.resume or record["hash"] != resolved.hash:
        return None
    if record["status"] == "done" or not checkpoint.present(folder):
        return None
    now = versions(track_of(run.task).packages)
    if record.get("versions") != now:
        # Other versions compute other bits: half a run of each would be neither.
        _log.warning("%s was begun with other versions of its packages and starts anew", folder)
        return None
    for state in checkpoint.candidates(folder):
        progress = state.get(PROGRESS)
        if state.get("hash") == resolved.hash and progress and _long_enough(folder, progress):
            return state
    return None


def _long_enough(folder: Path, progress: Mapping[str, Any]) -> bool:
    """No file is shorter than the checkpoint says, as after a crash of the whole machine."""
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size >= size
        for name, size in progress["files"].items()
    )


def cut_back(folder: Path, progress: Mapping[str, Any]) -> None:
    """Shorten the metric files to what they held when the checkpoint was written."""
    for name, size in progress["files"].items():
        with (folder / name).open("r+b") as file:
            file.truncate(size)
