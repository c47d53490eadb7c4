"""Hyperparameters that rl-baselines3-zoo publishes, as data.

Source: DLR-RM/rl-baselines3-zoo, `hyperparams/*.yml` at commit 22e3ff2; the line above every entry
says which file and which name. The zoo's tasks end in -v2 or -v4; they are applied to every version
of a task, -v5 included, for which nothing is published. Its budgets (`n_timesteps`) are not: the
budget is the run's. `normalize: true` there is observations and rewards here.

A task that is not listed, and a setting that an entry does not name, has the library's default.
"""

from __future__ import annotations

from typing import Any

_NORMALIZED = {"normalize_observation": True, "normalize_reward": True}
# policy_kwargs of most tuned entries: ReLU networks of 256-256, a narrow first policy.
_WIDE = {"hidden": (256, 256), "activation": "relu", "log_std_init": -2.0, "ortho_init": False}

_PPO: dict[str, dict[str, Any]] = {
    # ppo.yml, CartPole-v1
    "CartPole": {
        "n_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
    },
    # ppo.yml, Ant-v4
    "Ant": _NORMALIZED,
    # ppo.yml, Swimmer-v4
    "Swimmer": _NORMALIZED
    | {
        "n_envs": 4,
        "n_steps": 1024,
        "batch_size": 256,
        "gamma": 0.9999,
        "learning_rate": 6e-4,
        "gae_lambda": 0.98,
    },
    # ppo.yml, HalfCheetah-v4
    "HalfCheetah": _NORMALIZED
    | _WIDE
    | {
        "batch_size": 64,
        "n_steps": 512,
        "gamma": 0.98,
        "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762,
        "clip_range": 0.1,
        "n_epochs": 20,
        "gae_lambda": 0.92,
        "max_grad_norm": 0.8,
        "vf_coef": 0.58096,
    },
    # ppo.yml, Hopper-v4
    "Hopper": _NORMALIZED
    | _WIDE
    | {
        "batch_size": 32,
        "n_steps": 512,
        "gamma": 0.999,
        "learning_rate": 9.80828e-05,
        "ent_coef": 0.00229519,
        "clip_range": 0.2,
        "n_epochs": 5,
        "gae_lambda": 0.99,
        "max_grad_norm": 0.7,
        "vf_coef": 0.835671,
    },
    # ppo.yml, Humanoid-v4
    "Humanoid": _NORMALIZED
    | _WIDE
    | {
        "batch_size": 256,
        "n_steps": 512,
        "gamma": 0.95,
        "learning_rate": 3.56987e-05,
        "ent_coef": 0.00238306,
        "clip_range": 0.3,
        "n_epochs": 5,
        "gae_lambda": 0.9,
        "max_grad_norm": 2.0,
        "vf_coef": 0.431892,
    },
    # ppo.yml, InvertedDoublePendulum-v2
    "InvertedDoublePendulum": _NORMALIZED
    | {
        "batch_size": 512,
        "n_steps": 128,
        "gamma": 0.98,
        "learning_rate": 0.000155454,
        "ent_coef": 1.05057e-06,
        "clip_range": 0.4,
        "n_epochs": 10,
        "gae_lambda": 0.8,
        "max_grad_norm": 0.5,
        "vf_coef": 0.695929,
    },
    # ppo.yml, InvertedPendulum-v2
    "InvertedPendulum": _NORMALIZED
    | {
        "batch_size": 64,
        "n_steps": 32,
        "gamma": 0.999,
        "learning_rate": 0.000222425,
        "ent_coef": 1.37976e-07,
        "clip_range": 0.4,
        "n_epochs": 5,
        "gae_lambda": 0.9,
        "max_grad_norm": 0.3,
        "vf_coef": 0.19816,
    },
    # ppo.yml, Reacher-v2
    "Reacher": _NORMALIZED
    | {
        "batch_size": 32,
        "n_steps": 512,
        "gamma": 0.9,
        "learning_rate": 0.000104019,
        "ent_coef": 7.52585e-08,
        "clip_range": 0.3,
        "n_epochs": 5,
        "gae_lambda": 1.0,
        "max_grad_norm": 0.9,
        "vf_coef": 0.950368,
    },
    # ppo.yml, Walker2d-v4
    "Walker2d": _NORMALIZED
    | {
        "batch_size": 32,
        "n_steps": 512,
        "gamma": 0.99,
        "learning_rate": 5.05041e-05,
        "ent_coef": 0.000585045,
        "clip_range": 0.1,
        "n_epochs": 20,
        "gae_lambda": 0.95,
        "max_grad_norm": 1.0,
        "vf_coef": 0.871923,
    },
}

_A2C: dict[str, dict[str, Any]] = {
    # a2c.yml, CartPole-v1
    "CartPole": {"n_envs": 8, "ent_coef": 0.0},
    # a2c.yml, HalfCheetah-v4, Ant-v4, Hopper-v4, Walker2d-v4, Humanoid-v4
    **dict.fromkeys(("HalfCheetah", "Ant", "Hopper", "Walker2d", "Humanoid"), _NORMALIZED),
    # a2c.yml, Swimmer-v4
    "Swimmer": _NORMALIZED | {"gamma": 0.9999},
}

# trpo.yml, Ant-v4, which refers to HalfCheetahBulletEnv-v0
_TRPO_MUJOCO = _NORMALIZED | {
    "n_envs": 2,
    "batch_size": 128,
    "n_steps": 1024,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "sub_sampling_factor": 1,
    "cg_max_steps": 25,
    "cg_damping": 0.1,
    "n_critic_updates": 20,
    "learning_rate": 1e-3,
}

_TRPO: dict[str, dict[str, Any]] = {
    # trpo.yml, CartPole-v1
    "CartPole": {
        "n_envs": 2,
        "n_steps": 512,
        "batch_size": 512,
        "cg_damping": 1e-3,
        "gae_lambda": 0.98,
        "gamma": 0.99,
        "learning_rate": 1e-3,
        "n_critic_updates": 20,
    },
    # trpo.yml, Ant-v4, Hopper-v4, Walker2d-v4, Humanoid-v4
    **dict.fromkeys(("Ant", "Hopper", "Walker2d", "Humanoid"), _TRPO_MUJOCO),
    # trpo.yml, HalfCheetah-v4
    "HalfCheetah": _TRPO_MUJOCO | {"target_kl": 0.04},
    # trpo.yml, Swimmer-v4
    "Swimmer": _TRPO_MUJOCO | {"gamma": 0.9999},
}

_PUBLISHED = {"sb3:ppo": _PPO, "sb3:a2c": _A2C, "sb3:trpo": _TRPO}


def published(algo: str, task: str) -> dict[str, Any]:
    """What the zoo sets for a baseline on any version of a task; empty where it lists none."""
    name = task.rpartition(":")[2].rpartition("-v")[0]
    return dict(_PUBLISHED[algo].get(name, {}))
