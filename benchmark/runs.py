"""A run on disk: run.json with its status, metric files, checkpoint."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import re
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redline.benchmark.config import NOT_HASHED, PLUGIN_CODE, Resolved
from redline.benchmark.errors import BadInput
from redline.benchmark.loggers import JsonLines, TensorBoard

_PACKAGES = (
    "redline-rl",
    "numpy",
    "torch",
    "gymnasium",
    "mujoco",
    "stable-baselines3",
    "sb3-contrib",
)
_FILES = ("metrics.jsonl", "eval.jsonl", "checkpoint.pt")


def safe_name(text: str) -> str:
    """`text` as one path part; unusual characters become %XX, so distinct names stay distinct."""
    quoted = re.sub(r"[^\w.\-=+,]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), text)
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def variant_name(algo: str, overrides: Mapping[str, Any]) -> str:
    """`algo` with its overrides, such as ppo--clip.high=0.3."""
    parts = [algo, *(f"{key}={value}" for key, value in sorted(overrides.items()))]
    return safe_name("--".join(str(part) for part in parts).replace(" ", ""))


def run_path(root: Path, resolved: Resolved) -> Path:
    """<root>/<task>/<algo>[--key=value...]/seed=<k>."""
    name = variant_name(resolved.algo, resolved.overrides)
    return root / safe_name(resolved.run.task) / name / f"seed={resolved.run.seed}"


def read_run(folder: Path) -> dict[str, Any] | None:
    """run.json of a run folder, None where there is none or it is no record of a run."""
    try:
        data: Any = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(data, dict) and {"status", "hash", "algo", "recipe", "run"} <= data.keys()
    return data if known else None


def find_runs(root: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """All run folders at or below `root`, sorted by path, with what `read_run` gives."""
    for path in sorted(root.rglob("run.json")):
        yield path.parent, read_run(path.parent)


def is_done(folder: Path, resolved: Resolved) -> bool:
    """The very run asked for is there and complete.

    Raises:
        BadInput: Another run (with other settings) is there.
    """
    data = read_run(folder)
    if data is None:
        return False
    if data["hash"] != resolved.hash:
        raise BadInput(
            f"{folder} holds a run with other settings ({_difference(data, resolved)}); "
            "use --overwrite or another --out"
        )
    return bool(data["status"] == "done")


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


@functools.cache
def _git_state() -> str | None:
    """Commit of the checkout that this package lies in, None where it is installed elsewhere."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def reset_peak_memory() -> None:
    """Start a new measurement of peak memory (Linux; elsewhere the process's peak is kept)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb() -> float:
    """Largest resident memory since `reset_peak_memory`, in MiB."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    except (OSError, TypeError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _write(folder: Path, resolved: Resolved, status: str, started: float, **more: Any) -> None:
    """run.json, replaced in one step."""
    data = {
        "status": status,
        "hash": resolved.hash,
        **resolved.to_json(),
        "overrides": dict(resolved.overrides),
        "versions": _versions(),
        "git": _git_state(),
        "host": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cpus": os.cpu_count(),
        },
        "started": started,
        "wall_seconds": time.time() - started,
        **more,
    }
    temporary = folder / ".run.json.tmp"
    temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / "run.json")


def record_failure(folder: Path, resolved: Resolved, error: str, trace: str) -> None:
    """Mark a run as failed whose process could not do so itself, because it is gone.

    Raises:
        OSError: The folder cannot be written.
    """
    before = read_run(folder)
    if before is not None and (before["status"], before.get("error")) == ("failed", error):
        return
    folder.mkdir(parents=True, exist_ok=True)
    started = before["started"] if before is not None else time.time()
    _write(folder, resolved, "failed", started, error=error, traceback=trace)


class RunFolder:
    """The files of a run while it is written.

    Args:
        folder: Made if it is not there; an unfinished or overwritten run's files are replaced.
        resolved: Settings.

    Raises:
        BadInput: The folder cannot be written.
    """

    def __init__(self, folder: Path, resolved: Resolved) -> None:
        self.folder, self._resolved = folder, resolved
        self._started = time.time()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in (*_FILES, *(path.name for path in folder.glob("events.out.tfevents.*"))):
                (folder / name).unlink(missing_ok=True)
            _write(folder, resolved, "running", self._started)
            self._metrics = JsonLines(folder / "metrics.jsonl")
            self._eval = JsonLines(folder / "eval.jsonl")
        except OSError as error:
            raise BadInput(f"cannot write to {folder}: {error.strerror or error}") from error
        wanted = resolved.run.tensorboard
        self._tensorboard = TensorBoard(folder, resolved.run.steps) if wanted else None
        reset_peak_memory()

    def log(self, step: int, update: int, metrics: Mapping[str, float]) -> None:
        """One row of metrics.jsonl."""
        self._metrics.write({"step": step, "update": update, **metrics})
        if self._tensorboard is not None:
            self._tensorboard.scalars(step, metrics)

    def log_eval(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row of eval.jsonl."""
        self._eval.write({"step": step, **metrics})
        if self._tensorboard is not None:
            self._tensorboard.scalars(step, metrics, always=True)

    def finish(self, status: str, **more: Any) -> None:
        """Close the files and write the final status."""
        self._metrics.close()
        self._eval.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        _write(
            self.folder,
            self._resolved,
            status,
            self._started,
            peak_memory_mb=round(peak_memory_mb(), 1),
            **more,
        )
