"""Simulated bodies: spaces, what a run leaves behind, and a simulation that blows up."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from command import redline as redline_command
from command import unpinned
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from sampling import policy, sampler

from redline.algorithms.core.gaussians import DiagGaussian
from redline.algorithms.core.types import Need
from redline.benchmark import cli
from redline.envs.evaluate import FIRST_SEED, Evaluator
from redline.envs.tasks import EnvironmentFault, control_task

TASK = "HalfCheetah-v5"


class BlowsUp(HalfCheetahEnv):
    """Every velocity is far too large at the third step of an episode."""

    def reset_model(self) -> Any:
        self.count = 0
        return super().reset_model()

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count == 3:
            self.data.qvel[:] = 1e12
        return super().step(action)


class Uneven(gym.Env[Any, Any]):
    """An episode pays 1 a step and lasts as long as its seed says, from 1 to 40 steps."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 41))
        return np.array([self.left], np.float64), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action.dtype == np.float64
        self.left -= 1
        return np.array([self.left], np.float64), 1.0, self.left == 0, False, {}


gym.register("ToyBlowsUp-v0", BlowsUp, max_episode_steps=12)
gym.register("ToySound-v0", HalfCheetahEnv, max_episode_steps=12)
gym.register("ToySeededLength-v0", Uneven)


def test_its_spaces() -> None:
    task = control_task(TASK)
    assert task.distribution == DiagGaussian(6) and task.observation_size == 17
    assert control_task("Ant-v5").observation_size == 105
    rollout = sampler(TASK, 2).collect(policy(TASK), Need(steps=20))
    assert rollout.observation.dtype == np.float32 and rollout.action.dtype == np.float32
    assert np.abs(rollout.action).max() > 1.0  # as sampled, though the torques are clipped


@pytest.mark.parametrize("kind", ["list", "sync"])
def test_a_simulation_that_blows_up_is_noticed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    control_task(TASK)  # silences the simulator
    sampler("ToySound-v0", vectorization=kind).collect(policy("ToySound-v0"), Need(steps=30))
    source, actor = sampler("ToyBlowsUp-v0", vectorization=kind), policy("ToyBlowsUp-v0")
    assert np.isfinite(source.collect(actor, Need(steps=11)).observation).all()
    with pytest.raises(EnvironmentFault, match=r"blew up during this episode \(BADQVEL\)"):
        source.collect(actor, Need(steps=11))
    assert not list(tmp_path.iterdir())


def test_a_simulation_that_blows_up_ends_an_evaluation() -> None:
    control_task(TASK)
    evaluator = Evaluator(control_task("ToyBlowsUp-v0"), 1, lambda observation: observation)
    with pytest.raises(EnvironmentFault, match=r"failed at step 12 of its episode: .*blew up"):
        evaluator.returns(policy("ToyBlowsUp-v0"), deterministic=True)


def test_evaluation_side_by_side_is_that_of_one_episode_after_another() -> None:
    task, actor = control_task("ToySeededLength-v0"), policy("ToySeededLength-v0")

    def play(episodes: int, first: int) -> list[float]:
        return Evaluator(task, episodes, lambda x: x).returns(actor, True, first)

    together = play(60, FIRST_SEED)
    assert together == [play(1, FIRST_SEED + k)[0] for k in range(60)]
    assert len(set(together)) > 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A short run in a folder and a process of its own."""
    folder = tmp_path_factory.mktemp("mujoco")
    few = ["--steps", "512", "--n-envs", "2", "--n-steps", "128", "--minibatch-size", "64"]
    few += ["--evals", "1", "--eval-episodes", "2", "--normalize-observation", "--out", "run"]
    return folder, redline_command(folder, "run", "ppo", "--task", TASK, *few)


def test_a_run_leaves_nothing_beside_its_folder(run: tuple[Path, Any]) -> None:
    folder, done = run
    assert done.returncode == 0 and done.stderr == ""
    again = redline_command(folder, "eval", "run")
    assert again.returncode == 0 and again.stderr == ""
    assert [path.name for path in folder.iterdir()] == ["run"]


def test_its_record(run: tuple[Path, Any]) -> None:
    import mujoco

    record = json.loads((run[0] / "run" / "run.json").read_text())
    assert record["versions"]["mujoco"] == mujoco.__version__
    assert 0.0 < record["peak_memory_mb"] < 600.0


PLAY = """
import json
from redline.benchmark import load

with load("run") as policy:
    print(json.dumps([policy.returns(True), policy.returns(False)]))
"""


def test_a_new_process_evaluates_to_the_last_digit(run: tuple[Path, Any]) -> None:
    folder = run[0]
    shown = subprocess.run(
        [sys.executable, "-c", PLAY],
        cwd=folder,
        env=unpinned() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    last = json.loads((folder / "run" / "eval.jsonl").read_text().splitlines()[-1])
    best, sampled = (float(np.mean(values)) for values in json.loads(shown))
    assert best == last["eval/mean_reward"]
    assert sampled == last["eval/mean_reward_stochastic"]


def test_a_checkpoint_without_its_normaliser_is_refused(
    run: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text((run[0] / "run" / "run.json").read_text())
    state = torch.load(run[0] / "run" / "checkpoint.pt", weights_only=True)
    assert int(state["track"]["observation"]["count"]) == 512
    assert state["track"]["observation"]["mean"].shape == (17,)
    del state["track"]["observation"]
    torch.save(state, tmp_path / "checkpoint.pt")
    assert cli.main(["eval", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "the statistics of the observation normaliser are missing" in error
    assert error.count("\n") == 1
