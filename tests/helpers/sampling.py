"""Samplers and policies on named tasks."""

import gymnasium as gym
import numpy as np
import toys  # noqa: F401

from redline.envs.policies import MLPPolicy
from redline.envs.sampler import ControlSampler, SamplerSettings
from redline.envs.slots import VectorSlots
from redline.envs.tasks import control_task


def sampler(name, n=1, seed=0, **settings):
    rng = np.random.default_rng(seed)
    return ControlSampler(control_task(name), SamplerSettings(n_envs=n, **settings), rng, seed)


def policy(name, seed=0):
    task = control_task(name)
    rng = np.random.default_rng(seed)
    return MLPPolicy(task.observation_size, task.distribution, (8,), "tanh", rng)


def vector_sampler(name, mode, n=1):
    source = sampler(name, n)
    task = control_task(name)
    env = gym.vector.SyncVectorEnv([task.make for _ in range(n)], autoreset_mode=mode)
    source.slots = VectorSlots(task, env)
    return source
