"""Settings of the external baselines arrive at the libraries, number by number."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from redline.benchmark.arguments import resolve
from redline.benchmark.baselines.model import Environments, Model
from redline.benchmark.baselines.training import parts
from redline.benchmark.config import flat_fields
from redline.envs.tasks import control_task

NORMALIZED = ("--normalize-observation", "--normalize-reward")

# Values that are no default, of the settings that the library keeps under the same name.
CHOSEN: dict[str, dict[str, Any]] = {
    "sb3:ppo": {
        "n_steps": 24,
        "batch_size": 12,
        "n_epochs": 3,
        "gamma": 0.91,
        "gae_lambda": 0.81,
        "normalize_advantage": False,
        "ent_coef": 0.013,
        "vf_coef": 0.31,
        "max_grad_norm": 0.41,
        "target_kl": 0.021,
    },
    "sb3:a2c": {
        "n_steps": 7,
        "gamma": 0.92,
        "gae_lambda": 0.82,
        "ent_coef": 0.012,
        "vf_coef": 0.32,
        "max_grad_norm": 0.42,
        "normalize_advantage": True,
    },
    "sb3:trpo": {
        "n_steps": 26,
        "batch_size": 13,
        "gamma": 0.93,
        "cg_max_steps": 4,
        "cg_damping": 0.03,
        "line_search_shrinking_factor": 0.7,
        "line_search_max_iter": 6,
        "n_critic_updates": 2,
        "gae_lambda": 0.83,
        "normalize_advantage": False,
        "target_kl": 0.023,
        "sub_sampling_factor": 2,
    },
}


def flags(settings: dict[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{name}"
        else:
            yield from (f"--{name}", str(value))


def built(algo: str, *arguments: str, task: str = "Pendulum-v1") -> tuple[Model, Environments]:
    resolved = resolve(algo, ["--task", task, *arguments])
    learned, track = parts(resolved)
    environments: Any = track.sampler
    environments.close()
    track.evaluator.close()
    return learned, environments


@pytest.mark.parametrize("algo", CHOSEN)
def test_every_setting_reaches_the_library(algo: str) -> None:
    chosen = CHOSEN[algo]
    run = ("--seed", "5", "--n-envs", "3", "--hidden", "9", "7", "--activation", "relu")
    rates = ("--learning-rate", "0.0011", "--log-std-init", "-1.5", "--no-ortho-init")
    model, environments = built(algo, *flags(chosen), *run, *rates, *NORMALIZED)
    method: Any = model.method
    assert {name: getattr(method, name) for name in chosen} == chosen
    assert (method.seed, method.n_envs, str(method.device)) == (5, 3, "cpu")
    assert method.lr_schedule(0.3) == 0.0011
    policy = method.policy
    assert [type(part).__name__ for part in policy.mlp_extractor.policy_net] == 2 * [
        "Linear",
        "ReLU",
    ]
    for net in (policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net):
        assert [part.out_features for part in net[::2]] == [9, 7]
    assert policy.log_std.tolist() == [-1.5] and policy.ortho_init is False
    assert environments.env.norm_obs and environments.env.norm_reward
    assert environments.env.gamma == chosen["gamma"]
    # Nothing of a baseline's own is left without a value above, or a test below.
    tested = {*chosen, "learning_rate", "ortho_init"}
    elsewhere = {"clip_range", "clip_range_vf", "rms_prop_eps", "use_rms_prop"}
    assert set(flat_fields(resolve(algo, ["--task", "X-v0"]).recipe)) - elsewhere == tested


def test_settings_that_one_baseline_has() -> None:
    method: Any = built("sb3:ppo", "--clip-range", "lin_0.3", "--clip-range-vf", "0.6")[0].method
    assert [method.clip_range(share) for share in (1.0, 0.5, -0.1)] == [0.3, 0.15, 0.0]
    assert method.clip_range_vf(0.5) == 0.6
    method = built("sb3:a2c", "--learning-rate", "lin_7e-4", "--rms-prop-eps", "1e-4")[0].method
    assert isinstance(method.policy.optimizer, torch.optim.RMSprop)
    assert method.policy.optimizer.defaults["eps"] == 1e-4
    assert method.lr_schedule(0.5) == pytest.approx(3.5e-4)
    method = built("sb3:a2c", "--no-use-rms-prop")[0].method
    assert isinstance(method.policy.optimizer, torch.optim.Adam)


@pytest.mark.parametrize("algo", CHOSEN)
def test_defaults_are_the_librarys(algo: str) -> None:
    """On a task for which rl-zoo publishes nothing."""
    model, environments = built(algo)
    resolved = resolve(algo, ["--task", "Pendulum-v1"])
    kind: Any = type(model.method)
    theirs: Any = kind("MlpPolicy", gym.make("Pendulum-v1"), device="cpu")
    for name in CHOSEN[algo]:
        assert getattr(model.method, name) == getattr(theirs, name)
    assert model.method.lr_schedule(1.0) == theirs.lr_schedule(1.0)
    assert str(model.method.policy) == str(theirs.policy)
    assert model.method.policy.optimizer.defaults == theirs.policy.optimizer.defaults
    assert resolved.run.n_envs == 1 and not environments.env.norm_obs
    assert not environments.env.norm_reward and not resolved.overrides


# From rl-zoo's files: what a run on the task starts from.
PUBLISHED: list[tuple[str, str, dict[str, Any]]] = [
    ("sb3:ppo", "CartPole-v1", {"n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20}),
    ("sb3:ppo", "CartPole-v1", {"learning_rate": "lin_0.001", "clip_range": "lin_0.2"}),
    ("sb3:ppo", "CartPole-v1", {"gamma": 0.98, "gae_lambda": 0.8, "normalize_reward": False}),
    ("sb3:ppo", "HalfCheetah-v5", {"learning_rate": 2.0633e-05, "ent_coef": 0.000401762}),
    ("sb3:ppo", "HalfCheetah-v4", {"vf_coef": 0.58096, "max_grad_norm": 0.8, "gamma": 0.98}),
    ("sb3:ppo", "HalfCheetah-v5", {"hidden": (256, 256), "log_std_init": -2.0, "n_envs": 1}),
    ("sb3:ppo", "HalfCheetah-v5", {"normalize_reward": True, "ortho_init": False}),
    ("sb3:ppo", "Hopper-v5", {"learning_rate": 9.80828e-05, "gamma": 0.999, "batch_size": 32}),
    ("sb3:ppo", "InvertedPendulum-v5", {"learning_rate": 0.000222425, "hidden": (64, 64)}),
    ("sb3:ppo", "Ant-v5", {"n_steps": 2048, "normalize_observation": True}),
    ("sb3:ppo", "HumanoidStandup-v5", {"n_steps": 2048, "normalize_observation": False}),
    ("sb3:a2c", "Swimmer-v5", {"gamma": 0.9999, "learning_rate": 7e-4, "n_envs": 1}),
    ("sb3:trpo", "CartPole-v1", {"cg_damping": 1e-3, "n_envs": 2, "n_critic_updates": 20}),
    ("sb3:trpo", "HalfCheetah-v5", {"target_kl": 0.04, "cg_max_steps": 25, "n_envs": 2}),
    ("sb3:trpo", "Walker2d-v5", {"target_kl": 0.01, "normalize_reward": True}),
]


@pytest.mark.parametrize("algo, task, expected", PUBLISHED)
def test_published_settings(algo: str, task: str, expected: dict[str, Any]) -> None:
    resolved = resolve(algo, ["--task", task])
    values = vars(resolved.run) | vars(resolved.recipe)
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_samples_follow_the_librarys_distribution(task: str) -> None:
    model, _ = built("sb3:ppo", "--log-std-init", "-0.7", task=task)
    observation = np.full((4_000, control_task(task).observation_size), 0.3, np.float32)
    sampled = model.policy.act(observation, np.random.default_rng(0))
    torch.manual_seed(0)
    theirs, _ = model.method.predict(observation, deterministic=False)
    if task == "Pendulum-v1":
        assert 0.95 < np.std(sampled) / np.exp(-0.7) < 1.05
        sampled = np.clip(sampled, -2.0, 2.0)
    assert -0.03 < np.mean(sampled) - np.mean(theirs) < 0.03
