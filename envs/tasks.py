"""Gymnasium tasks: names, spaces, and what a policy needs to know of them."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import gymnasium as gym
import numpy as np

from redline.algorithms.core.distributions import Categorical, Distribution, MultiCategorical
from redline.algorithms.core.gaussians import DiagGaussian, TanhGaussian

Env = gym.Env[Any, Any]
ActionBound = Literal["clip", "tanh"]

_log = logging.getLogger(__name__)


class TaskError(ValueError):
    """A task that does not exist or that this track cannot handle, in one sentence."""


class EnvironmentFault(RuntimeError):
    """An environment raised or returned a number that is not finite."""


@dataclass(frozen=True)
class ControlTask:
    """A Gymnasium task.

    Attributes:
        name: Gymnasium id, also `pkg.module:Env-v0`.
        observation_size: Length of the flattened observation.
        distribution: Action distribution that fits the action space.
        to_env: [N, ...] sampled actions -> what the environments receive, one entry per row; Box
            actions are brought within the bounds here. The log-probability of a clipped action is
            that of the sample, the one of a squashed action its own.
        render_mode: Gymnasium's; None: nothing is drawn.
    """

    name: str
    observation_size: int
    distribution: Distribution
    to_env: Callable[[Any], Any]
    render_mode: str | None = None

    def make(self) -> Env:
        """One environment with a flat Box observation."""
        return _make(self.name, self.render_mode)


def task_names() -> list[str]:
    """Registered Gymnasium ids that are part of Gymnasium itself, sorted."""
    return sorted(
        name
        for name, spec in gym.registry.items()
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs")
    )


def require_task(name: str) -> None:
    """Refuse an unknown id with the nearest valid ones.

    Raises:
        TaskError: The id is not registered, or its module cannot be imported.
    """
    module, _, env_id = name.rpartition(":")
    if ":" in name:
        try:
            importlib.import_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise TaskError(f"task {name!r}: cannot import module {module!r} ({reason})") from error
    if env_id in gym.registry:
        return
    near = difflib.get_close_matches(env_id, gym.registry, n=3, cutoff=0.5)
    if module:
        known = set(task_names())
        near = [one if one in known else f"{module}:{one}" for one in near]
    typo = difflib.get_close_matches(env_id, near, n=1, cutoff=0.8)
    own = "" if module or typo else f" (one of your own is written MODULE:{env_id})"
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise TaskError(f"unknown task {name!r}: not a registered Gymnasium id{own}{hint}")


def control_task(name: str, action_bound: ActionBound = "clip") -> ControlTask:
    """Look a task up and check its spaces, before any rollout.

    Args:
        name: Gymnasium id.
        action_bound: How Box actions are brought within the bounds: "clip" cuts off what lies
            outside, "tanh" squashes (see `TanhGaussian`).

    Raises:
        TaskError: Unknown id, a space that is not supported, or one without finite bounds to squash
            into.
    """
    require_task(name)
    env = _make(name)
    try:
        observation_size = int(np.prod(env.observation_space.shape or (1,)))
        distribution, to_env = _action_space(name, env.action_space, action_bound)
    finally:
        with contextlib.suppress(Exception):
            env.close()
    return ControlTask(name, observation_size, distribution, to_env)


def _make(name: str, render_mode: str | None = None) -> Env:
    _silence_mujoco(name)
    try:
        # Said only where it is wanted: many environments of others take no such argument.
        drawn: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        env: Env = gym.make(name, disable_env_checker=True, **drawn)
        space = env.observation_space
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TaskError(f"task {name!r} cannot be made: {reason}{renderer_hint(name)}") from error
    if hasattr(getattr(env.unwrapped, "data", None), "warning"):
        env = Sound(env)
    discrete = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
    if isinstance(space, discrete) or (isinstance(space, gym.spaces.Box) and len(space.shape) != 1):
        env = gym.wrappers.FlattenObservation(env)
    elif not isinstance(space, gym.spaces.Box):
        env.close()
        raise TaskError(
            f"task {name!r} has a {type(space).__name__} observation space; supported are Box, "
            "Discrete, MultiDiscrete and MultiBinary (gymnasium.wrappers.FlattenObservation "
            "turns many others into a Box)"
        )
    return env


class Sound(gym.Wrapper[Any, Any, Any, Any]):
    """A MuJoCo simulation that fails where the simulator silently began anew.

    After a number that is not finite or far too large it resets itself and goes on with numbers
    that look well. It counts such events until the next reset, so one look at an episode's end will
    do.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        if result[2] or result[3]:
            self._look()
        return result

    def _look(self) -> None:
        from mujoco import mjtWarning

        counts = self.unwrapped.data.warning.number  # type: ignore[attr-defined]
        bad = ("BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")
        if found := [name for name in bad if counts[getattr(mjtWarning, f"mjWARN_{name}")]]:
            raise FloatingPointError(
                f"the simulation blew up during this episode ({', '.join(found)}) and MuJoCo began "
                "it anew without a word"
            )


