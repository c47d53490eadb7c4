"""Box actions squashed into their bounds: through the samplers, a run's record, and back."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import toys  # noqa: F401
from closeness import close
from sampling import sampler

import redline.benchmark
from redline.algorithms.core.gaussians import TanhGaussian
from redline.algorithms.core.types import Need
from redline.benchmark import cli
from redline.envs.policies import MLPPolicy
from redline.envs.sampler import ControlSampler, SamplerSettings
from redline.envs.tasks import TaskError, control_task


class Uneven(gym.Env[Any, Any]):
    """Bounds of different widths, one of them not centred; remembers what it received."""

    received: list[Any]

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        low, high = np.array([-0.4, 1.0]), np.array([0.4, 1.7])
        self.action_space = gym.spaces.Box(low, high, dtype=np.float64)
        self.received = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


gym.register("ToyUneven-v0", Uneven, max_episode_steps=50)
gym.register(
    "ToyUnbounded-v0",
    lambda: _with_space(gym.spaces.Box(-np.inf, np.inf, (2,))),
    max_episode_steps=50,
)
gym.register("ToyNoRange-v0", lambda: _with_space(gym.spaces.Box(1.0, 1.0, (2,))))
gym.register("ToyWhole-v0", lambda: _with_space(gym.spaces.Box(0, 5, (2,), np.int64)))


def _with_space(space: gym.spaces.Space[Any]) -> Uneven:
    env = Uneven()
    env.action_space = space
    return env


def test_the_environment_receives_the_squashed_sample_and_the_learner_the_sample() -> None:
    task = control_task("ToyUneven-v0", "tanh")
    assert isinstance(task.distribution, TanhGaussian)
    close(task.distribution.half_range, [0.4, 0.35], rtol=1e-12)
    source = ControlSampler(task, SamplerSettings(1), np.random.default_rng(0), 0)
    policy = MLPPolicy(1, task.distribution, (4,), "tanh", np.random.default_rng(1), log_std=1.0)
    u = source.collect(policy, Need(steps=50)).action[0]
    assert np.abs(u).max() > 2.0
    received = np.stack(source.slots.envs[0].unwrapped.received)
    assert received.dtype == np.float64
    low, high = np.array([-0.4, 1.0]), np.array([0.4, 1.7])
    close(received, low + (high - low) * (np.tanh(u) + 1.0) / 2.0, rtol=1e-6, atol=1e-7)
    assert (received > low).all() and (received < high).all()


def test_far_samples_stay_within_the_bounds() -> None:
    task = control_task("ToyUneven-v0", "tanh")
    sent = task.to_env(np.array([[-1e6, -50.0], [50.0, 1e6]], np.float32))
    assert sent.tolist() == [[-0.4, 1.0], [0.4, 1.7]]


def test_the_mode_is_the_middle_of_the_samples() -> None:
    task = control_task("ToyUneven-v0", "tanh")
    raw = np.array([[0.3, -0.2]]), np.zeros(2)
    close(task.to_env(task.distribution.mode(raw)), task.to_env(raw[0]))


def test_clipped_actions_of_an_unbounded_box_are_sent_as_they_are() -> None:
    task = control_task("ToyUnbounded-v0")
    assert task.to_env(np.array([[1e6, -1e6]], np.float32)).tolist() == [[1e6, -1e6]]
    rollout = sampler("ToyUnbounded-v0").collect(
        MLPPolicy(1, task.distribution, (4,), "tanh", np.random.default_rng(0)), Need(steps=5)
    )
    assert rollout.action.shape == (1, 5, 2)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("CartPole-v1", r"tanh squashes Box actions .*'CartPole-v1' has Discrete\(2\)"),
        ("ToyUnbounded-v0", r"tanh needs a finite range .*'ToyUnbounded-v0' has Box\(-inf, inf"),
        ("ToyNoRange-v0", r"tanh needs a finite range .*'ToyNoRange-v0' has Box\(1.0, 1.0"),
        ("ToyWhole-v0", r"tanh squashes Box actions of floating numbers; .*int64"),
    ],
)
def test_what_cannot_be_squashed_is_refused(task: str, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        control_task(task, "tanh")


def test_whole_numbers_are_refused() -> None:
    with pytest.raises(TaskError, match=r"has the action space Box\(0, 5.*int64\); supported are"):
        control_task("ToyWhole-v0")


@pytest.mark.parametrize(("algo", "kind"), [("ppo", "mlp"), ("trpo", "torch")])
def test_a_run_with_squashed_actions(
    algo: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--steps", "600", "--n-envs", "2", "--n-steps", "150", "--evals", "1"]
    few += ["--eval-episodes", "2", "--policy", kind, "--hidden", "8", "--out", str(tmp_path)]
    bound = ["--action-bound", "tanh", "--log-std-init", "1"]
    sizes = ["--minibatch-size", "100"] if algo == "ppo" else []
    task = ["--task", "Pendulum-v1"]
    assert cli.main(["run", algo, *task, *few, *bound, *sizes]) == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "run.json").read_text())["run"]["action_bound"] == "tanh"
    last = json.loads((tmp_path / "eval.jsonl").read_text().splitlines()[-1])
    with redline.benchmark.load(tmp_path) as policy:
        assert np.mean(policy.returns()) == last["eval/mean_reward"]
        assert np.mean(policy.returns(False)) == last["eval/mean_reward_stochastic"]
        rng = np.random.default_rng(0)
        actions = np.array([policy.act(np.zeros(3, np.float32), rng) for _ in range(200)])
    # A clip to [-2, 2] would leave a third of them on a bound.
    assert (np.abs(actions) < 2.0).all() and np.abs(actions).max() > 1.9


def test_the_command_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "ppo", "--task", "CartPole-v1", "--action-bound", "tanh"]
    assert cli.main([*arguments, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("redline: action_bound tanh") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
