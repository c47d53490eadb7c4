"""run.json as it is written: by a run, and for one whose process could not do so itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from redline.benchmark import ranks
from redline.benchmark.config import Resolved
from redline.benchmark.files import Busy, Hold, replacing
from redline.benchmark.loggers import finite
from redline.benchmark.machine import git_state, host, versions
from redline.benchmark.runs import leftovers, read_run
from redline.benchmark.tracks import track_of


def write(folder: Path, resolved: Resolved, status: str, started: float, **more: Any) -> None:
    """run.json, replaced in one step."""
    data = {
        "status": status,
        "hash": resolved.hash,
        **resolved.to_json(),
        "overrides": dict(resolved.overrides),
        "versions": versions(track_of(resolved.run.task).packages),
        "git": git_state(),
        "host": host(),
        **({"processes": ranks.count()} if ranks.count() > 1 else {}),
        **({"sharded": True} if ranks.sharded() else {}),
        "started": started,
        **more,
    }
    text = json.dumps(finite(data), indent=1, allow_nan=False) + "\n"
    with replacing(folder / "run.json") as temporary:
        temporary.write_text(text, encoding="utf-8")


def record_failure(folder: Path, resolved: Resolved, error: str, trace: str) -> bool:
    """Mark a run as failed whose process could not do so itself; gives whether run.json says so.

    What this run did not begin is left alone: a complete run, one with other settings, files of no
    readable run, and a folder that another process is writing.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        hold = Hold(folder)
    except Busy:
        return False
    try:
        before = read_run(folder)
        if before is None:
            if leftovers(folder) is not None:
                return False
        elif before["status"] == "done" or before["hash"] != resolved.hash:
            return False
        elif before["status"] in ("failed", "tripped") and before.get("error") == error:
            return True
        started = (before or {}).get("started", time.time())
        seconds = time.time() - started
        kept = {key: before[key] for key in ("resumed", "trips") if before and key in before}
        write(
            folder,
            resolved,
            "failed",
            started,
            wall_seconds=seconds,
            error=error,
            traceback=trace,
            **kept,
        )
        return True
    finally:
        hold.release()
