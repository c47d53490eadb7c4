"""Runs whose completions another process samples: the same results, and nothing left behind."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import start_redline
from processes import members, wait_until, workers

from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.errors import BadInput
from redline.benchmark.train import train

TASK = ["--task", "llm:arithmetic", "--max-completion", "16", "--stale", "2"]
EVALUATION = ["--evals", "1", "--eval-problems", "2", "--eval-samples", "1"]
FEW = [*EVALUATION, "--groups", "2", "--group-size", "2", "--minibatch-size", "4"]
FEW += ["--clip.high", "0.1"]  # so small groups with a wider one bring a note

LONG = """
tasks = ["llm:arithmetic"]
seeds = [0]
algorithms = ["grpo"]

[settings]
steps = 1_000_000
evals = 1
eval_problems = 2
stale = 1
sampler_process = true
max_completion = 16
groups = 2
group_size = 2
minibatch_size = 4
"""


def rows(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "mem"))} for row in found]


def test_a_sampler_process_changes_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*TASK, *FEW, "--steps", "16"]
    train(resolve("grpo", arguments), tmp_path / "one")
    two = tmp_path / "two"
    assert cli.main(["run", "grpo", *arguments, "--sampler-process", "--out", str(two)]) == 0
    for name in ("metrics.jsonl", "eval.jsonl"):
        assert rows(tmp_path / "one" / name) == rows(two / name)
    assert [row["rollout/staleness"] for row in rows(two / "metrics.jsonl")] == [0, 1, 2, 2]
    # So it is the same run, and is not trained again without one.
    capsys.readouterr()
    assert cli.main(["run", "grpo", *arguments, "--out", str(two)]) == 0
    assert "is complete already" in capsys.readouterr().out


def test_a_sampler_process_without_staleness_is_refused() -> None:
    with pytest.raises(BadInput, match="--sampler-process needs --stale of at least 1, got 0"):
        resolve("grpo", ["--task", "llm:arithmetic", "--sampler-process"])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A long run that has learned, and its sampler process."""
    settings = [*TASK, *FEW, "--sampler-process", "--steps", "1e6", "--out", "one"]
    started = start_redline(tmp_path, "run", "grpo", *settings)
    metrics = tmp_path / "one" / "metrics.jsonl"
    wait_until(lambda: started.poll() is not None or (metrics.exists() and metrics.stat().st_size))
    assert started.poll() is None and len(workers(started.pid)) == 1
    yield started
    for left in members(started.pid):
        os.kill(left, signal.SIGKILL)
    started.communicate()


def none_left(process: subprocess.Popen[str]) -> None:
    wait_until(lambda: not members(process.pid), 10)


def test_ctrl_c_ends_both_processes(process: subprocess.Popen[str], tmp_path: Path) -> None:
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert (process.returncode, error) == (130, "redline: interrupted; what was written is kept\n")
    none_left(process)


def test_a_killed_run_leaves_no_sampler(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=20)
    none_left(process)


def test_a_sampler_that_is_killed_fails_the_run(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    _, error = process.communicate(timeout=20)
    assert (process.returncode, error) == (
        1,
        "redline: the run failed: the sampler process was ended by SIGKILL; the machine may have "
        "run out of memory (one/run.json holds the traceback)\n",
    )
    record = json.loads((tmp_path / "one" / "run.json").read_text())
    assert record["status"] == "failed" and record["error"].startswith("the sampler process was")
    none_left(process)


def test_a_killed_matrix_leaves_no_sampler(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    matrix = start_redline(tmp_path, "matrix", "long.toml", "--jobs", "1", "--out", "out")
    wait_until(lambda: any(path.stat().st_size for path in tmp_path.rglob("metrics.jsonl")))
    assert len(workers(matrix.pid)) == 2
    matrix.kill()
    matrix.communicate(timeout=20)
    none_left(matrix)
