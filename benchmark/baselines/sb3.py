"""A run of ours by Stable-Baselines3 (PPO) or sb3-contrib (TRPO), at the same settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from sb3_contrib import TRPO
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from redline.benchmark.config import Resolved, flat_fields
from redline.benchmark.tracks import ControlConfig

_ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}

# Our name -> theirs.
_SHARED = {
    "n_steps": "n_steps",
    "gamma": "gamma",
    "gae_lambda": "gae_lambda",
    "standardise_advantage": "normalize_advantage",
}
_PPO = _SHARED | {
    "minibatch_size": "batch_size",
    "epochs": "n_epochs",
    "entropy_coef": "ent_coef",
    "max_grad_norm": "max_grad_norm",
    "target_kl": "target_kl",
}
_TRPO = _SHARED | {
    "critic_minibatch_size": "batch_size",
    "critic_epochs": "n_critic_updates",
    "cg_iterations": "cg_max_steps",
    "damping": "cg_damping",
    "backtrack": "line_search_shrinking_factor",
    "max_backtracks": "line_search_max_iter",
    "delta": "target_kl",
}


class StableBaselines3:
    """One run, ready to learn.

    Args:
        resolved: Settings of ppo or trpo. What the other library has no name for is its default.

    Attributes:
        model: The library's own object.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._budget = resolved.run.steps
        self._env = make_vec_env(
            resolved.run.task, n_envs=resolved.control.n_envs, seed=resolved.run.seed
        )
        self.model = _model(resolved, self._env)

    def learn(self) -> None:
        """Train to the end of the budget, by whole rollouts."""
        self.model.learn(self._budget)

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.model.num_timesteps

    @property
    def returns(self) -> list[float]:
        """Returns of all episodes so far, in the order in which they ended."""
        times, rewards = (
            itertools.chain.from_iterable(self._env.env_method(name))
            for name in ("get_episode_times", "get_episode_rewards")
        )
        pairs = zip(times, rewards, strict=True)
        return [value for _, value in sorted(pairs)]

    def close(self) -> None:
        """Release the environments."""
        self._env.close()


def _model(resolved: Resolved, env: VecEnv) -> BaseAlgorithm:
    recipe, shared = flat_fields(resolved.recipe), of_run(resolved.control)
    if resolved.algo == "ppo":
        return PPO(
            "MlpPolicy",
            env,
            learning_rate=schedule(recipe["lr"], recipe["lr_decay"]),
            clip_range=schedule(recipe["clip.high"], recipe["clip.schedule"] == "linear"),
            **_translated(recipe, _PPO),
            **shared,
        )
    return TRPO(
        "MlpPolicy",
        env,
        learning_rate=schedule(recipe["critic_lr"], recipe["critic_lr_decay"]),
        **_translated(recipe, _TRPO),
        **shared,
    )


def _translated(recipe: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {theirs: recipe[ours] for ours, theirs in names.items()}


def of_run(run: ControlConfig, **policy: Any) -> dict[str, Any]:
    """Arguments of either library's methods that are settings of every run.

    Args:
        run: The settings.
        policy: More of `policy_kwargs`.
    """
    hidden = list(run.hidden)
    return {
        "seed": run.seed,
        "device": run.device,
        "policy_kwargs": {
            "net_arch": {"pi": hidden, "vf": hidden},
            "activation_fn": _ACTIVATIONS[run.activation],
            "log_std_init": run.log_std_init,
            **policy,
        },
    }


def schedule(value: float, decays: bool) -> float | Callable[[float], float]:
    """A constant, or what falls from `value` to 0 over the budget."""
    # The last rollout may go past the budget, where the library would pass a negative share.
    return (lambda remaining: value * max(remaining, 0.0)) if decays else value
