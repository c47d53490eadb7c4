"""Ctrl-C and its like, and a parent that is killed: no worker stays, what is finished is kept."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command import redline, start_redline
from processes import members, wait_until

LONG = """
tasks = ["CartPole-v1"]
seeds = [0, 1]
algorithms = ["reinforce"]

[settings]
steps = 100_000_000
evals = 1
eval_episodes = 1
"""


def training(folder: Path) -> Callable[[], bool]:
    """Both runs have written rows of metrics."""
    return lambda: all(
        (folder / f"out/CartPole-v1/reinforce/seed={seed}/metrics.jsonl").exists()
        for seed in (0, 1)
    )


def started(folder: Path, until_training: bool = True) -> subprocess.Popen[str]:
    """A matrix with two workers that train, or that are still importing."""
    (folder / "long.toml").write_text(LONG)
    process = start_redline(folder, "matrix", "long.toml", "--jobs", "2", "--out", "out")
    wait_until(lambda: len(members(process.pid)) >= 3)
    if until_training:
        wait_until(training(folder))
    return process


@pytest.mark.parametrize("until_training", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_within_seconds_and_the_same_command_continues(
    until_training: bool, number: int, tmp_path: Path
) -> None:
    process = started(tmp_path, until_training)
    if number == signal.SIGINT:
        # A terminal sends it to the whole group; an impatient user twice.
        os.killpg(process.pid, number)
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    begin = time.monotonic()
    _, error = process.communicate(timeout=20)
    assert time.monotonic() - begin < 5
    assert process.returncode == 130
    assert error == "redline: interrupted; finished runs are kept, and the same command continues\n"
    wait_until(lambda: not members(process.pid), 5)
    for path in tmp_path.rglob("run.json"):
        data = json.loads(path.read_text())
        assert (data["status"], data["error"]) == ("failed", "interrupted")
    shown = redline(tmp_path, "matrix", "long.toml", "--out", "out", "--dry-run")
    assert shown.returncode == 0 and "0 done, 2 to do" in shown.stdout


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.kill()
    process.communicate(timeout=20)
    wait_until(lambda: not members(process.pid), 10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_on_a_single_run_keeps_what_was_written(number: int, tmp_path: Path) -> None:
    few = ("--steps", "1e8", "--eval-episodes", "1", "--evals", "1", "--out", "one")
    process = start_redline(tmp_path, "run", "ppo", "--task", "CartPole-v1", *few)
    metrics = tmp_path / "one" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size)
    os.killpg(process.pid, number)
    os.killpg(process.pid, number)
    begin = time.monotonic()
    _, error = process.communicate(timeout=20)
    assert time.monotonic() - begin < 5
    assert process.returncode == 130
    assert error == "redline: interrupted; what was written is kept\n"
    data = json.loads((tmp_path / "one" / "run.json").read_text())
    assert (data["status"], data["error"]) == ("failed", "interrupted")
