"""What can be refused only with the tasks at hand, before the first run starts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from redline.benchmark.baselines import catalogue
from redline.benchmark.config import Resolved, flat_fields
from redline.benchmark.errors import BadInput, describe

if TYPE_CHECKING:
    from redline.envs.tasks import ActionBound, ControlTask


def check_tasks(runs: Iterable[Resolved]) -> None:
    """Make every task once, and see whether the settings of its runs fit it and this machine.

    Raises:
        BadInput: A task that does not exist or is not supported, or a setting that does not fit.
    """
    from redline.envs.tasks import TaskError

    tasks: dict[tuple[str, ActionBound], ControlTask] = {}
    for resolved in runs:
        wanted = resolved.run.task, resolved.run.action_bound
        if catalogue.is_external(resolved.algo):
            catalogue.require_packages(f"{resolved.algo} needs")
        try:
            if wanted not in tasks:
                tasks[wanted] = _made(*wanted)
            _check_vectorization(resolved)
            _check_device(resolved)
            _check_dense(resolved, tasks[wanted])
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

    if resolved.run.vectorization != "vector":
        return
    name = resolved.run.task
    if gym.registry[name.rpartition(":")[2]].vector_entry_point is None:
        raise BadInput(
            f"task {name!r} has no vector environment of its own; "
            "vectorization must be list or sync, got 'vector'"
        )


def _check_device(resolved: Resolved) -> None:
    if resolved.run.device == "cpu":
        return
    # Torch takes a second to import, which most runs need not wait for here.
    from redline.envs.torch_policies import require_device

    require_device(resolved.run.device)


def _check_dense(resolved: Resolved, task: ControlTask) -> None:
    """A dense Fisher matrix must fit into memory."""
    from redline.algorithms.core.curvature import MAX_DENSE_PARAMETERS

    if flat_fields(resolved.recipe).get("solver") != "dense":
        return
    distribution = task.distribution
    sizes = (task.observation_size, *resolved.run.hidden, distribution.width)
    parameters = sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))
    parameters += distribution.width if distribution.has_log_std else 0
    if parameters > MAX_DENSE_PARAMETERS:
        raise BadInput(
            f"solver dense takes at most {MAX_DENSE_PARAMETERS:,} parameters, and the policy on "
            f"{task.name} with hidden {list(resolved.run.hidden)} has {parameters:,}; use solver cg"
        )
