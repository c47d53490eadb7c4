"""How long a matrix should take, by what runs like its cells took on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from redline.benchmark.runs import find_runs
from redline.benchmark.suite import Cell

# Where every command writes unless told otherwise.
_RESULTS = Path("results")

# (task, algorithm) -> seconds per step; "" for any algorithm.
Speeds = Mapping[tuple[str, str], float]


def speeds(root: Path) -> Speeds:
    """Seconds per step of the runs that are done, at or below `root` and in results/.

    They hold evaluation, checkpoints and files too. Of several runs the middle one counts.
    """
    taken: dict[tuple[str, str], list[float]] = {}
    for folder in {root.resolve(), _RESULTS.resolve()}:
        for _, data in find_runs(folder):
            if data is None or data["status"] != "done" or not data.get("wall_seconds"):
                continue
            run = data["run"]
            pace = data["wall_seconds"] / max(run["steps"], 1)
            for algo in (data["algo"], ""):
                taken.setdefault((run["task"], algo), []).append(pace)
    return {key: median(values) for key, values in taken.items()}


def seconds(cell: Cell, known: Speeds) -> float | None:
    """Time that a cell should take: as its method on the task, else as any; None: unknown."""
    run = cell.resolved.run
    pace = known.get((run.task, cell.resolved.algo), known.get((run.task, "")))
    return None if pace is None else pace * run.steps


def spelled(duration: float) -> str:
    """Seconds as seconds, minutes or hours."""
    if duration < 90:
        return f"{max(duration, 1):.0f} s"
    return f"{duration / 60:.0f} min" if duration < 90 * 60 else f"{duration / 3600:.1f} h"
