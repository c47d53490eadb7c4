"""Settings per task family; recipes themselves know no task.

A preset holds dotted overrides of `RunConfig` and of the recipe, the same names as on the command
line.
"""

from __future__ import annotations

from typing import Any

CARTPOLE: dict[str, dict[str, Any]] = {
    "reinforce": {},
    "npg": {},
    "trpo": {},
    "ppo": {
        "n_envs": 8,
        "n_steps": 32,
        "minibatch_size": 256,
        "epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "lr": 1e-3,
        "lr_decay": True,
        "clip.schedule": "linear",
    },
    "grpo": {},
}

FAMILIES: dict[str, dict[str, dict[str, Any]]] = {"cartpole": CARTPOLE}


def family(task: str) -> str | None:
    """The family that a task belongs to, None where there is none."""
    return "cartpole" if task.rpartition(":")[2].startswith("CartPole-") else None


def preset(algo: str, task: str) -> dict[str, Any]:
    """Overrides for an algorithm on a task; empty where the recipe's own defaults apply."""
    name = family(task)
    return dict(FAMILIES[name].get(algo, {})) if name else {}
