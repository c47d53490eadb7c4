"""`make chaos`: kill -9 at random moments of a small matrix of both tracks; nothing is lost."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command import redline, start_redline
from processes import members, wait_until, workers
from runs import same_runs

SUITE = """
tasks = ["CartPole-v1", "HalfCheetah-v5", "llm:arithmetic"]
seeds = [0]

[[variants]]
algorithms = ["ppo", "trpo"]
tasks = ["CartPole-v1"]
settings = { steps = 6000, evals = 6, eval_episodes = 2 }

[[variants]]
algorithm = "ppo"
tasks = ["HalfCheetah-v5"]
settings = { steps = 4096, n_steps = 64, evals = 4, eval_episodes = 1 }

[[variants]]
algorithm = "grpo"
tasks = ["llm:arithmetic"]
settings = { steps = 192, groups = 8, group_size = 4, evals = 3, eval_problems = 4 }
"""
RUNS = 4
COMMAND = ("matrix", "chaos.toml", "--jobs", "2", "--out")


@dataclass
class Chaos:
    """Matrices that are killed, one after the other.

    Attributes:
        home: Where they are trained.
        whole: One that nothing happened to.
        random: Draws moments and victims.
        log: What was killed, and when.
    """

    home: Path
    whole: Path
    random: random.Random
    log: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.home / "cut"

    def strike(self) -> bool:
        """Train on, and kill at a random moment; False where the matrix was over before that."""
        # In rows of metrics, since the start takes longer than the training: some kills hit it.
        begin, end = sum(rows(self.folder).values()), sum(rows(self.whole).values())
        until = begin if self.random.random() < 0.2 else self.random.uniform(begin, end)
        process = start_redline(self.home, *COMMAND, "cut")
        while sum(rows(self.folder).values()) < until and process.poll() is None:
            time.sleep(0.005)
        moment = time.monotonic() + self.random.uniform(0.0, 3.0 if until == begin else 0.3)
        while time.monotonic() < moment and process.poll() is None:
            time.sleep(0.005)
        over = process.poll() is not None
        if not over:
            self._kill(process)
        _, error = process.communicate(timeout=600)
        wait_until(lambda: not members(process.pid))
        assert process.returncode in (0, -signal.SIGKILL), error
        return not over

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """One worker, or all there is at once, as when the machine loses its power."""
        found = workers(process.pid)
        victim = self.random.choice(found) if found and self.random.random() < 0.5 else None
        self.log.append(f"{'one of the workers' if victim else 'everything'}, {rows(self.folder)}")
        if victim is None:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(victim, signal.SIGKILL)

    def unfinished(self) -> bool:
        """Some run is not done, as far as there are any."""
        records = list(self.folder.rglob("run.json"))
        done = [json.loads(path.read_text())["status"] == "done" for path in records]
        return len(done) < RUNS or not all(done)

    def compare(self) -> int:
        """Train to the end and compare every run; gives how often runs were gone on with."""
        shown = redline(self.home, *COMMAND, "cut")
        assert shown.returncode == 0, shown.stderr
        runs = sorted(path.parent.relative_to(self.whole) for path in self.whole.rglob("run.json"))
        assert len(runs) == RUNS
        for run in runs:
            same_runs(self.whole / run, self.folder / run)
        records = [json.loads((self.folder / run / "run.json").read_text()) for run in runs]
        shutil.rmtree(self.folder)
        return sum(len(record.get("resumed", [])) for record in records)


def rows(folder: Path) -> dict[str, int]:
    """Rows of metrics that the runs below a folder have written."""
    found = {}
    for path in sorted(folder.rglob("metrics.jsonl")):
        with contextlib.suppress(FileNotFoundError):  # a run that starts anew removes it
            found[path.parent.parent.name] = path.read_bytes().count(b"\n")
    return found


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    points = int(os.environ.get("CHAOS_POINTS", "3"))
    seed = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 10**6)))
    (tmp_path / "chaos.toml").write_text(SUITE)
    shown = redline(tmp_path, *COMMAND, "whole")
    assert shown.returncode == 0, shown.stderr
    chaos = Chaos(tmp_path, tmp_path / "whole", random.Random(seed))
    print(f"\nCHAOS_SEED={seed}; rows of the whole: {rows(chaos.whole)}")
    compared = resumed = 0
    while len(chaos.log) < points:
        if chaos.strike():
            print(f"kill {len(chaos.log)}: {chaos.log[-1]}", flush=True)
        if len(chaos.log) == points or not chaos.unfinished():
            resumed += chaos.compare()
            compared += 1
    print(f"{points} kills, {compared} matrices compared, {resumed} times gone on with a run")
    assert resumed > 0 or points < 3
