"""What can be refused only with the tasks at hand, before the first run starts."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from redline.benchmark import ranks
from redline.benchmark.baselines import catalogue
from redline.benchmark.config import Resolved, flat_fields
from redline.benchmark.errors import BadInput, describe
from redline.benchmark.tracks import LANGUAGE, track_of
from redline.llm_track.settings import LanguageSettings

if TYPE_CHECKING:
    from redline.algorithms.core.algorithm import Algorithm
    from redline.envs.tasks import ActionBound, ControlTask


def check_tasks(runs: Iterable[Resolved]) -> None:
    """Make every task once, and see whether the settings of its runs fit it and this machine.

    Raises:
        BadInput: A task that does not exist or is not supported, or a setting that does not fit.
    """
    every = list(runs)
    _check_control([each for each in every if track_of(each.run.task) is not LANGUAGE])
    _check_language([each for each in every if track_of(each.run.task) is LANGUAGE])


def _check_language(runs: Iterable[Resolved]) -> None:
    """Build the policy of every different setting, and sample with it."""
    sizes: dict[str, int] = {}
    for resolved in runs:
        run = resolved.language
        of_track = [field.name for field in dataclasses.fields(LanguageSettings)]
        key = str([run.task, *(getattr(run, name) for name in of_track)])
        if key not in sizes:
            from redline.benchmark.train import make_language_track

            algorithm = resolved.recipe.build()
            with contextlib.closing(make_language_track(resolved, algorithm)) as track:
                sizes[key] = len(track.policy.parameters)
            if track.note and ranks.first():
                print(f"{run.model}: {track.note}", file=sys.stderr)
        _check_dense(resolved, sizes[key], f"model {run.model}")


def _check_control(runs: Iterable[Resolved]) -> None:
    from redline.envs.tasks import TaskError

    tasks: dict[tuple[str, ActionBound], ControlTask] = {}
    for resolved in runs:
        wanted = resolved.run.task, resolved.control.action_bound
        if catalogue.is_external(resolved.algo):
            catalogue.require_packages(f"{resolved.algo} needs")
        try:
            if wanted not in tasks:
                tasks[wanted] = _made(*wanted)
            _check_vectorization(resolved)
            _check_device(resolved)
            _check_method(resolved, tasks[wanted])
            _check_dense(resolved, *_parameters(resolved, tasks[wanted]))
        except TaskError as error:
            raise BadInput(str(error)) from error


def _made(name: str, action_bound: ActionBound) -> ControlTask:
    from redline.envs.tasks import TaskError, control_task

    try:
        return control_task(name, action_bound)
    except TaskError:
        raise
    except Exception as error:  # an environment is anybody's code
        raise BadInput(
            f"task {name!r} cannot be used: {' '.join(describe(error).split())}"
        ) from error


def _check_vectorization(resolved: Resolved) -> None:
    import gymnasium as gym

    if resolved.control.vectorization != "vector":
        return
    name = resolved.run.task
    if gym.registry[name.rpartition(":")[2]].vector_entry_point is None:
        raise BadInput(
            f"task {name!r} has no vector environment of its own; "
            "vectorization must be list or sync, got 'vector'"
        )


def _check_method(resolved: Resolved, task: ControlTask) -> None:
    """The method must mean something on this task."""
    if catalogue.is_external(resolved.algo):
        return
    algorithm: Algorithm = resolved.recipe.build()
    try:
        algorithm.require_space(task.distribution)
    except ValueError as error:
        raise BadInput(f"{resolved.algo} on {task.name}: {error}") from error
    if algorithm.shaping.overlong is not None:
        raise BadInput(
            f"shaping.overlong is a penalty on long answers of a language model; on {task.name} "
            "an episode is no answer that could have been shorter"
        )


def _check_device(resolved: Resolved) -> None:
    if resolved.control.device == "cpu":
        return
    # Torch takes a second to import, which most runs need not wait for here.
    from redline.envs.torch_policies import require_device

    require_device(resolved.control.device)


def _parameters(resolved: Resolved, task: ControlTask) -> tuple[int, str]:
    """How many the policy has, and what decides that."""
    distribution, hidden = task.distribution, resolved.control.hidden
    sizes = (task.observation_size, *hidden, distribution.width)
    count = sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))
    count += distribution.width if distribution.has_log_std else 0
    return count, f"the policy on {task.name} with hidden {list(hidden)}"


def _check_dense(resolved: Resolved, parameters: int, policy: str) -> None:
    """A dense Fisher matrix must fit into memory."""
    from redline.algorithms.core.curvature import MAX_DENSE_PARAMETERS

    if flat_fields(resolved.recipe).get("solver") != "dense":
        return
    if parameters > MAX_DENSE_PARAMETERS:
        raise BadInput(
            f"solver dense takes at most {MAX_DENSE_PARAMETERS:,} parameters, and {policy} has "
            f"{parameters:,}; use solver cg"
        )
