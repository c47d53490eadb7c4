"""Matrices whose workers are killed, hang or starve, and whose disk is full or read-only."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from command import REDLINE, redline, start_redline, unpinned
from processes import wait_until, workers
from runs import same_runs

from redline.benchmark import cli
from redline.benchmark.files import Hold
from redline.benchmark.launchers import LocalPool
from redline.benchmark.outcomes import Fault, failed
from redline.benchmark.runs import read_run
from redline.benchmark.suite import cells
from redline.benchmark.suite_files import read

SUITE = """
tasks = ["CartPole-v1"]
seeds = [0, 1]
algorithms = ["reinforce"]

[settings]
steps = 5_000
evals = 10
eval_episodes = 1
"""
RUN = "out/CartPole-v1/reinforce/seed={}"

# Each misbehaves once: what it leaves behind in the working folder stops it.
ONCE = """
import os, pathlib, time
import gymnasium as gym
import numpy as np


class Base(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        mark = pathlib.Path(type(self).__name__)
        if not mark.exists():
            mark.touch()
            self.misbehave()
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def misbehave(self):
        pass


class Starves(Base):
    def misbehave(self):
        raise MemoryError("12 GB were wanted")


class Hangs(Base):
    def misbehave(self):
        time.sleep(1e6)


for kind in (Base, Starves, Hangs):
    gym.register(f"{kind.__name__}-v0", kind, max_episode_steps=10)
"""


def few(*tasks: str) -> str:
    names = [f"once.envs:{task}-v0" for task in tasks]
    settings = "steps = 100\nevals = 1\neval_episodes = 1"
    return f'tasks = {names}\nseeds = [0]\nalgorithms = ["reinforce"]\n[settings]\n{settings}\n'


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the suite gives where nothing goes wrong."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.toml").write_text(SUITE)
    arguments = ["matrix", str(folder / "small.toml"), "--out", str(folder / "out")]
    assert cli.main(arguments) == 0
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "once").mkdir()
    (tmp_path / "once" / "envs.py").write_text(ONCE)
    (tmp_path / "small.toml").write_text(SUITE)
    return tmp_path


def same(one: Path, other: Path) -> None:
    for seed in (0, 1):
        same_runs(one / RUN.format(seed), other / RUN.format(seed))


def test_a_worker_that_is_killed_costs_nothing(home: Path, whole: Path) -> None:
    process = start_redline(home, "matrix", "small.toml", "--out", "out")
    metrics = home / RUN.format(0) / "eval.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 3)
    (worker,) = workers(process.pid)
    os.kill(worker, signal.SIGKILL)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0 and "2 of 2 runs complete" in out
    assert "seed=0: the worker process was ended by SIGKILL" in error
    assert "it is tried once more at the end" in error
    same(home, whole)
    assert (read_run(home / RUN.format(0)) or {}).get("resumed")


def test_a_worker_that_hangs_or_has_no_memory_is_replaced(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)
    (home / "few.toml").write_text(few("Starves", "Base", "Hangs"))
    todo = cells(read("few.toml"), home / "out")
    with LocalPool(1) as pool:
        first = dict(pool.run(todo[:2], lambda steps: None))
        starved, fine = (first[cell] for cell in todo[:2])
        assert (starved.error or "").endswith("of its episode: MemoryError: 12 GB were wanted")
        assert starved.fault is Fault.WORKER
        # By now the process has all its imports, which are no hanging.
        assert fine.error is None
        pool.patience = 1.0
        ((_, hung),) = pool.run(todo[2:], lambda steps: None)
        assert hung.error == "the worker process made no update for 1 s and was ended"
        assert hung.fault is Fault.WORKER
        pool.patience, pool.timeout = None, 0.5
        ((_, slow),) = pool.run([todo[1]], lambda steps: None)
        # A process of its own now, whose imports alone take longer.
        assert slow.error == "the run took more than the 0.5 s of --timeout and was ended"
        assert slow.fault is Fault.RUN
        pool.timeout = None
        again = dict(pool.run([todo[0], todo[2]], lambda steps: None))
        assert [outcome.error for outcome in again.values()] == [None, None]


def test_what_a_failure_says_about_other_tries() -> None:
    def fault(error: BaseException, cause: BaseException | None = None) -> Fault:
        error.__cause__ = cause
        return failed(error, 0.0).fault

    assert fault(ValueError("no")) is Fault.RUN
    assert fault(FileNotFoundError(2, "no such file")) is Fault.RUN
    assert fault(OSError(28, "No space left on device")) is Fault.DISK
    assert fault(ValueError("cannot write"), OSError(30, "Read-only file system")) is Fault.DISK
    assert fault(MemoryError()) is Fault.WORKER
    assert fault(RuntimeError("DefaultCPUAllocator: can't allocate memory")) is Fault.WORKER
    assert fault(OSError(12, "Cannot allocate memory")) is Fault.WORKER


def test_files_that_may_not_grow_end_the_matrix_and_lose_nothing(home: Path, whole: Path) -> None:
    largest = max(path.stat().st_size for path in whole.rglob("metrics.jsonl"))
    limit = largest // 2 // 1024
    # The kernel then refuses to write, as on a full disk.
    line = f"ulimit -f {limit}; {REDLINE} matrix small.toml --out out"
    shown = subprocess.run(
        ["bash", "-c", line], cwd=home, env=unpinned(), capture_output=True, text=True, timeout=120
    )
    assert shown.returncode == 1
    assert shown.stderr == (
        "redline: nothing can be written to out any more (OSError: [Errno 27] File too large); "
        "what was written is kept, and the same command continues\n"
    )
    assert not list((home / "out").rglob("*.tmp"))
    assert redline(home, "matrix", "small.toml", "--out", "out").returncode == 0
    same(home, whole)


def test_a_run_whose_files_may_not_grow_goes_on_once_they_may(home: Path, whole: Path) -> None:
    settings = "run reinforce --task CartPole-v1 --steps 5000 --evals 10 --eval-episodes 1"
    (events,) = (whole / RUN.format(0)).glob("events.*")
    saved = whole / RUN.format(0) / "checkpoint.pt"
    # A checkpoint fits, and most of the events.
    limit = (events.stat().st_size + saved.stat().st_size) // 2 // 1024
    line = f"ulimit -f {limit}; {REDLINE} {settings} --out one"
    shown = subprocess.run(
        ["bash", "-c", line], cwd=home, env=unpinned(), capture_output=True, text=True, timeout=120
    )
    assert shown.returncode == 1 and shown.stderr.count("\n") == 1
    assert shown.stderr.startswith("redline: the run failed: OSError: [Errno 27] File too large")
    assert not list((home / "one").glob("*.tmp"))
    assert cli.main([*settings.split(), "--out", str(home / "one")]) == 0
    assert (read_run(home / "one") or {}).get("resumed")
    same_runs(whole / RUN.format(0), home / "one")


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "t", "/mnt"], stderr=-3).returncode == 0
)


@pytest.mark.slow  # five commands
@pytest.mark.skipif(not CAN_MOUNT, reason="needs a mount namespace of its own")
def test_a_full_disk_and_a_read_only_one(home: Path) -> None:
    (home / "out").mkdir()
    script = f"""
    mount -t tmpfs -o size=160k tmpfs out
    {REDLINE} matrix small.toml --out out; echo "full: $?"
    mount -o remount,ro out
    {REDLINE} matrix small.toml --out out; echo "read-only: $?"
    {REDLINE} run ppo --task CartPole-v1 --out out/one; echo "run: $?"
    mount -o remount,rw,size=64m out
    {REDLINE} matrix small.toml --out out >said; echo "room: $?"; tail -1 said
    """
    shown = subprocess.run(
        [*NAMESPACE, "bash", "-c", script],
        cwd=home,
        env=unpinned(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert shown.stdout.splitlines() == [
        "full: 1",
        "read-only: 2",
        "run: 2",
        "room: 0",
        "results: out (2 of 2 runs complete)",
    ]
    full, read_only, run = shown.stderr.splitlines()[:3]
    assert "nothing can be written to out any more" in full and "No space left on device" in full
    assert read_only == "redline: cannot write to out: Read-only file system"
    assert run == "redline: cannot write to out/one: Read-only file system"


def test_a_second_matrix_on_a_folder_is_refused_while_the_first_trains(home: Path) -> None:
    (home / "long.toml").write_text(SUITE.replace("5_000", "100_000_000"))
    process = start_redline(home, "matrix", "long.toml", "--out", "out")
    wait_until(lambda: (home / "out" / "matrix.json").exists())
    before = (home / "out" / "matrix.json").read_bytes()
    second = redline(home, "matrix", "small.toml", "--out", "out")
    assert second.returncode == 2 and (home / "out" / "matrix.json").read_bytes() == before
    assert second.stderr == "redline: another matrix is writing to out; wait for it\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)


def test_a_folder_that_cannot_be_held(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Hold, folder: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Hold, "__init__", refuse)
    assert cli.main(["matrix", str(home / "small.toml"), "--out", str(home / "out")]) == 2
    assert capsys.readouterr().err == (
        f"redline: cannot write to {home / 'out'}: Read-only file system\n"
    )


def test_patience_is_a_number_of_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["matrix", "demo", "--patience", "0"]) == 2
    assert "--patience must be above 0, or none, got 0" in capsys.readouterr().err
    assert cli.main(["matrix", "demo", "--timeout", "-1"]) == 2
    assert "--timeout must be above 0, or none, got -1" in capsys.readouterr().err
