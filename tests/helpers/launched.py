"""A command as two processes side by side, as a launcher starts it."""

import os
import socket
import subprocess
from pathlib import Path

# What accelerate's launcher sets where its configuration asks for FSDP2.
FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


def start_together(folder: Path, *command: str | Path, **more: str) -> list[subprocess.Popen[str]]:
    """Both processes, the first one first; `more` is set in their environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **common, **more, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


def together(
    folder: Path, *command: str | Path, **more: str
) -> list[subprocess.CompletedProcess[str]]:
    """What both of them said."""
    started, ended = start_together(folder, *command, **more), []
    try:
        for process in started:
            # Two processes that wait for each other are slow where others want the cores.
            out, error = process.communicate(timeout=300)
            ended.append(subprocess.CompletedProcess(command, process.returncode, out, error))
    finally:
        for process in started:
            process.kill()
    return ended
