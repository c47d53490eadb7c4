"""Sampler, learner and either policy together, for every recipe and kind of action space."""

from itertools import product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from closeness import close, identical, to_numpy
from small import small

from redline.algorithms import registry
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Need, Progress
from redline.benchmark import checkpoint
from redline.benchmark.arguments import resolve
from redline.benchmark.errors import BadInput
from redline.benchmark.train import train
from redline.envs.sampler import SamplerSettings
from redline.envs.tasks import control_task
from redline.envs.track import ControlTrack, NetworkSettings, control_track

NAMES = registry.names()
KINDS = ("mlp", "torch")
TASKS = ("CartPole-v1", "ToyMatch-v0", "Pendulum-v1")
START = Progress(0, 100_000)


class Match(gym.Env[Any, Any]):
    """Two choices, among 2 and among 3; each pays 1/2 when it is the one that the state names."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (6,), np.float32)
        self.action_space = gym.spaces.MultiDiscrete([2, 3])

    def _observation(self) -> Any:
        self.state = int(self.np_random.integers(6))
        return np.eye(6, dtype=np.float32)[self.state]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        right = int(action[0] == self.state % 2) + int(action[1] == self.state % 3)
        return self._observation(), right / 2.0, False, False, {}


gym.register("ToyMatch-v0", Match, max_episode_steps=4)


def make_track(kind: Any, task: str, algorithm: Algorithm, seed: int = 0) -> ControlTrack:
    return control_track(
        control_task(task),
        networks=NetworkSettings(kind=kind, hidden=(8, 8)),
        sampling=SamplerSettings(n_envs=3),
        needs_critic=algorithm.needs_critic,
        eval_episodes=1,
        seed=seed,
    )


def make_learner(track: ControlTrack, algorithm: Algorithm) -> Learner:
    return Learner(algorithm, track.policy, track.critic, np.random.default_rng(5))


# dcpo's bounds are refused on Box actions.
CASES = [pair for pair in product(NAMES, TASKS) if pair != ("dcpo", "Pendulum-v1")]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_two_updates_give_both_policies_the_same_parameters(name: str, task: str) -> None:
    algorithm = small(name)
    tracks = [make_track(kind, task, algorithm) for kind in KINDS]
    learners = [make_learner(track, algorithm) for track in tracks]
    before = tracks[0].policy.snapshot()
    for done in (0, 50_000):
        rollout = tracks[0].collect(learners[0].policy, algorithm.need)
        expected, metrics = (
            learner.update(rollout, Progress(done, 100_000)) for learner in learners
        )
        assert metrics.keys() == expected.keys()
        for key, value in expected.items():
            assert metrics[key] == pytest.approx(value, rel=1e-3, abs=1e-5, nan_ok=True), key
    ours, other = (to_numpy(learner.policy.parameters) for learner in learners)
    close(other, ours, rtol=0, atol=1e-5)
    assert np.abs(before - ours[-len(before) :]).max() > 1e-4
    if algorithm.needs_critic:
        numpy, other = (track.critic for track in tracks)
        assert numpy is not None and other is not None
        close(other.parameters, numpy.parameters, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_runs_on_several_discrete_actions(name: str, kind: str) -> None:
    algorithm = small(name)
    track = make_track(kind, "ToyMatch-v0", algorithm)
    learner = make_learner(track, algorithm)
    before = to_numpy(track.policy.snapshot())
    rollout = track.collect(track.policy, algorithm.need)
    assert rollout.action.shape == (*rollout.mask.shape, 2)
    assert rollout.action.max(axis=(0, 1)).tolist() == [1, 2]
    metrics = learner.update(rollout, START)
    assert np.isfinite(list(metrics.values())).all(), metrics
    assert not np.array_equal(to_numpy(learner.policy.parameters), before)
    scores = track.evaluate(learner.policy)
    assert set(scores) == {"eval/mean_reward", "eval/mean_reward_stochastic"}


@pytest.mark.parametrize("solver", ["cg", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_goes_to_numpy_by_way_of_the_host_only(
    name: str, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU's tensors refuse is refused here too."""
    algorithm = small(name, solver=solver, kl_coef=0.1, target_kl=1.0)
    task = "CartPole-v1" if name == "dcpo" else "Pendulum-v1"
    track = make_track("torch", task, algorithm)
    learner = make_learner(track, algorithm)
    convert = torch.Tensor.numpy

    def cpu(tensor: Any) -> Any:
        copy = tensor.clone()
        copy.on_host = True
        return copy

    def refuse(tensor: Any, *arguments: Any) -> Any:
        assert getattr(tensor, "on_host", False), "a device tensor was converted to numpy"
        return convert(tensor, *arguments)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    monkeypatch.setattr(torch.Tensor, "numpy", refuse)
    with pytest.raises(AssertionError, match="a device tensor"):
        np.asarray(track.policy.parameters)
    learner.update(track.collect(track.policy, algorithm.need), START)
    track.evaluate(learner.policy)


