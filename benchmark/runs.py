"""A run on disk: run.json with its status, metric files, checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redline.benchmark.config import NOT_HASHED, PLUGIN_CODE, Resolved
from redline.benchmark.errors import BadInput, describe
from redline.benchmark.files import Busy, Hold, remove_temporary, replacing
from redline.benchmark.loggers import JsonLines, TensorBoard, finite
from redline.benchmark.machine import (
    git_state,
    host,
    peak_memory_mb,
    reset_peak_memory,
    versions,
)
from redline.benchmark.tracks import track_of

_FILES = ("metrics.jsonl", "eval.jsonl", "checkpoint.pt")
_EVENTS = "events.out.tfevents.*"

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
    "peak_memory_mb": int | float,
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
    names = ("run.json", *_FILES)
    found = [path for name in names if os.path.lexists(path := folder / name)]
    return next(iter([*found, *sorted(folder.glob(_EVENTS))]), None)


def _difference(data: Mapping[str, Any], resolved: Resolved) -> str:
    now = resolved.to_json()
    changes = [] if data["algo"] == now["algo"] else [f"algo {data['algo']} -> {now['algo']}"]
    for part in ("recipe", "run"):
        for key, value in now[part].items():
            before = data[part].get(key)
            if before == value or key in NOT_HASHED:
                continue
            text = f"{key} {before} -> {value}"
            changes.append("the plugin's code changed" if key == PLUGIN_CODE else text)
    return ", ".join(changes) or "written by another version"


def _write(folder: Path, resolved: Resolved, status: str, started: float, **more: Any) -> None:
    """run.json, replaced in one step."""
    data = {
        "status": status,
        "hash": resolved.hash,
        **resolved.to_json(),
        "overrides": dict(resolved.overrides),
        "versions": versions(track_of(resolved.run.task).packages),
        "git": git_state(),
        "host": host(),
        "started": started,
        "wall_seconds": time.time() - started,
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
        elif (before["status"], before.get("error")) == ("failed", error):
            return True
        started = (before or {}).get("started", time.time())
        _write(folder, resolved, "failed", started, error=error, traceback=trace)
        return True
    finally:
        hold.release()


class RunFolder:
    """The files of a run while it is written.

    Args:
        folder: Made if it is not there; an unfinished or overwritten run's files are replaced.
        resolved: Settings.

    Attributes:
        last: The last evaluation; empty before the first.

    Raises:
        BadInput: The folder cannot be written, or another process is writing to it.
    """

    def __init__(self, folder: Path, resolved: Resolved) -> None:
        self.folder, self._resolved = folder, resolved
        self.last: Mapping[str, float] = {}
        self._started = time.time()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._hold = Hold(folder)
        except Busy as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            raise _cannot_write(folder, error) from error
        try:
            self._open()
        except BaseException as error:
            self._hold.release()
            if isinstance(error, OSError):
                raise _cannot_write(folder, error) from error
            raise
        reset_peak_memory()

    def _open(self) -> None:
        folder = self.folder
        # First of all: files that are gone must not belong to a run that counts as complete.
        _write(folder, self._resolved, "running", self._started)
        for path in (*(folder / name for name in _FILES), *folder.glob(_EVENTS)):
            path.unlink(missing_ok=True)
        for name in ("run.json", "checkpoint.pt"):
            remove_temporary(folder, name)
        self._metrics = JsonLines(folder / "metrics.jsonl")
        self._eval = JsonLines(folder / "eval.jsonl")
        run = self._resolved.run
        self._tensorboard = TensorBoard(folder, run.steps) if run.tensorboard else None

    def log(self, step: int, update: int, metrics: Mapping[str, float]) -> None:
        """One row of metrics.jsonl."""
        self._metrics.write({"step": step, "update": update, **metrics})
        if self._tensorboard is not None:
            self._tensorboard.scalars(step, metrics)

    def log_eval(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row of eval.jsonl."""
        self.last = metrics
        self._eval.write({"step": step, **metrics})
        if self._tensorboard is not None:
            self._tensorboard.scalars(step, metrics, always=True)

    def finish(self, status: str, **more: Any) -> None:
        """Close the files, write the final status, and let go of the folder.

        Raises:
            OSError: Something could not be written; the folder is let go nevertheless.
        """
        try:
            with contextlib.ExitStack() as files:
                for file in (self._metrics, self._eval, self._tensorboard):
                    if file is not None:
                        files.callback(file.close)
            _write(
                self.folder,
                self._resolved,
                status,
                self._started,
                peak_memory_mb=round(peak_memory_mb(), 1),
                **more,
            )
        finally:
            self._hold.release()


@contextlib.contextmanager
def writing(folder: Path, resolved: Resolved) -> Iterator[RunFolder]:
    """The folder of a run that trains within the block: done with its end, failed with an error.

    Raises:
        BadInput: As `RunFolder`.
        Exception: Whatever ended the block.
    """
    run = RunFolder(folder, resolved)
    try:
        yield run
    except BaseException as error:
        # On a full disk this fails as well; what is told is what stopped the run.
        with contextlib.suppress(OSError):
            run.finish("failed", error=describe(error), traceback=traceback.format_exc())
        raise
    run.finish("done", final=run.last)


def _cannot_write(folder: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot write to {folder}: {error.strerror or error}")
