"""GPUs that the jobs of a matrix share out."""

import os
from pathlib import Path

import pytest

from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.config import Resolved
from redline.benchmark.gpus import VISIBLE, shared_out
from redline.benchmark.launchers import LocalPool
from redline.benchmark.suite import cells
from redline.benchmark.suite_files import read

SEES = """
import os, pathlib
import gymnasium as gym
import numpy as np


class Sees(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        pathlib.Path("seen-" + os.environ["CUDA_VISIBLE_DEVICES"]).touch()
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


gym.register("Sees-v0", Sees, max_episode_steps=10)
"""
SUITE = """
tasks = ["seeing.envs:Sees-v0"]
seeds = [0]
algorithms = ["reinforce"]
settings = { steps = 100, evals = 1, eval_episodes = 1 }
"""


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> list[Resolved]:
    """A run on a GPU, on a machine that has four."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv(VISIBLE, raising=False)
    return [resolve("grpo", ["--task", "llm:arithmetic", "--device", "cuda:0"])]


def test_every_job_has_a_gpu_in_turn(
    on_cuda: list[Resolved], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shared_out(None, 3, []) == [None, None, None]
    assert shared_out(3, 5, on_cuda) == ["0", "1", "2", "0", "1"]
    # A cluster may have given this process some of the machine's.
    monkeypatch.setenv(VISIBLE, "4, 7,GPU-8932f937")
    assert shared_out(3, 3, on_cuda) == ["4", "7", "GPU-8932f937"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpus", "0", "--jobs", "2"], "--gpus must be at least 1, got 0"),
        (["--gpus", "2"], "--gpus 2 needs as many jobs or more: --jobs 2, got 1"),
        (["--gpus", "9", "--jobs", "9"], "--gpus must be at most 4, the GPUs that torch sees"),
    ],
)
@pytest.mark.usefixtures("on_cuda")
def test_wrong_numbers_are_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--out", str(tmp_path), "--dry-run"]
    cuda = "ppo --policy torch --device cuda"
    assert cli.main(["compare", cuda, "trpo", "--task", "CartPole-v1", *arguments, *where]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_gpus_without_a_run_on_one_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--out", str(tmp_path), "--dry-run"]
    assert cli.main(["matrix", "quick", "--gpus", "1", *where]) == 2
    assert "none of these has the device cuda" in capsys.readouterr().err
    assert cli.main(["matrix", "quick", "--gpus", "1", "--launcher", "ray", *where]) == 2
    assert "--gpus needs --launcher local" in capsys.readouterr().err


def test_a_job_sees_its_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seeing").mkdir()
    (tmp_path / "seeing" / "envs.py").write_text(SEES)
    (tmp_path / "sees.toml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = os.environ.get(VISIBLE)
    todo = cells(read("sees.toml"), tmp_path / "out")
    with LocalPool(1, gpus=["7"]) as workers:
        outcomes = [outcome.error for _, outcome in workers.run(todo, lambda steps: None)]
    assert outcomes == [None]
    assert [path.name for path in tmp_path.glob("seen-*")] == ["seen-7"]
    assert os.environ.get(VISIBLE) == before