@pytest.mark.parametrize("kind", KINDS)
def test_ppo_learns_to_match(kind: str) -> None:
    algorithm = small("ppo", n_steps=64, lr=1e-2, minibatch_size=32, epochs=4)
    track = make_track(kind, "ToyMatch-v0", algorithm)
    learner = make_learner(track, algorithm)
    rewards = []
    for _ in range(15):
        rollout = track.collect(track.policy, algorithm.need)
        learner.update(rollout, START)
        rewards.append(float(rollout.reward.mean()))
    assert rewards[0] < 0.55  # at random (1/2 + 1/3) / 2
    assert min(rewards[-3:]) > 0.85


@pytest.mark.parametrize("name", NAMES)
def test_a_torch_learner_goes_on_from_its_checkpoint(name: str, tmp_path: Path) -> None:
    algorithm = small(name, kl_coef=0.1)
    track = make_track("torch", "ToyMatch-v0", algorithm)
    learner = make_learner(track, algorithm)
    rollouts = [track.collect(track.policy, algorithm.need) for _ in range(2)]
    learner.update(rollouts[0], START)
    checkpoint.save(tmp_path, learner.state_dict())

    fresh = make_track("torch", "ToyMatch-v0", algorithm, seed=1)
    again = make_learner(fresh, algorithm)
    again.load_state_dict(checkpoint.load(tmp_path))
    again.rng.bit_generator.state = learner.rng.bit_generator.state
    expected, metrics = (one.update(rollouts[1], START) for one in (learner, again))
    assert metrics == expected
    identical(again.policy.parameters, learner.policy.parameters)


def test_a_run_takes_the_torch_policy_and_refuses_a_missing_device(tmp_path: Path) -> None:
    settings = ["--task=ToyMatch-v0", "--steps=60", "--evals=1", "--n-steps=16"]
    returns = [
        train(resolve("ppo", [*settings, "--policy", kind]), tmp_path / kind) for kind in KINDS
    ]
    assert returns[0] == returns[1]
    resolved = resolve("ppo", [*settings, "--policy", "torch", "--device", "cuda:99"])
    with pytest.raises(BadInput, match="device 'cuda:99' cannot be used: "):
        train(resolved, tmp_path / "none")
    assert not (tmp_path / "none").exists()


PLUGIN = '''
from dataclasses import dataclass, replace

from redline.algorithms.core.surrogates import from_objective
from redline.algorithms.ppo import PPO
from redline.algorithms.registry import register


def clipped(xp, e):
    lo, hi = e.bounds
    ratio = xp.exp(e.log_prob - e.old_log_prob)
    return xp.minimum(ratio * e.advantage, xp.minimum(xp.maximum(ratio, lo), hi) * e.advantage)


@register("my-ppo")
@dataclass(frozen=True)
class Mine(PPO):
    """PPO from its objective alone."""

    def build(self):
        return replace(super().build(), surrogate=from_objective(clipped, clips=True))
'''


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_that_states_an_objective_is_ppo(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    registry.load_plugin(tmp_path / "mine.py")
    found = []
    for name in ("ppo", "my-ppo"):
        algorithm = small(name, lr=3e-2, epochs=4)
        track = make_track(kind, "CartPole-v1", algorithm)
        rollout = track.collect(track.policy, Need(steps=16))
        metrics = make_learner(track, algorithm).update(rollout, START)
        found.append((to_numpy(track.policy.parameters), metrics))
    (expected, by_weight), (actual, by_objective) = found
    assert by_weight["train/clip_fraction"] > 0.05
    assert by_objective["train/clip_fraction"] == by_weight["train/clip_fraction"]
    close(actual, expected, rtol=0, atol=1e-5)
