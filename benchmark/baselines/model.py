"""Stable-Baselines3's and sb3-contrib's objects for a run, and their policies for our evaluator."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import TRPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from redline.algorithms.core.types import Array, Params
from redline.benchmark.baselines.sb3 import of_run, schedule
from redline.benchmark.baselines.settings import parsed
from redline.benchmark.config import Resolved
from redline.envs.tasks import ControlTask, Env

_METHODS: dict[str, type[OnPolicyAlgorithm]] = {"sb3:ppo": PPO, "sb3:a2c": A2C, "sb3:trpo": TRPO}
_RATES = ("learning_rate", "clip_range")


class Environments:
    """Environments to train in, and the statistics that their normalisation gathers.

    Args:
        task: What to play.
        resolved: Settings.

    Attributes:
        env: What the library's methods train in.
    """

    def __init__(self, task: ControlTask, resolved: Resolved) -> None:
        run = resolved.control
        self.env = VecNormalize(
            DummyVecEnv([partial(_monitored, task)] * run.n_envs),
            norm_obs=run.normalize_observation,
            norm_reward=run.normalize_reward,
            gamma=resolved.recipe.gamma,
        )

    def normalise(self, observation: Array) -> Array:
        """Observations as the policy sees them; never updates the statistics."""
        return np.asarray(self.env.normalize_obs(observation), dtype=np.float32)

    def state_dict(self) -> dict[str, Any]:
        """The statistics that are gathered."""
        return {name: vars(moments).copy() for name, moments in self._moments().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for name, moments in self._moments().items():
            moments.mean, moments.var = state[name]["mean"], state[name]["var"]
            moments.count = float(state[name]["count"])

    def _moments(self) -> dict[str, RunningMeanStd]:
        seen: Any = {"observation": self.env.obs_rms} if self.env.norm_obs else {}
        return {"reward": self.env.ret_rms, **seen}

    def close(self) -> None:
        """Release them."""
        self.env.close()


def _monitored(task: ControlTask) -> Env:
    """An environment of ours that notes its raw returns, with actions that count from 0."""
    env = task.make()
    space: Any = env.action_space
    zero_based: gym.Space[Any] | None = None
    if isinstance(space, gym.spaces.Discrete) and space.start:
        zero_based = gym.spaces.Discrete(space.n)
    elif isinstance(space, gym.spaces.MultiDiscrete) and np.any(space.start):
        zero_based = gym.spaces.MultiDiscrete(space.nvec)
    if zero_based is not None:
        env = gym.wrappers.TransformAction(env, lambda action: action + space.start, zero_based)
    return Monitor(env)


class Player:
    """A policy of Stable-Baselines3 as our evaluator calls one.

    Args:
        policy: The library's own.
        task: Its distribution draws the actions, so that both sides sample alike.
    """

    def __init__(self, policy: ActorCriticPolicy, task: ControlTask) -> None:
        self.policy, self._task = policy, task

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """Actions [N, ...] for normalised observations [N, D]; the mode when `rng` is None."""
        with torch.no_grad():
            rows = torch.as_tensor(observation, device=self.policy.device)
            raw = _raw(self.policy.get_distribution(rows).distribution)
        draws = self._task.distribution
        return draws.mode(raw) if rng is None else draws.sample(raw, rng)


def _raw(distribution: Any) -> Params:
    """What a network of ours would have put out for the same distribution."""
    if isinstance(distribution, torch.distributions.Normal):
        return distribution.mean.cpu().numpy(), distribution.stddev.log().cpu().numpy()
    parts = distribution if isinstance(distribution, list) else [distribution]
    return (torch.cat([part.logits for part in parts], dim=-1).cpu().numpy(),)


class Model:
    """One of the libraries' methods, ready to learn.

    Args:
        resolved: Settings.
        task: What is played.
        environments: Where it trains.

    Attributes:
        method: The library's own object.
        policy: Its policy.
    """

    def __init__(self, resolved: Resolved, task: ControlTask, environments: Environments) -> None:
        settings = dict(vars(resolved.recipe))
        shared = of_run(resolved.control, ortho_init=settings.pop("ortho_init"))
        rates = {name: schedule(*parsed(settings[name])) for name in _RATES if name in settings}
        with warnings.catch_warnings():
            # Minibatches that do not divide a rollout are among what rl-zoo publishes.
            warnings.filterwarnings("ignore", "You have specified a mini-batch size")
            make: Any = _METHODS[resolved.algo]
            self.method: OnPolicyAlgorithm = make(
                "MlpPolicy", environments.env, **(settings | rates | shared)
            )
        # Its own output; what it logs is read from memory.
        self.method.set_logger(Logger(folder=None, output_formats=[]))
        self.policy = Player(self.method.policy, task)

    def state_dict(self) -> dict[str, Any]:
        """Parameters of policy and critic; the optimiser's state is not kept."""
        return dict(self.method.policy.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        tensors = {name: torch.as_tensor(value) for name, value in state.items()}
        self.method.policy.load_state_dict(tensors)
