"""How long a matrix should take, by what runs like its cells took on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from redline.benchmark.runs import find_runs
from redline.benchmark.suite import Cell

# Where every command writes unless told otherwise.
_RESULTS = Path("results")

# (task, algorithm, seconds per step) of one run.
Pace = tuple[str, str, float]
# (task, algorithm) -> seconds per step; "" for any algorithm.
Speeds = Mapping[tuple[str, str], float]


def speeds(root: Path, elsewhere: Iterable[Pace] = ()) -> Speeds:
    """Seconds per step of the runs that are done, at or below `root` and in results/.

    They hold evaluation, checkpoints and files too. Of several runs the middle one counts.

    Args:
        root: Folder of runs.
        elsewhere: Runs whose files are not here; they speak for tasks of which no run is.
    """
    here = _middle(_paces(root))
    tasks = {task for task, _ in here}
    return _middle(pace for pace in elsewhere if pace[0] not in tasks) | here


def _paces(root: Path) -> Iterator[Pace]:
    for folder in {root.resolve(), _RESULTS.resolve()}:
        for _, data in find_runs(folder):
            if data is None or data["status"] != "done" or not data.get("wall_seconds"):
                continue
            run = data["run"]
            yield run["task"], data["algo"], data["wall_seconds"] / max(run["steps"], 1)


def _middle(paces: Iterable[Pace]) -> dict[tuple[str, str], float]:
    taken: dict[tuple[str, str], list[float]] = {}
    for task, algo, pace in paces:
        for key in ((task, algo), (task, "")):
            taken.setdefault(key, []).append(pace)
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
