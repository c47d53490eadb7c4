"""Evaluation on fixed seeds with raw rewards and frozen statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redline.algorithms.core.types import Array
from redline.envs.episodes import Tick, play
from redline.envs.sampler import Actor
from redline.envs.slots import EnvList
from redline.envs.tasks import ControlTask, EnvironmentFault

# Far from the seeds that training draws, the same for every run and method.
FIRST_SEED = 10_000_000
_MAX_SLOTS = 20


class Evaluator:
    """Plays the same episodes at every call, unless it is given another seed.

    Args:
        task: What to play.
        episodes: Episode k starts from seed `FIRST_SEED + k`; each is counted once.
        normalise: Observations as the policy sees them; never updates statistics.

    Raises:
        ValueError: Fewer than one episode.
    """

    def __init__(
        self, task: ControlTask, episodes: int, normalise: Callable[[Array], Array]
    ) -> None:
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        self.episodes, self.normalise = episodes, normalise
        self.envs = EnvList(task, min(episodes, _MAX_SLOTS))

    def returns(
        self, policy: Actor, deterministic: bool, first_seed: int = FIRST_SEED
    ) -> list[float]:
        """Undiscounted raw return of every episode, in the order of the seeds.

        Args:
            policy: Acts.
            deterministic: The most likely actions.
            first_seed: Of episode 0, and of the noise where actions are sampled.

        Raises:
            EnvironmentFault: A return is not finite.
        """
        totals = np.zeros(self.episodes)
        rng = None if deterministic else np.random.default_rng(first_seed)

        def act(observation: Array) -> Array:
            return policy.act(self.normalise(observation), rng)

        def on_tick(tick: Tick) -> None:
            totals[tick.episode[tick.active]] += tick.reward[tick.active]

        seeds = range(first_seed, first_seed + self.episodes)
        play(self.envs, seeds, act, on_tick)
        if not np.isfinite(totals).all():
            name = self.envs.task.name
            raise EnvironmentFault(
                f"{name}: an evaluation return is {totals[~np.isfinite(totals)][0]}"
            )
        return [float(total) for total in totals]

    def close(self) -> None:
        """Release the environments."""
        self.envs.close()
