"""An environment in the middle of an episode, as plain data, so that a run can go on from there.

What is restored behaves bit for bit as the original would have, in another process too. That is
known for Gymnasium's classic control and toy text environments and its MuJoCo tasks; other
environments may keep state where nobody can see it, and are not captured.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from redline.envs.tasks import Env, Sound

# Attributes in which Gymnasium's small environments keep an episode.
_ATTRIBUTES = ("state", "steps_beyond_terminated", "last_u", "s", "lastaction")
_SMALL = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
_MUJOCO = "gymnasium.envs.mujoco."
_OF_BLACKJACK = "gymnasium.envs.toy_text.blackjack"

_STATELESS = (
    gym.wrappers.OrderEnforcing,
    gym.wrappers.PassiveEnvChecker,
    gym.wrappers.FlattenObservation,
    Sound,
)


def can_capture(env: Env) -> bool:
    """Whether all of the environment's state is known."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if not isinstance(inner, (*_STATELESS, gym.wrappers.TimeLimit)):
            return False
        inner = inner.env
    module = type(inner).__module__
    return module.startswith((*_SMALL, _MUJOCO)) and module != _OF_BLACKJACK


def capture(env: Env) -> dict[str, Any]:
    """The state of an environment for which `can_capture` holds, after its first reset."""
    inner: Any = env.unwrapped
    state: dict[str, Any] = {"rng": inner.np_random.bit_generator.state}
    for wrapper in _time_limits(env):
        state["elapsed"] = wrapper._elapsed_steps
    if type(inner).__module__.startswith(_MUJOCO):
        state["physics"] = _physics(inner)
    for name in _ATTRIBUTES:
        if hasattr(inner, name):
            state[name] = _plain(getattr(inner, name))
    return state


def restore(env: Env, state: dict[str, Any]) -> None:
    """Inverse of `capture`, on an environment of the same task."""
    env.reset(seed=0)  # wrappers refuse to step what was never reset
    inner: Any = env.unwrapped
    inner.np_random.bit_generator.state = state["rng"]
    for wrapper in _time_limits(env):
        wrapper._elapsed_steps = state["elapsed"]
    if "physics" in state:
        _set_physics(inner, state["physics"])
    for name in _ATTRIBUTES:
        if name in state:
            setattr(inner, name, _revived(state[name]))


def _time_limits(env: Env) -> list[Any]:
    found, inner = [], env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, gym.wrappers.TimeLimit):
            found.append(inner)
        inner = inner.env
    return found


def _plain(value: Any) -> Any:
    """Tuples as lists and numpy scalars as arrays, which is how a checkpoint gives them back."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return np.array(value) if isinstance(value, np.ndarray | np.generic) else value


def _revived(value: Any) -> Any:
    """Inverse of `_plain`: a table of a small environment is indexed by scalars, not arrays."""
    if isinstance(value, list):
        return tuple(_revived(item) for item in value)
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _physics(inner: Any) -> dict[str, Any]:
    import mujoco

    # Less than this lacks the solver's warm start. The two body positions are no part of it, but
    # rewards compare them with those of the step before.
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    packed = np.empty(mujoco.mj_stateSize(inner.model, spec))
    mujoco.mj_getState(inner.model, inner.data, packed, spec)
    positions = {name: getattr(inner.data, name).copy() for name in ("xpos", "xipos")}
    return {"integration": packed, **positions}


def _set_physics(inner: Any, physics: dict[str, Any]) -> None:
    import mujoco

    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    packed = np.asarray(physics["integration"], dtype=np.float64)
    mujoco.mj_setState(inner.model, inner.data, packed, spec)
    for name in ("xpos", "xipos"):
        getattr(inner.data, name)[:] = physics[name]
