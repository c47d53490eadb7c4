"""Runs on disk as tables: one row per run, per evaluation, per update."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from redline.benchmark.curves import Curves, number_or_nan, read_curve
from redline.benchmark.errors import BadInput
from redline.benchmark.matrix import RECORD, read_record
from redline.benchmark.method_names import method_names
from redline.benchmark.runs import find_runs
from redline.benchmark.stats import finite
from redline.benchmark.tracks import TRACKS, track_of

KL = "train/kl"
CLIP_FRACTION = "train/clip_fraction"
OUTSIDE_BAND = "train/outside_band"
ENTROPY = "train/entropy"
KL_COEF = "train/kl_coef"
MIXTURE_ALPHA = "train/mixture_alpha"
CLIP_HI = "train/clip_hi"
ANSWER_LENGTH = "llm/answer_length"
FPS = "time/fps"
UPDATE_SECONDS = "time/update"

_EVALS = ("step", *(name for track in TRACKS for name in (track.headline, track.second)))
_UPDATES = (
    "step",
    KL,
    CLIP_FRACTION,
    OUTSIDE_BAND,
    ENTROPY,
    KL_COEF,
    MIXTURE_ALPHA,
    CLIP_HI,
    ANSWER_LENGTH,
    FPS,
    UPDATE_SECONDS,
)
_KEY = ("task", "method", "seed")
# What is taken of an evaluation curve: its end, its highest point, its mean height.
CURVES = ("final", "best", "area")
_RUNS = (
    *_KEY,
    "status",
    *CURVES,
    "untrained",
    "steps",
    "seconds",
    "fps",
    "update_seconds",
    "peak_mb",
    "hash",
    "path",
    "error",
)


@dataclass(frozen=True)
class Results:
    """Everything at or below a folder.

    Attributes:
        runs: One row per run, those included that failed or that a matrix still lacks. Rewards are
            nan unless the run is done: `final` of the last evaluation, `best` of all, `area` under
            their curve divided by the budget in steps; of the track's headline, with `_stochastic`
            or `_greedy` of its other metric. `untrained` is the sampling policy's at step 0.
            `seconds` is wall time, `fps` training steps per second, `update_seconds` of an
            update on average, `peak_mb` MiB.
        evals: Columns task, method, seed, step, eval/*; runs that are done.
        updates: Columns task, method, seed, step and a few of metrics.jsonl; runs that are done.
        records: run.json of every run.
        matrices: matrix.json of every matrix.
        notes: What was left out and why, in sentences.
    """

    runs: pd.DataFrame
    evals: pd.DataFrame
    updates: pd.DataFrame
    records: Sequence[Mapping[str, Any]]
    matrices: Sequence[Mapping[str, Any]]
    notes: Sequence[str]

    @property
    def tasks(self) -> list[str]:
        """Task names, in the order of the tables."""
        return list(self.runs["task"].unique())

    @property
    def methods(self) -> list[str]:
        """Method names, in the order of the tables."""
        return list(self.runs["method"].unique())


def load(root: Path, only: Sequence[str] | None = None) -> Results:
    """Read all runs at or below a folder.

    A file that was cut short counts up to the cut, and a run that is found twice counts once.

    Args:
        root: The folder.
        only: Paths below it of the runs that count; None: all.

    Raises:
        BadInput: No such folder, or no run in it.
    """
    if not root.is_dir():
        raise BadInput(f"{root} is not a folder of runs")
    matrices, planned, unread = _matrices(root)
    records, notes = _read_all(root)
    if not records and not planned:
        raise BadInput(f"{root} holds no run: there is no run.json at or below it")
    if only is not None:
        records = {path: records[path] for path in only if path in records}
        planned = {path: planned[path] for path in only if path in planned}
        notes = [note for note in notes if note.partition(":")[0] in only]
    notes = [*unread, *notes]
    names = method_names(list(records.values()))
    runs: list[dict[str, Any]] = []
    evals, updates = Curves(_EVALS, _KEY), Curves(_UPDATES, _KEY)
    for (path, data), name in zip(records.items(), names, strict=True):
        key = {"task": data["run"]["task"], "method": name, "seed": data["run"]["seed"]}
        evaluations = read_curve(root / path / "eval.jsonl", _EVALS)
        metrics = read_curve(root / path / "metrics.jsonl", _UPDATES)
        if data["status"] == "done" and (why := _incomplete(data, evaluations)):
            notes.append(f"{path}: eval.jsonl {why}; the run counts as nan")
            evaluations = evaluations[:0]
        runs.append({**key, "path": path, **_run(data, evaluations, metrics)})
        if data["status"] == "done":
            evals.add(evaluations, key.values())
            updates.add(metrics, key.values())
    runs += [
        {**_planned_key(cell), "path": path, "status": "missing"}
        for path, cell in planned.items()
        if path not in records
    ]
    order = [str(cell["variant"]) for cell in planned.values()]
    return Results(
        _sorted(pd.DataFrame(runs, columns=_run_columns({run["task"] for run in runs})), order),
        evals.frame(),
        updates.frame(),
        list(records.values()),
        matrices,
        notes,
    )


def _matrices(root: Path) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Every matrix.json, the cells that they ask for by path below `root`, what is unreadable."""
    records: list[dict[str, Any]] = []
    planned: dict[str, Any] = {}
    notes = []
    for path in sorted(root.rglob(RECORD)):
        record = read_record(path.parent)
        cells = record.get("cells")
        if not isinstance(cells, dict) or not all(map(_is_cell, cells.values())):
            name = path.relative_to(root).as_posix()
            notes.append(f"{name} cannot be read; runs that its matrix lacks are not counted")
            continue
        records.append(record)
        for cell, asked in cells.items():
            planned[Path(os.path.relpath(path.parent / cell, root)).as_posix()] = asked
    return records, planned, notes


def _is_cell(cell: Any) -> bool:
    types = {"task": str, "variant": str, "seed": int}
    return isinstance(cell, dict) and all(isinstance(cell.get(k), t) for k, t in types.items())


def _read_all(root: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Path below `root` -> run.json, and what could not be used."""
    records: dict[str, dict[str, Any]] = {}
    first: dict[str, str] = {}
    notes = []
    # Of two copies the complete one counts.
    for folder, data in sorted(find_runs(root), key=lambda found: not _is_done(found[1])):
        path = folder.relative_to(root).as_posix()
        if data is None:
            notes.append(f"{path}: run.json cannot be read; the run counts as missing")
        elif data["hash"] in first:
            notes.append(f"{path}: the same run as {first[data['hash']]}, counted once")
        else:
            first[data["hash"]] = path
            records[path] = data
    return records, notes


def _is_done(data: Mapping[str, Any] | None) -> bool:
    return data is not None and data["status"] == "done"


def _incomplete(data: Mapping[str, Any], evals: Any) -> str | None:
    """Why the evaluations are not those of a complete run; None where they are."""
    if not len(evals):
        return "is missing, empty or cannot be read"
    last = dict(zip(_EVALS, evals[-1], strict=True))
    ends = (last["step"], data["run"]["steps"])
    # A run that learns nothing more ends on equal rewards: the step tells a cut there.
    if ends[0] < ends[1]:
        return f"ends at step {ends[0]:,.0f} of {ends[1]:,}"
    track, recorded = track_of(data["run"]["task"]), data.get("final", {})
    for name in (track.headline, track.second):
        final = number_or_nan(recorded.get(name))
        if last[name] != final and not (np.isnan(last[name]) and np.isnan(final)):
            return f"ends with {name} {last[name]:.10g}, run.json with {final:.10g}"
    return None


def _run(data: Mapping[str, Any], evals: Any, updates: Any) -> dict[str, Any]:
    row = {
        "status": data["status"],
        "error": data.get("error"),
        "hash": data["hash"],
        "seconds": data.get("wall_seconds"),
        "peak_mb": data.get("peak_memory_mb"),
    }
    if len(updates):
        of_update = dict(zip(_UPDATES, updates.T, strict=True))
        row |= {"steps": of_update["step"][-1], "fps": of_update[FPS][-1]}
        if len(seconds := finite(of_update[UPDATE_SECONDS])):
            row["update_seconds"] = seconds.mean()
    if data["status"] != "done" or not len(evals):
        return row
    track, budget = track_of(data["run"]["task"]), data["run"]["steps"]
    of_eval = dict(zip(_EVALS, evals.T, strict=True))
    for name, suffix in ((track.headline, ""), (track.second, f"_{track.other}")):
        curve = of_eval[name]
        row |= {
            f"final{suffix}": curve[-1],
            f"best{suffix}": np.fmax.reduce(curve),
            f"area{suffix}": _area(of_eval["step"], curve, budget),
        }
    return row | {"untrained": of_eval[track.untrained][0]}


def _area(step: Any, reward: Any, budget: int) -> float:
    """Mean height of a curve from step 0 to the budget, by the trapezoid rule.

    What the last rollout went past the budget is cut off by linear interpolation, so that methods
    of long rollouts are not judged on more. Points that are nan are skipped.
    """
    finite = np.isfinite(reward)
    step, reward = step[finite], reward[finite]
    if len(step) < 2:
        return float("nan")
    end = min(step[-1], budget)
    within = np.append(step[step < end], end)
    return float(np.trapezoid(np.interp(within, step, reward), within) / (end - within[0]))


def _run_columns(tasks: Iterable[str]) -> list[str]:
    """`_RUNS` with the curves of the other metrics of the tracks that occur."""
    tracks = [track for track in TRACKS if track in map(track_of, tasks)]
    others = [f"{name}_{track.other}" for track in tracks for name in CURVES]
    after = _RUNS.index(CURVES[-1]) + 1
    return [*_RUNS[:after], *others, *_RUNS[after:]]


def _planned_key(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {"task": cell["task"], "method": cell["variant"], "seed": cell["seed"]}


def _sorted(runs: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Tasks by name; methods as the suite lists them, others after them by name; then seeds."""
    place = {name: i for i, name in reversed(list(enumerate(order)))}
    last = len(order)
    rank = runs["method"].map(lambda name: place.get(name, last))
    return (
        runs.assign(rank=rank)
        .sort_values(["task", "rank", "method", "seed"], ignore_index=True)
        .drop(columns="rank")
    )
