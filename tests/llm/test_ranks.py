"""Several processes that train one model."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command import REDLINE
from runs import rows

from redline.benchmark import cli
from redline.llm_track.ranks import ALONE, Ranks, RanksError, join

HELPERS = Path(__file__).parents[1] / "helpers"
RUN = ["run", "grpo", "--task", "llm:arithmetic", "--steps", "64", "--groups", "8"]
RUN += ["--group-size", "4", "--minibatch-size", "16", "--eval-problems", "8", "--evals", "1"]


def together(folder: Path, *command: str | Path) -> list[subprocess.CompletedProcess[str]]:
    """Run a command as both of two processes, as a launcher does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"PYTHONPATH": str(HELPERS), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    ended = []
    for process in started:
        out, error = process.communicate(timeout=120)
        ended.append(subprocess.CompletedProcess(command, process.returncode, out, error))
    return ended


def test_rows_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    for rank, ended in enumerate(together(tmp_path, sys.executable, HELPERS / "two_ranks.py")):
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == f"same {rank}\n"


@pytest.mark.slow  # three commands
def test_a_run_of_two_processes_is_that_of_one(tmp_path: Path) -> None:
    one = subprocess.run([REDLINE, *RUN, "--out", "one"], cwd=tmp_path, capture_output=True)
    first, second = together(tmp_path, REDLINE, *RUN, "--out", "two")
    assert [one.returncode, first.returncode, second.returncode] == [0, 0, 0], second.stderr
    # One of them speaks and writes.
    assert "eval/accuracy" in first.stdout and not second.stdout + second.stderr
    assert json.loads((tmp_path / "two/run.json").read_text())["processes"] == 2
    for name in ("metrics.jsonl", "eval.jsonl"):
        alone, shared = (rows(tmp_path / folder / name) for folder in ("one", "two"))
        assert len(alone) == len(shared) > 1
        for expected, found in zip(alone, shared, strict=True):
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_rows_are_dealt_out_once() -> None:
    dealt = [Ranks(rank, 3).rows(7).tolist() for rank in range(3)]
    assert sorted(row for rows_of in dealt for row in rows_of) == list(range(7))
    assert dealt[1] == [1, 4]
    mask = torch.ones(7, 2, dtype=torch.bool)
    own = [Ranks(rank, 3).own(mask) for rank in range(3)]
    assert sum(part.int() for part in own).eq(1).all()  # type: ignore[union-attr]
    assert ALONE.own(mask) is mask and ALONE.rows(3).tolist() == [0, 1, 2]


def test_spread_parameters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert join("cpu") is ALONE
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(RanksError, match="FSDP spreads the parameters over processes"):
        join("cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "ppo", "--task", "CartPole-v1"],
        ["run", "sb3:ppo", "--task", "CartPole-v1"],
        ["matrix", "demo"],
        ["warm-start"],
    ],
    ids=" ".join,
)
def test_what_one_process_does_is_refused_to_several(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert "runs in one process, and 2 were launched" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
