"""Processes that a command starts."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def members(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(entry.name))
    return found


def workers(group: int) -> list[int]:
    """Spawned processes of a process group, without multiprocessing's own."""
    found = []
    for process in members(group):
        try:
            command = Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in command:
            found.append(process)
    return found
