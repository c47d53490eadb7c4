"""Where a run was made: commit, package versions, machine, peak memory."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = (
    "redline-rl",
    "numpy",
    "torch",
    "gymnasium",
    "mujoco",
    "stable-baselines3",
    "sb3-contrib",
)


@functools.cache
def git_state() -> str | None:
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
def versions(more: tuple[str, ...] = ()) -> dict[str, str]:
    """Python and the packages that results may depend on, those that are installed.

    Args:
        more: Packages that not every run depends on.
    """
    found = {"python": platform.python_version()}
    for name in (*_PACKAGES, *more):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


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


def host() -> dict[str, Any]:
    """What kind of machine this is; nothing that tells which one."""
    return {"machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()}


def processor() -> str:
    """Model of the CPU, as far as the system names it."""
    found = None
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.processor() or platform.machine()
