"""A run on disk as others find it: its name, run.json with its status, what lies beside it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redline.benchmark import checkpoint
from redline.benchmark.breaking import TRIP
from redline.benchmark.config import NOT_HASHED, PLUGIN_CODE, Resolved
from redline.benchmark.errors import BadInput
from redline.benchmark.samples import REVIEW_FILES
from redline.benchmark.tracks import track_of
from redline.benchmark.views import EVENTS, HISTOGRAMS

# What a run's folder holds besides run.json.
FILES = (
    "metrics.jsonl",
    "eval.jsonl",
    checkpoint.NAME,
    checkpoint.PREVIOUS,
    TRIP,
    HISTOGRAMS,
    *REVIEW_FILES,
)

# What readers of run.json rely on; of the second group, any may be absent.
_TYPES = {"status": str, "hash": str, "algo": str, "recipe": dict, "run": dict}
_OPTIONAL: dict[str, Any] = {
    "overrides": dict,
    "versions": dict,
    "host": dict,
    "final": dict,
    "error": str,
    "started": int | float,
    "wall_seconds": int | float,
    "cpu_seconds": int | float,
    "peak_memory_mb": int | float,
    "resumed": list,
    "trips": dict,
    "left_out": dict,
}
_RUN_TYPES = {"task": str, "seed": int, "steps": int, "evals": int}


def safe_name(text: str) -> str:
    """`text` as one path part; unusual characters become %XX, so distinct names stay distinct."""
    quoted = re.sub(r"[^\w.\-=+,]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), text)
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def variant_name(algo: str, overrides: Mapping[str, Any]) -> str:
    """`algo` with its overrides, such as ppo--clip.high=0.3; `safe_name` makes a folder of it."""
    parts = [algo, *(f"{key}={value}" for key, value in sorted(overrides.items()))]
    return "--".join(parts).replace(" ", "")


def run_path(root: Path, resolved: Resolved) -> Path:
    """<root>/<task>/<algo>[--key=value...]/seed=<k>."""
    name = safe_name(variant_name(resolved.algo, resolved.overrides))
    return root / safe_name(resolved.run.task) / name / f"seed={resolved.run.seed}"


def read_run(folder: Path) -> dict[str, Any] | None:
    """run.json of a run folder, None where there is none or it is no record of a run."""
    try:
        data: Any = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if _is_record(data) else None


def _is_record(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and all(isinstance(data.get(key), kind) for key, kind in _TYPES.items())
        and all(isinstance(data[key], kind) for key, kind in _OPTIONAL.items() if key in data)
        and all(isinstance(data["run"].get(key), kind) for key, kind in _RUN_TYPES.items())
        and isinstance(data["run"].get(track_of(data["run"]["task"]).size), int)
    )


def find_runs(root: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """All run folders at or below `root`, sorted by path, with what `read_run` gives."""
    for path in sorted(root.rglob("run.json")):
        yield path.parent, read_run(path.parent)


def is_done(folder: Path, resolved: Resolved) -> bool:
    """The very run asked for is there and complete.

    Raises:
        BadInput: Something else is there: a run with other settings, or files of no readable run.
    """
    data = read_run(folder)
    if data is None:
        if found := leftovers(folder):
            why = (
                "is no readable record of a run"
                if found.name == "run.json"
                else ("belongs to no run: there is no run.json beside it")
            )
            raise BadInput(f"{found} {why}; --overwrite trains the run and replaces what is there")
        return False
    if data["hash"] != resolved.hash:
        raise BadInput(
            f"{folder} holds a run with other settings ({_difference(data, resolved)}); "
            "use --overwrite or another --out"
        )
    return bool(data["status"] == "done")


def leftovers(folder: Path) -> Path | None:
    """A file that a new run would replace, None where there is none."""
    names = ("run.json", *FILES)
    found = [path for name in names if os.path.lexists(path := folder / name)]
    return next(iter([*found, *sorted(folder.glob(EVENTS))]), None)


def _difference(data: Mapping[str, Any], resolved: Resolved) -> str:
    now = resolved.to_json()
    changes = [] if data["algo"] == now["algo"] else [f"algo {data['algo']} -> {now['algo']}"]
    for part in ("recipe", "run"):
        for key, before, value in _changed(data[part], now[part]):
            if key in NOT_HASHED:
                continue
            text = f"{key} {before} -> {value}"
            changes.append("the plugin's code changed" if key == PLUGIN_CODE else text)
    return ", ".join(changes) or "written by another version"


def _changed(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted name, old and new value of what differs; a mapping with other keys is one value."""
    for key, value in now.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and old.keys() == value.keys():
            yield from _changed(old, value, f"{prefix}{key}.")
        elif old != value:
            yield f"{prefix}{key}", old, value
