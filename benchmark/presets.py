"""Settings per task family; recipes themselves know no task.

A preset holds dotted overrides of `RunConfig` and of the recipe, the same names as on the command
line.

CartPole: nineteen trials for each method, each on seeds 1000-1009 with 100,000 steps, chosen by the
mean of the final deterministic evaluation. Varied were

- reinforce: episodes 2-16, lr 3e-3 to 2e-2, gamma 0.98-1, gradient clip, entropy bonus (best:
  489.7);
- npg, trpo: n_steps 64-256, n_envs, gae_lambda 0.95-0.99, gamma, delta 0.01-0.05 with and without
  decay, damping, cg_iterations, critic_epochs, critic_lr_decay, entropy bonus;
- ppo: n_steps 32-128, epochs, minibatch_size, gae_lambda, gamma, lr, target_kl, clip schedule,
  entropy bonus, around the values that rl-zoo publishes (which ended at 472);
- grpo: groups x group_size, lr 1e-3 to 5e-3, epochs, minibatch_size, gamma, clip, std, target_kl,
  entropy bonus, per timestep;
- reinforce_group: groups x group_size, lr 2e-3 to 1e-2, gamma, std, grouping, gradient clip,
  entropy bonus, per timestep;
- reinforce_baseline: episodes 2-16, lr 5e-3 to 2e-2, gae_lambda 0.95-1, gamma, gradient clip,
  critic_epochs, entropy bonus, and steps in place of episodes (A2C);
- ppo_kl: n_steps 32-256, minibatch_size, lr, lr_decay, gamma, gae_lambda, epochs, kl_target 0.003
  to 0.05;
- cpi_penalty: the theoretical C, C 0.3-30 on mean or largest KL in either direction, lr 3e-4 and
  1e-3, n_steps, minibatch_size, gamma, gae_lambda, epochs. C between 1 and 10 on the mean KL does
  equally well; the theoretical C ends at 27;
- cpi: two trials only, on seeds 1000-1002: the bound's alpha, and line search with the recipe's
  other defaults, which reached 500 on all three.

The rest of GRPO's family on CartPole has grpo's values; `cispo` and `sapo`, which hold no ratio
back, take fewer and smaller steps (six trials each on seed 1000), for at grpo's the breaker trips.

MuJoCo: trials on seeds 1000 and 1001 with 300,000 steps, not the same number for every method:

- trpo (and npg, which takes the same steps unless the line search shortens one): 12 settings of
  n_envs x n_steps (8 x 128, 4 x 256, 2 x 512), delta with and without decay, log_std_init -0.5 and
  0, gae_lambda, on HalfCheetah, Hopper, Walker2d, Swimmer and the pendulums;
- ppo: 8 settings of n_steps 64 to 512, lr, log_std_init, normalize_reward, on the same tasks;
- trpo and ppo once more, five settings each (Swimmer: four), the preset among them and one
  ingredient changed at a time, on seed 1000 with 500,000 steps (docs/mujoco.md has the figures);
- once more at 1,000,000 steps on all tasks but Reacher and Humanoid, up to twelve settings for a
  method (likewise);
- trpo on Swimmer: gae_lambda 0.95 and 0.99, delta 0.02 and 0.01, seeds 1000-1005, 300,000 steps;
- reinforce: lr 1e-2 and 1e-3 on HalfCheetah and Hopper, seed 1000, 1,000,000 steps;
- cpi, cpi_penalty, ppo_kl, the rest of the reinforce family and grpo's: values that were not
  varied.

On CartPole many settings of npg, trpo and ppo tied at 500; a cheap one was taken. grpo's best, 500,
compares returns-to-go per timestep; with the paper's one advantage per episode the best ended at
492.6, and the suite `cartpole` reports it too (`--per episode`).
"""

from __future__ import annotations

from typing import Any

_NATURAL: dict[str, Any] = {"n_envs": 8, "n_steps": 128, "gae_lambda": 0.98}

_FAMILY: dict[str, Any] = {"groups": 4, "group_size": 4, "lr": 3e-3, "per": "timestep"}
# One number per episode, and minibatches that are counted in episodes.
_SEQUENCES: dict[str, Any] = {"per": "episode", "minibatch_size": 4}

# Nothing holds an element's ratio back, so fewer steps do.
_UNCLIPPED: dict[str, Any] = {"lr": 1e-3, "minibatch_size": None}

CARTPOLE: dict[str, dict[str, Any]] = {
    "reinforce": {"episodes": 4, "lr": 5e-3},
    "npg": _NATURAL,
    "trpo": _NATURAL,
    "ppo": {
        "n_envs": 8,
        "n_steps": 64,
        "minibatch_size": 256,
        "epochs": 10,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "lr": 1e-3,
        "lr_decay": True,
        "clip.schedule": "linear",
    },
    "grpo": _FAMILY,
    "dapo": _FAMILY,
    "dr_grpo": _FAMILY | {"length": 500},
    "dcpo": _FAMILY,
    "gspo": _FAMILY | _SEQUENCES,
    "gspo_token": _FAMILY | _SEQUENCES,
    "gmpo": _FAMILY | _SEQUENCES,
    "cispo": _FAMILY | _UNCLIPPED,
    "sapo": _FAMILY | _UNCLIPPED,
    "entropy_advantage": _FAMILY,
    "rloo": _FAMILY,
    "reinforce_plus_plus": _FAMILY,
    "reinforce_group": {"groups": 1, "group_size": 8, "lr": 1e-2, "per": "timestep"},
    "reinforce_baseline": {"critic_epochs": 5},
    "ppo_kl": {"lr_decay": True},
    "cpi": {"alpha": "line_search"},
    "cpi_penalty": {"penalty": 3.0, "kl_over": "mean"},
}