def _is_mujoco(name: str) -> bool:
    spec = gym.registry.get(name.rpartition(":")[2])
    entry_point = spec.entry_point if spec is not None else None
    return isinstance(entry_point, str) and entry_point.startswith("gymnasium.envs.mujoco")


def renderer_hint(name: str) -> str:
    """What MuJoCo needs to draw, to be added to its errors, which do not say so."""
    chosen = os.environ.get("MUJOCO_GL")
    if chosen is None or not _is_mujoco(name):
        return ""
    return f" (MUJOCO_GL is {chosen}; egl needs libegl1, osmesa libosmesa6, glfw a display)"


def _silence_mujoco(name: str) -> None:
    """Keep the simulator's C-level warnings off the terminal and out of ./MUJOCO_LOG.TXT."""
    if not _is_mujoco(name):
        return
    with contextlib.suppress(Exception):  # then gymnasium says what is missing
        import mujoco

        mujoco.set_mju_user_warning(_log.debug)


def _action_space(
    name: str, space: gym.Space[Any], bound: ActionBound
) -> tuple[Distribution, Callable[[Any], Any]]:
    if bound == "tanh":
        return _squashed(name, space)
    if isinstance(space, gym.spaces.Discrete):
        start = int(space.start)
        return Categorical(int(space.n)), lambda action: action + start
    if isinstance(space, gym.spaces.MultiDiscrete) and len(space.nvec.shape) == 1:
        first = np.asarray(space.start)
        return MultiCategorical(tuple(map(int, space.nvec))), lambda action: action + first
    if _is_box_of_floats(space):
        return DiagGaussian(int(np.prod(space.shape))), functools.partial(_clipped, space)
    raise TaskError(
        f"task {name!r} has the action space {space}; supported are Discrete, MultiDiscrete "
        "(one axis) and Box of floating numbers"
    )


def _is_box_of_floats(space: gym.Space[Any]) -> TypeGuard[gym.spaces.Box]:
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)


def _clipped(space: gym.spaces.Box, action: Any) -> Any:
    shaped = action.reshape(-1, *space.shape).astype(space.dtype, copy=False)
    return np.minimum(np.maximum(shaped, space.low), space.high)


def _squashed(name: str, space: gym.Space[Any]) -> tuple[Distribution, Callable[[Any], Any]]:
    """a = low + (high - low) (tanh(u) + 1) / 2."""
    if not _is_box_of_floats(space):
        raise TaskError(
            f"action_bound tanh squashes Box actions of floating numbers; task {name!r} has {space}"
        )
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    half = (high - low) / 2
    if not (np.isfinite(half).all() and (half > 0).all()):
        raise TaskError(
            f"action_bound tanh needs a finite range for every action; task {name!r} has {space}"
        )
    middle = low + half

    def squash(action: Any) -> Any:
        shaped = action.reshape(-1, *space.shape)
        # Clipped as well: rounding may go past a bound.
        return _clipped(space, middle + half * np.tanh(shaped))

    return TanhGaussian(tuple(half.ravel().tolist())), squash
