"""Whole episodes from given seeds, played side by side; shared by training and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from redline.algorithms.core.types import Array
from redline.envs.slots import EnvList

Act = Callable[[Array], Array]


class Tick(NamedTuple):
    """One step of all slots; slots whose queue is empty are not `active`.

    Attributes:
        observation: [N, D] what was acted on.
        action: [N, ...] sampled, before clipping.
        reward: [N], 0 where idle.
        active: [N] bool.
        episode: [N] index into the queue, -1 where idle.
        terminated: [N] bool.
        truncated: [N] bool.
        final: Slot -> the ended episode's last observation.
    """

    observation: Array
    action: Array
    reward: Array
    active: Array
    episode: Array
    terminated: Array
    truncated: Array
    final: dict[int, Array]


def play(envs: EnvList, seeds: Sequence[int], act: Act, on_tick: Callable[[Tick], None]) -> None:
    """Play one episode per seed. Every episode runs to its end, so short ones are not favoured.

    Args:
        envs: Slots; a free slot takes the next seed of the queue.
        seeds: Reset seed of every episode.
        act: Observations [N, D] -> actions [N, ...].
        on_tick: Sees every step.

    Raises:
        EnvironmentFault: An environment raised.
    """
    episode = np.full(envs.n, -1)
    waiting = iter(range(len(seeds)))
    for i in range(envs.n):
        _start_next(envs, i, episode, waiting, seeds)
    while (episode >= 0).any():
        tick = _tick(envs, episode, act)
        for i in tick.final:
            _start_next(envs, i, episode, waiting, seeds)
        on_tick(tick)


def _start_next(envs: EnvList, i: int, episode: Array, waiting: Any, seeds: Sequence[int]) -> None:
    episode[i] = next(waiting, -1)
    if episode[i] >= 0:
        envs.reset_slot(i, int(seeds[episode[i]]))


def _tick(envs: EnvList, episode: Array, act: Act) -> Tick:
    observation = envs.observation.copy()
    action = act(observation)
    one_each = envs.task.to_env(action)
    reward = np.zeros(envs.n)
    ended = np.zeros(envs.n, dtype=bool)
    cut = np.zeros(envs.n, dtype=bool)
    active = episode >= 0
    final = {}
    for i in np.flatnonzero(active).tolist():
        reward[i], ended[i], cut[i] = envs.step_slot(i, one_each[i])
        if ended[i] or cut[i]:
            final[i] = envs.observation[i].copy()
    return Tick(observation, action, reward, active, episode.copy(), ended, cut, final)