# Ingredients that every method shares on MuJoCo; each is a flag, so each can be taken away.
_MUJOCO: dict[str, Any] = {
    "steps": 1_000_000,
    "eval_episodes": 10,
    "n_envs": 8,
    "normalize_observation": True,
    "log_std_init": -0.5,
}
_CRITIC = _MUJOCO | {"scale_returns": True}
_FIRST_ORDER = _CRITIC | {"recompute_advantage": True, "lr_decay": True}
_NATURAL_MUJOCO = _CRITIC | {
    "n_steps": 128,
    "critic_epochs": 20,
    "critic_minibatch_size": 64,
    "critic_lr_decay": True,
}
_GROUP = {"groups": 1, "group_size": 8, "per": "timestep", "gamma": 0.99}
_GROUP_MUJOCO = _MUJOCO | _GROUP | {"lr": 1e-3}

MUJOCO: dict[str, dict[str, Any]] = {
    "reinforce": _MUJOCO | {"episodes": 2, "lr": 1e-3},
    "reinforce_group": _MUJOCO | _GROUP | {"lr": 1e-2},
    "reinforce_baseline": _CRITIC,
    "npg": _NATURAL_MUJOCO | {"delta": 0.02},
    "trpo": _NATURAL_MUJOCO | {"delta": 0.02},
    "ppo": _FIRST_ORDER | {"n_steps": 128},
    "ppo_kl": _FIRST_ORDER | {"kl_target": 0.03},
    "cpi": _CRITIC | {"alpha": "line_search", "delta": 0.03, "max_components": 4},
    "cpi_penalty": _FIRST_ORDER | {"penalty": 3.0, "kl_over": "mean"},
    "grpo": _GROUP_MUJOCO,
    "dapo": _GROUP_MUJOCO,
    "dr_grpo": _GROUP_MUJOCO | {"length": 1000},
    "gspo": _GROUP_MUJOCO | _SEQUENCES,
    "gspo_token": _GROUP_MUJOCO | _SEQUENCES,
    "gmpo": _GROUP_MUJOCO | _SEQUENCES,
    "cispo": _GROUP_MUJOCO,
    "sapo": _GROUP_MUJOCO,
    "entropy_advantage": _GROUP_MUJOCO,
    "rloo": _GROUP_MUJOCO,
    "reinforce_plus_plus": _GROUP_MUJOCO,
}

# What single tasks need besides, "" for every method. On the pendulums every return is the same
# once the pole stands, and a step of fixed KL along an advantage of mere noise throws it down: a
# large rollout averages it out, and a fixed multiple of F^-1 g shrinks with it. Their observations
# stay as they are, for policies on normalised ones fell from ordinary starts. So do Ant's, and its
# ppo went too far per update at 3e-4. Swimmer's natural steps have rl-zoo's rollouts and
# noise, which were not tried apart from each other, and a longer lambda: with 0.95 two trials of
# six stayed in a short-sighted gait. delta bounds a KL summed over action dimensions: HalfCheetah
# and Walker2d have six of them, Hopper three.
_STEADY = {"n_steps": 512, "delta": 0.01, "delta_decay": True}
_LONG = {"n_envs": 2, "n_steps": 1024, "gae_lambda": 0.99, "log_std_init": 0.0}
_HOPPING = {"n_steps": 256, "delta": 0.1, "delta_decay": True}
_MANY = {"n_envs": 64, "n_steps": 32}
_WIDE = {"delta": 0.05}
_WALKING = _WIDE | {"log_std_init": -1.0}
_RAW = {"normalize_observation": False}
_TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "HalfCheetah-v5": {"ppo": _MANY, "trpo": _WIDE, "npg": _WIDE},
    "Hopper-v5": {"ppo": _MANY | {"log_std_init": 0.0}, "trpo": _HOPPING, "npg": _HOPPING},
    "Walker2d-v5": {"trpo": _WALKING, "npg": _WALKING},
    "Swimmer-v5": {
        "": {"gamma": 0.9999},
        "trpo": _LONG,
        "npg": _LONG,
        "ppo": {"n_steps": 256},
    },
    "Ant-v5": {"": _RAW | {"log_std_init": -1.0}, "ppo": {"lr": 1e-4}},
    "InvertedPendulum-v5": {"": _RAW, "trpo": _STEADY, "npg": {"step_size": 0.1}},
    "InvertedDoublePendulum-v5": {
        "": _RAW,
        "trpo": _STEADY,
        "npg": _STEADY,
        "ppo": {"n_steps": 256},
    },
}

FAMILIES: dict[str, dict[str, dict[str, Any]]] = {"cartpole": CARTPOLE, "mujoco": MUJOCO}

_MUJOCO_TASKS = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)


def family(task: str) -> str | None:
    """The family that a task belongs to, None where there is none."""
    name = task.rpartition(":")[2].rpartition("-")[0]
    if name == "CartPole":
        return "cartpole"
    return "mujoco" if name in _MUJOCO_TASKS else None


def preset(algo: str, task: str) -> dict[str, Any]:
    """Overrides for an algorithm on a task; empty where the recipe's own defaults apply."""
    name = family(task)
    chosen = FAMILIES[name].get(algo, {}) if name else {}
    if not chosen:
        return {}
    special = _TASKS.get(task, {})
    return chosen | special.get("", {}) | special.get(algo, {})
