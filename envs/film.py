"""Episodes of a policy, picture by picture, without a display."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import numpy as np

from redline.algorithms.core.types import Array
from redline.envs.evaluate import Evaluator
from redline.envs.sampler import Actor
from redline.envs.tasks import ControlTask, TaskError, renderer_hint

# Of a task that names no speed of its own.
_FPS = 30.0
_MODE = "rgb_array"


class Film:
    """A task that is drawn while a policy plays it, by the loop that evaluation uses.

    Args:
        task: What to play.
        normalise: Observations as the policy sees them; never updates statistics.
        policy: Acts.

    Attributes:
        fps: Pictures per second at the task's own speed.

    Raises:
        TaskError: The task gives no pictures.
    """

    def __init__(
        self, task: ControlTask, normalise: Callable[[Array], Array], policy: Actor
    ) -> None:
        with contextlib.closing(task.make()) as plain:
            modes = plain.metadata.get("render_modes") or ()
        if _MODE not in modes:
            known = ", ".join(map(str, modes)) or "none"
            raise TaskError(
                f"task {task.name!r} cannot be drawn: its render modes are {known}, not {_MODE}"
            )
        self._normalise, self._policy = normalise, policy
        self._on_picture: Callable[[Array], None] = lambda picture: None
        drawn = dataclasses.replace(task, render_mode=_MODE)
        self._evaluator = Evaluator(drawn, 1, self._seen)
        self._env = self._evaluator.envs.envs[0]
        self.fps = float(self._env.metadata.get("render_fps") or _FPS)

    def play(self, seed: int, deterministic: bool, on_picture: Callable[[Array], None]) -> float:
        """One episode: its undiscounted return, that of an evaluation from the same seed.

        Args:
            seed: Of the episode's start, and of the noise where actions are sampled.
            deterministic: The most likely actions.
            on_picture: Sees [H, W, 3] uint8: what the policy acts on, then the last state.

        Raises:
            TaskError: Nothing can be drawn here.
            EnvironmentFault: The environment failed.
        """
        self._on_picture = on_picture
        (total,) = self._evaluator.returns(self._policy, deterministic, seed)
        on_picture(self._picture())
        return total

    def _seen(self, observation: Array) -> Array:
        self._on_picture(self._picture())
        return self._normalise(observation)

    def _picture(self) -> Array:
        name = self._evaluator.envs.task.name
        try:
            picture = self._env.render()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise TaskError(
                f"task {name!r} cannot be drawn here: {reason}{renderer_hint(name)}"
            ) from error
        if not (
            isinstance(picture, np.ndarray)
            and picture.dtype == np.uint8
            and picture.ndim == 3
            and picture.shape[2] == 3
        ):
            kind = getattr(picture, "shape", type(picture).__name__)
            raise TaskError(f"task {name!r} cannot be drawn: its render() gave {kind}, no picture")
        return picture

    def close(self) -> None:
        """Release the environment."""
        self._evaluator.close()
