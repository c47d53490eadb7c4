"""What can be refused from the settings of a run alone, before any work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from redline.benchmark.baselines import catalogue
from redline.benchmark.config import Resolved, flat_fields, setting_names
from redline.benchmark.errors import BadInput, spelled
from redline.benchmark.tracks import ControlConfig, LanguageConfig, RunConfig

if TYPE_CHECKING:
    from redline.algorithms.core.algorithm import Algorithm
    from redline.algorithms.core.types import Need


def check(resolved: Resolved) -> None:
    """Refuse what cannot be run, before any work.

    Raises:
        BadInput: With the setting, its value, and what was expected.
    """
    try:
        _check(resolved)
    except BadInput as error:
        raise BadInput(spelled(str(error), setting_names(resolved))) from error


def _check(resolved: Resolved) -> None:
    run = resolved.run
    _check_run(run)
    recipe = flat_fields(resolved.recipe)
    for name, value in (flat_fields(run) | recipe).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{name} must be a finite number, got {value}")
    for name, value in recipe.items():
        _check_recipe_value(name, value)
    if catalogue.is_external(resolved.algo):
        catalogue.check(resolved)
        return
    _check_division(resolved)
    _check_need(resolved, _built(resolved).need)


def _check_run(run: RunConfig) -> None:
    for name, least in _LEAST.items():
        if getattr(run, name, least) < least:
            raise BadInput(f"{name} must be at least {least}, got {getattr(run, name)}")
    if isinstance(run, ControlConfig):
        _check_control(run)
    if isinstance(run, LanguageConfig) and run.value_hidden is not None and run.value_hidden < 1:
        raise BadInput(f"--value-hidden must be at least 1, or none, got {run.value_hidden}")
    if isinstance(run, LanguageConfig):
        _check_temperature(run)
    if isinstance(run, LanguageConfig) and run.sampler_process and not run.stale:
        raise BadInput(
            "--sampler-process needs --stale of at least 1, got 0: with the newest policy alone, "
            "sampling and learning wait for each other"
        )


def _check_temperature(run: LanguageConfig) -> None:
    end = run.temperature_end
    if end is not None and not end > 0.0:
        raise BadInput(f"--temperature-end must be above 0, got {end:g}")
    if end is not None and run.stale:
        raise BadInput(
            "--temperature-end needs rollouts of the newest policy: a stale one was sampled at "
            f"another temperature, and its ratios would not start at 1; got --stale {run.stale}"
        )


def _check_control(run: ControlConfig) -> None:
    if not run.hidden or min(run.hidden) < 1:
        raise BadInput(f"hidden must be widths of at least 1, got {list(run.hidden)}")
    if run.device != "cpu" and run.policy == "mlp":
        raise BadInput(f"device {run.device!r} needs --policy torch; mlp runs on the CPU")
    if run.n_envs > _MOST_ENVS:
        raise BadInput(f"n_envs must be at most {_MOST_ENVS:,}, got {run.n_envs:,}")


def _check_need(resolved: Resolved, need: Need) -> None:
    """What one rollout is must be something that the track gives."""
    run = resolved.run
    if isinstance(run, ControlConfig):
        if need.steps is None and run.vectorization != "list":
            raise BadInput(
                f"{resolved.algo} plays whole episodes from chosen seeds, which needs "
                f"--vectorization list, got {run.vectorization!r}"
            )
    elif need.steps is not None or "n_steps" in resolved.overrides:
        raise BadInput(
            f"{resolved.algo} on {run.task} must be asked for whole completions: say --episodes N "
            "instead of n_steps, which counts steps of an environment"
        )
    else:
        _check_horizon(resolved)


def _check_horizon(resolved: Resolved) -> None:
    """A bound for the longest episode must know it."""
    horizon, longest = vars(resolved.recipe).get("horizon"), resolved.language.max_completion
    if horizon is not None and horizon < longest:
        raise BadInput(
            f"horizon must be at least max_completion, the longest episode, which is {longest}, "
            f"got {horizon}"
        )


def _built(resolved: Resolved) -> Algorithm:
    from redline.algorithms import registry
    from redline.algorithms.core.algorithm import Algorithm

    try:
        algorithm = resolved.recipe.build()
    except (ValueError, SystemExit) as error:
        raise BadInput(str(registry.fault(resolved.algo, error) or error)) from error
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise BadInput(f"algorithm {resolved.algo!r}: build() must give an Algorithm, got {kind}")
    return algorithm


# Of either track's settings.
_LEAST = {
    "steps": 1,
    "seed": 0,
    "evals": 0,
    "eval_episodes": 1,
    "n_envs": 1,
    "eval_problems": 1,
    "eval_samples": 1,
    "stale": 0,
    "review_every": 0,
}
# Each is an object of its own, and its episodes are kept in memory.
_MOST_ENVS = 10_000

_POSITIVE = [
    "n_steps",
    "episodes",
    "epochs",
    "minibatch_size",
    "groups",
    "group_size",
    "lr",
    "critic_lr",
    "critic_epochs",
    "critic_every",
    "critic_minibatch_size",
    "starts",
    "length",
    "tau_positive",
    "tau_negative",
    "cg_iterations",
    "max_backtracks",
    "delta",
    "step_size",
    "max_grad_norm",
    "target_kl",
    "fisher_rows",
    "horizon",
    "kl_target",
    "kl_coef_init",
    "distill_epochs",
    "batch_size",
    "n_epochs",
    "clip_range_vf",
    "rms_prop_eps",
    "cg_max_steps",
    "line_search_max_iter",
    "n_critic_updates",
    "sub_sampling_factor",
]
_UNIT_INTERVAL = ("gamma", "gae_lambda")
# May be 0: then they are off.
_NOT_NEGATIVE = ("damping", "penalty", "entropy_coef", "cg_damping", "ent_coef", "vf_coef")
# From one trial step of a line search to the next.
_SHRINKING = ("backtrack", "line_search_shrinking_factor")


def _check_recipe_value(name: str, value: Any) -> None:
    if value is None:
        return
    if name in _POSITIVE and not value > 0:
        raise BadInput(f"{name} must be above 0, got {value}")
    if name in _UNIT_INTERVAL and not 0 <= value <= 1:
        raise BadInput(f"{name} must lie in [0, 1], got {value}")
    if name in _SHRINKING and not 0 < value < 1:
        raise BadInput(f"{name} must lie between 0 and 1, got {value}")
    if name in _NOT_NEGATIVE and not value >= 0:
        raise BadInput(f"{name} must be at least 0, got {value}")


def _check_division(resolved: Resolved) -> None:
    """A step rollout must split into whole minibatches, so that every element is used equally."""
    recipe = vars(resolved.recipe)
    if recipe.get("n_steps") is None or recipe.get("episodes") is not None:
        return
    if not isinstance(resolved.run, ControlConfig):
        return
    total = recipe["n_steps"] * resolved.run.n_envs
    size = recipe.get("minibatch_size")
    if size is not None and total % size:
        raise BadInput(
            f"a rollout of n_steps {recipe['n_steps']} x n_envs {resolved.run.n_envs} = {total} "
            f"does not divide into minibatches of {size}"
        )
