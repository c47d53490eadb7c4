"""Summaries of finished runs, small enough to be committed, and what tells that one is current."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from redline.benchmark import machine
from redline.benchmark.baselines.catalogue import is_external
from redline.benchmark.errors import BadInput
from redline.benchmark.files import replacing
from redline.benchmark.forecast import Pace
from redline.benchmark.loggers import finite
from redline.benchmark.runs import read_run, run_path, safe_name
from redline.benchmark.suite import Cell

# Raised by hand with a change of code after which the same settings learn something else.
REVISION = 1
# Points of a summary's training curve.
POINTS = 100
# Share of the budget, at its end, that "last" is the mean over.
LAST = 0.1
_SIMULATORS = ("gymnasium", "mujoco")
_EXTERNAL = ("stable-baselines3", "sb3-contrib")
_RETURNS = "rollout/ep_rew_mean"
# What the table reads of a summary.
NUMBERS = ("last", "final", "best", "area", "wall_seconds", "cpu_seconds", "peak_memory_mb")
_NEEDED = ("steps", "hash", "configuration", "versions", "evaluations", "curve", *NUMBERS)


def configuration(cell: Cell) -> str:
    """Hash of the resolved settings and of the revision of the code."""
    return _hash([REVISION, cell.resolved.hash])


def identity(cell: Cell) -> str:
    """The same with the versions of the packages that simulate, or train, in this environment.

    torch is not among them: another version changes the last bits of a run and so which sample of
    the same distribution it is, where another simulator changes the task.
    """
    return _hash([configuration(cell), _surroundings(cell)])


def _surroundings(cell: Cell) -> dict[str, str | None]:
    names = _SIMULATORS + (_EXTERNAL if is_external(cell.resolved.algo) else ())
    return {name: machine.versions().get(name) for name in names}


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def placed(cell: Cell, root: Path) -> Cell:
    """The cell with its raw run below `root`/runs, apart from those of other versions."""
    versions = _hash([REVISION, _surroundings(cell)])[:8]
    return replace(cell, folder=run_path(root / "runs" / versions, cell.resolved))


def summary_path(cell: Cell, root: Path) -> Path:
    """<root>/cells/<task>--<method>--seed=<k>.json."""
    run = cell.resolved.run
    return root / "cells" / safe_name(f"{run.task}--{cell.variant}--seed={run.seed}.json")


def read_summary(cell: Cell, root: Path) -> dict[str, Any] | None:
    """The summary of a cell, whatever its hash; None where there is none, or no readable one."""
    try:
        data: Any = json.loads(summary_path(cell, root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if _sound(data) else None


def _sound(data: Any) -> bool:
    """What the table and the forecast read is there, as numbers and rows of numbers."""
    if not isinstance(data, dict) or any(name not in data for name in _NEEDED):
        return False
    rows = (("evaluations", 3), ("curve", 2))
    return (
        isinstance(data["steps"], int)
        and data["steps"] > 0
        and all(_number(data[name]) for name in NUMBERS)
        and isinstance(data["versions"], dict)
        and all(_table(data[name], width) for name, width in rows)
    )


def _table(rows: Any, width: int) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == width and all(map(_number, row)) for row in rows
    )


def _number(value: Any) -> bool:
    """None stands for what was infinite or no number."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def paces(cells: Iterable[Cell], root: Path) -> Iterator[Pace]:
    """What summarised runs took, of older settings too: CPU seconds, for each had one thread."""
    for cell in cells:
        found = read_summary(cell, root)
        seconds = found and (found["cpu_seconds"] or found["wall_seconds"])
        if found and seconds:
            yield cell.resolved.run.task, cell.resolved.algo, seconds / found["steps"]


def is_current(cell: Cell, root: Path) -> bool:
    """A summary of the very run that would be trained here is there."""
    found = read_summary(cell, root)
    return found is not None and found["hash"] == identity(cell)


def write_summary(cell: Cell, root: Path) -> None:
    """Write the summary of a run that is complete.

    Raises:
        BadInput: Its files are not those of a complete run.
        OSError: The summary cannot be written.
    """
    text = json.dumps(finite(_summary(cell)), indent=1, allow_nan=False) + "\n"
    path = summary_path(cell, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _summary(cell: Cell) -> dict[str, Any]:
    from redline.benchmark.curves import read_curve
    from redline.benchmark.records import load
    from redline.benchmark.tracks import DETERMINISTIC, STOCHASTIC

    results, record = load(cell.folder), read_run(cell.folder)
    if record is None or record["status"] != "done" or results.evals.empty:
        why = "; ".join(results.notes) or "its run is not complete"
        raise BadInput(f"{cell.name} cannot be summarised: {why}")
    row, evals = results.runs.iloc[0], results.evals
    steps = record["run"]["steps"]
    late = evals[evals["step"] >= (1 - LAST) * steps]
    returns = read_curve(cell.folder / "metrics.jsonl", ("step", _RETURNS))
    return {
        "task": record["run"]["task"],
        "method": cell.variant,
        "seed": record["run"]["seed"],
        "steps": steps,
        "hash": identity(cell),
        "configuration": configuration(cell),
        "revision": REVISION,
        "versions": record["versions"],
        "host": record["host"],
        "last": float(late[STOCHASTIC].mean()),
        "final": float(row["final"]),
        "final_stochastic": float(row["final_stochastic"]),
        "best": float(row["best"]),
        "area": float(row["area_stochastic"]),
        "wall_seconds": record["wall_seconds"],
        "cpu_seconds": record.get("cpu_seconds"),
        "peak_memory_mb": record["peak_memory_mb"],
        "evaluations": evals[["step", DETERMINISTIC, STOCHASTIC]].to_numpy().tolist(),
        "curve": binned(returns, steps),
        "settings": {"recipe": record["recipe"], "run": record["run"]},
    }


def binned(rows: Any, steps: int) -> list[list[float]]:
    """Means over equal parts of the budget: [step at the part's end, value], empty parts left out.

    Args:
        rows: (step, value) [n, 2]; values that are nan count for nothing.
        steps: The budget; later steps belong to its last part.
    """
    rows = rows[np.isfinite(rows).all(axis=1)]
    place = np.clip(np.ceil(rows[:, 0] * POINTS / steps).astype(int), 1, POINTS)
    return [
        [float(part * steps / POINTS), float(rows[place == part, 1].mean())]
        for part in np.unique(place)
    ]


def ordered(cells: Sequence[Cell], gates: Mapping[str, Mapping[str, Any]]) -> list[Cell]:
    """Seeds 0-2 of what has a gate, then seeds 0-2 of the rest, then all others."""

    def rank(cell: Cell) -> tuple[bool, bool]:
        late = cell.resolved.run.seed > 2
        return late, cell.resolved.algo not in gates.get(cell.resolved.run.task, {})

    return sorted(cells, key=rank)
