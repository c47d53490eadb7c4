"""Time and memory of a single update, of every method on the same rollout."""

from __future__ import annotations

import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np

from redline.algorithms import registry
from redline.algorithms.core.contracts import Critic
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Need, Progress, Rollout
from redline.benchmark.config import Resolved, replace_fields
from redline.benchmark.errors import unknown
from redline.benchmark.tracks import ControlConfig
from redline.envs.policies import MLPCritic, MLPPolicy
from redline.envs.sampler import Actor, ControlSampler, SamplerSettings
from redline.envs.tasks import ControlTask

# A rollout that every method accepts: whole episodes, in groups from one start.
GROUPS, GROUP_SIZE, EPISODE = 4, 4, 128
ELEMENTS = GROUPS * GROUP_SIZE * EPISODE

DENSE = "--solver=dense"


class _ShortTask(ControlTask):
    """A task whose episodes are cut at `EPISODE` steps."""

    def make(self) -> gym.Env[Any, Any]:
        return gym.wrappers.TimeLimit(super().make(), EPISODE)


@dataclass(frozen=True)
class Networks:
    """Policy and critic in their initial state."""

    task: ControlTask
    hidden: Sequence[int] = (64, 64)

    def policy(self) -> Any:
        """A new policy, the same every time."""
        rng = np.random.default_rng(0)
        return MLPPolicy(
            self.task.observation_size, self.task.distribution, self.hidden, "tanh", rng
        )

    def critic(self) -> MLPCritic:
        """A new critic, the same every time."""
        rng = np.random.default_rng(1)
        return MLPCritic(self.task.observation_size, self.hidden, "tanh", rng)


def names() -> list[str]:
    """Every method, and once more with a dense Fisher matrix where it has a solver."""
    found = []
    for name in registry.names():
        found.append(name)
        if "solver" in {field.name for field in fields(registry.get(name))}:
            found.append(name + DENSE)
    return found


def chosen(only: Iterable[str]) -> list[str]:
    """The methods called `only`, all of them where there are none.

    Raises:
        BadInput: No method is called so.
    """
    known, wanted = names(), list(only)
    for name in wanted:
        if name not in known:
            raise unknown("method", name, known)
    return [name for name in known if not wanted or name in wanted]


def resolved(name: str, task: str, hidden: Sequence[int] = (64, 64)) -> Resolved:
    """A method at its own defaults, whatever the task."""
    algo = name.removesuffix(DENSE)
    settings = {"solver": "dense"} if name.endswith(DENSE) else {}
    recipe = replace_fields(registry.get(algo)(), settings)
    return Resolved(algo, recipe, ControlConfig(task=task, hidden=tuple(hidden)))


def rollout(task: ControlTask, policy: Actor, elements: int = ELEMENTS) -> Rollout:
    """Whole episodes in groups, about `elements` steps of them.

    Raises:
        EnvironmentFault: The environment raised.
    """
    short = _ShortTask(**vars(task))
    rng = np.random.default_rng(2)
    groups = max(1, elements // (GROUP_SIZE * EPISODE))
    slots = SamplerSettings(n_envs=groups * GROUP_SIZE)
    sampler = ControlSampler(short, slots, rng, seed=0)
    try:
        found = sampler.collect(policy, Need(groups=groups, group_size=GROUP_SIZE))
        if found.steps < elements:
            # Episodes of this task end early.
            groups = math.ceil(groups * elements / found.steps)
            found = sampler.collect(policy, Need(groups=groups, group_size=GROUP_SIZE))
        return found
    finally:
        sampler.close()


@dataclass(frozen=True)
class Measured:
    """What one update of one method takes.

    Attributes:
        name: Of the method.
        seconds: Wall time of every repeat.
        memory_mb: Largest memory allocated beyond what was there before, in MiB.
    """

    name: str
    seconds: Sequence[float]
    memory_mb: float

    @property
    def median(self) -> float:
        """Median wall time in seconds."""
        return statistics.median(self.seconds)

    def row(self, task: str) -> dict[str, Any]:
        """What the JSON file holds."""
        return {
            "name": f"update/{task}/{self.name}",
            "seconds_median": self.median,
            "seconds_min": min(self.seconds),
            "seconds_max": max(self.seconds),
            "memory_mb": self.memory_mb,
            "repeats": len(self.seconds),
        }


def measure(name: str, networks: Networks, on: Rollout, repeats: int) -> Measured:
    """Time one update over and over from the same state, then its memory.

    Args:
        name: Of the method; a dense one, which takes long, is timed once and without a warm-up.
        networks: What learns.
        on: What is learned from.
        repeats: Timed updates.

    Raises:
        FloatingPointError: A gradient is not finite.
    """
    algorithm = resolved(name, networks.task.name, networks.hidden).recipe.build()
    policy, critic = networks.policy(), networks.critic()
    start = policy.snapshot(), critic.snapshot()

    def learner(policy: Any, critic: Critic) -> Learner:
        return Learner(algorithm, policy, critic, np.random.default_rng(3))

    seconds = []
    once = name.endswith(DENSE)
    for _ in range(1 if once else repeats + 1):
        policy.restore(start[0])
        critic.restore(start[1])
        seconds.append(_seconds(learner(policy, critic), on))
    memory = _memory_mb(learner(networks.policy(), networks.critic()), on)
    return Measured(name, seconds if once else seconds[1:], memory)


def _seconds(learner: Learner, on: Rollout) -> float:
    gc.collect()
    start = time.perf_counter()
    learner.update(on, Progress(0, on.steps))
    return time.perf_counter() - start


def _memory_mb(learner: Learner, on: Rollout) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        learner.update(on, Progress(0, on.steps))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (peak - before) / 2**20
