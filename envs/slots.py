"""Environments stepped side by side, whatever their autoreset mode."""

from __future__ import annotations

import logging
import math
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from redline.algorithms.core.types import Array
from redline.envs import states
from redline.envs.tasks import ControlTask, EnvironmentFault, TaskError

_log = logging.getLogger(__name__)

# Without a time limit an evaluation could go on for ever.
MAX_EPISODE = 100_000


class Step(NamedTuple):
    """One step of all slots; columns may be lists, which a rollout turns into arrays all at once.

    Attributes:
        observation: [N, D] what to act on next (after a reset where an episode ended).
        reward: [N].
        terminated: [N] end state.
        truncated: [N] time limit.
        final: Slot -> the ended episode's own last observation.
        valid: [N] False where this was no transition but the reset of an earlier episode.
    """

    observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    final: dict[int, Array]
    valid: Array


class Slots(Protocol):
    """N environments that reset themselves."""

    n: int

    def reset(self, seed: int) -> Array:
        """Start all slots, slot i from seed + i; first observations [N, D]."""

    def step(self, action: Array) -> Step:
        """One step of every slot with sampled actions [N, ...]."""

    @property
    def exact(self) -> bool:
        """`state_dict` holds all that the slots' next steps depend on."""

    def state_dict(self) -> dict[str, Any] | None:
        """Every slot in the middle of its episode; None where that cannot be captured."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""

    def close(self) -> None:
        """Release the environments."""


class EnvList:
    """Single environments in a plain loop: the fastest way for cheap environments on one core.

    A slot that ends is reset at once, so every row of a rollout is a real transition.

    Args:
        task: What to make.
        n: Number of slots.
    """

    def __init__(self, task: ControlTask, n: int) -> None:
        self.n, self.task = n, task
        self.envs = [task.make() for _ in range(n)]
        self._observation = np.zeros((n, task.observation_size), dtype=np.float32)
        self._shape = (task.observation_size,)
        self._always = np.ones(n, dtype=bool)
        self._clock = [0] * n

    def reset(self, seed: int) -> Array:
        for i in range(self.n):
            self.reset_slot(i, seed + i)
        return self._observation.copy()

    def reset_slot(self, i: int, seed: int | None = None) -> Array:
        """Start slot `i` anew; its first observation [D].

        Raises:
            EnvironmentFault: The environment raised.
        """
        try:
            observation, _ = self.envs[i].reset(seed=seed)
            self._observation[i] = self._checked(observation)
        except Exception as error:
            raise self._fault(i, "reset", error) from error
        self._clock[i] = 0
        return self._observation[i]

    def step_slot(self, i: int, action: Any) -> tuple[float, bool, bool]:
        """Step slot `i`; its observation is `observation[i]` afterwards.

        Raises:
            EnvironmentFault: The environment raised, paid a reward that is not finite, or does not
                end.
        """
        self._clock[i] += 1
        try:
            observation, reward, terminated, truncated, _ = self.envs[i].step(action)
            self._observation[i] = self._checked(observation)
            reward, terminated, truncated = float(reward), bool(terminated), bool(truncated)
        except Exception as error:
            raise self._fault(i, f"step {self._clock[i]}", error) from error
        if not math.isfinite(reward):
            raise EnvironmentFault(
                f"{self.task.name}: environment {i} of {self.n} gave the reward {reward} at step "
                f"{self._clock[i]} of its episode; it must be finite"
            )
        if self._clock[i] >= MAX_EPISODE and not (terminated or truncated):
            raise EnvironmentFault(
                f"{self.task.name}: environment {i} of {self.n} has not ended its episode within "
                f"{MAX_EPISODE:,} steps; register the task with max_episode_steps"
            )
        return reward, terminated, truncated

    def _checked(self, observation: Any) -> Any:
        """An observation of the task's own length: a shorter one would be broadcast silently."""
        array = observation if isinstance(observation, np.ndarray) else np.asarray(observation)
        if array.shape != self._shape:
            raise ValueError(f"the observation has the shape {array.shape}, expected {self._shape}")
        return array

    @property
    def observation(self) -> Array:
        """[N, D] current observations; a live buffer."""
        return self._observation

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = [], [], []
        final: dict[int, Array] = {}
        for i, one in enumerate(self.task.to_env(action)):
            paid, ended, cut = self.step_slot(i, one)
            reward.append(paid)
            terminated.append(ended)
            truncated.append(cut)
            if ended or cut:
                final[i] = self._observation[i].copy()
                self.reset_slot(i)
        return Step(
            self._observation.copy(),
            reward,
            terminated,
            truncated,
            final,
            self._always,
        )

    @property
    def exact(self) -> bool:
        return all(map(states.can_capture, self.envs))

    def state_dict(self) -> dict[str, Any] | None:
        if not self.exact:
            return None
        return {
            "envs": [states.capture(env) for env in self.envs],
            "observation": self._observation.copy(),
            "clock": list(self._clock),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for env, one in zip(self.envs, state["envs"], strict=True):
            states.restore(env, one)
        self._observation[:] = state["observation"]
        self._clock[:] = state["clock"]

    def _fault(self, i: int, when: str, error: Exception) -> EnvironmentFault:
        return EnvironmentFault(
            f"{self.task.name}: environment {i} of {self.n} failed at {when} of its episode: "
            f"{type(error).__name__}: {error}"
        )

    def close(self) -> None:
        for i, env in enumerate(self.envs):
            try:
                env.close()
            except Exception as error:  # what was learned must not be lost to a bad goodbye
                _log.warning("%s", self._fault(i, "close", error))


class VectorSlots:
    """A Gymnasium vector environment in NEXT_STEP or SAME_STEP autoreset mode.

    Under NEXT_STEP the call after an episode's end ignores the action and returns the reset: that
    row is marked invalid and never trained on.

    Raises:
        TaskError: The vector environment resets in another way.
    """

    def __init__(self, task: ControlTask, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        self.n, self.task, self.env = env.num_envs, task, env
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise TaskError(f"{task.name}: vector environments in mode {mode} are not supported")
        self.same_step = mode is AutoresetMode.SAME_STEP
        self._ended = np.zeros(self.n, dtype=bool)

    def reset(self, seed: int) -> Array:
        self._ended[:] = False
        return self._flat(self.env.reset(seed=seed)[0])

    def _flat(self, observation: Any) -> Array:
        return np.asarray(observation, dtype=np.float32).reshape(self.n, -1)

    def step(self, action: Array) -> Step:
        try:
            result = self.env.step(np.asarray(self.task.to_env(action)))
        except Exception as error:
            raise EnvironmentFault(f"{self.task.name}: {type(error).__name__}: {error}") from error
        observation, reward, terminated, truncated, info = result
        valid = ~self._ended
        done = (terminated | truncated) & valid
        flat = self._flat(observation)
        last = info["final_obs"] if self.same_step and done.any() else flat
        final = {
            int(i): np.asarray(last[i], dtype=np.float32).reshape(-1).copy()
            for i in np.flatnonzero(done)
        }
        if not self.same_step:
            self._ended = done
        return Step(flat, reward, terminated & valid, truncated & valid, final, valid)

    exact = False

    def state_dict(self) -> dict[str, Any] | None:
        return None  # each kind of vector environment has books of its own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError("a vector environment gives no state to load")

    def close(self) -> None:
        self.env.close()


def make_vector(task: ControlTask, n: int, kind: str) -> VectorSlots:
    """`kind` "sync" (SyncVectorEnv, SAME_STEP) or "vector" (the task's own vector environment).

    Raises:
        TaskError: The task has no vector environment of its own.
    """
    if kind == "sync":
        env = gym.vector.SyncVectorEnv(
            [task.make for _ in range(n)], autoreset_mode=AutoresetMode.SAME_STEP
        )
        return VectorSlots(task, env)
    spec = gym.registry[task.name.rpartition(":")[2]]
    if spec.vector_entry_point is None:
        raise TaskError(
            f"task {task.name!r} has no vector environment of its own; use list or sync"
        )
    mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
    return VectorSlots(task, gym.make_vec(task.name, num_envs=n, vectorization_mode=mode))
