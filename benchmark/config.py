"""Settings of a run: what the user may say, resolved to one record with a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from redline.benchmark.baselines import catalogue
from redline.benchmark.errors import BadInput, unknown

if TYPE_CHECKING:
    from redline.algorithms.core.learner import Algorithm

T = TypeVar("T")


# They say where and how a run is written or found, not what is computed.
NOT_HASHED = ("out", "overwrite", "tensorboard", "plugin")
# Entry of a record beside the settings of a run: hash of the plugin's file.
PLUGIN_CODE = "plugin_code"


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run that belong to no algorithm.

    Attributes:
        task: Gymnasium id, also `pkg.module:Env-v0`.
        seed: Seeds 0.. are for reports, 1000.. for tuning.
        steps: Environment steps.
        out: Folder of this run; None: results/run/<task>/<algo>/seed=<seed>.
        overwrite: Replace a run that is there already.
        evals: Evaluations after the one at step 0, evenly spaced, the last at the end.
        eval_episodes: Episodes per evaluation, each from its own fixed seed.
        n_envs: Environments side by side.
        vectorization: "list" (a loop, fastest for cheap tasks), "sync" (SyncVectorEnv) or "vector"
            (the task's own vector environment).
        policy: "mlp" (numpy, fastest on a CPU) or "torch" (autograd, any device).
        device: Device of the torch policy and critic.
        hidden: Widths of the hidden layers of policy and critic.
        activation: Of the hidden layers.
        log_std_init: Initial log standard deviation on Box actions.
        action_bound: How Box actions keep to their bounds: "clip" cuts off what is sampled outside,
            "tanh" samples inside (a squashed normal distribution; the bounds must be finite).
        normalize_observation: Running mean and std, frozen at evaluation.
        normalize_reward: Divide rewards by the running std of the discounted return.
        tensorboard: Write TensorBoard events beside metrics.jsonl.
        plugin: Python files that register more algorithms.
    """

    task: str
    seed: int = 0
    steps: int = 100_000
    out: Path | None = None
    overwrite: bool = False
    evals: int = 10
    eval_episodes: int = 20
    n_envs: int = 8
    vectorization: Literal["list", "sync", "vector"] = "list"
    policy: Literal["mlp", "torch"] = "mlp"
    device: str = "cpu"
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    log_std_init: float = 0.0
    action_bound: Literal["clip", "tanh"] = "clip"
    normalize_observation: bool = False
    normalize_reward: bool = False
    tensorboard: bool = True
    plugin: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Resolved:
    """A run with every setting known.

    Attributes:
        algo: Name of the recipe.
        recipe: Its settings.
        run: The other settings.
        overrides: What differs from the preset, as dotted names; part of the run's name.
    """

    algo: str
    recipe: Any
    run: RunConfig
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data: what run.json holds."""
        from redline.algorithms import registry

        run = json_ready(dataclasses.asdict(self.run))
        code = registry.plugin_code(self.algo)
        if code is not None:
            run[PLUGIN_CODE] = code
        recipe = json_ready(dataclasses.asdict(self.recipe))
        return {"algo": self.algo, "recipe": recipe, "run": run}

    @property
    def hash(self) -> str:
        """Identity of what is computed: equal settings give equal hashes."""
        data = self.to_json()
        for name in NOT_HASHED:
            del data["run"][name]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def json_ready(value: Any) -> Any:
    """Paths as text, tuples as lists, recursively."""
    if isinstance(value, Mapping):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def replace_fields(instance: T, values: Mapping[str, Any]) -> T:
    """A copy of a frozen dataclass with other values; nested mappings and dotted names go deeper.

    Raises:
        BadInput: A name that is no field, with the nearest ones.
    """
    nested: dict[str, dict[str, Any]] = {}
    changes: dict[str, Any] = {}
    names = {field.name for field in dataclasses.fields(instance)}  # type: ignore[arg-type]
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if head not in names:
            raise unknown("setting", key, names)
        if rest:
            nested.setdefault(head, {})[rest] = value
        elif isinstance(value, Mapping):
            nested.setdefault(head, {}).update(value)
        else:
            changes[key] = tuple(value) if isinstance(value, list) else value
    for head, inner in nested.items():
        changes[head] = replace_fields(getattr(instance, head), inner)
    return dataclasses.replace(instance, **changes)  # type: ignore[type-var]


def flat_fields(instance: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value of every leaf of a nested dataclass."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(value):
            leaves |= flat_fields(value, f"{prefix}{field.name}.")
        else:
            leaves[prefix + field.name] = value
    return leaves


def check(resolved: Resolved) -> None:
    """Refuse what cannot be run, before any work.

    Raises:
        BadInput: With the setting, its value, and what was expected.
    """
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
    need = _built(resolved).need
    if need.steps is None and run.vectorization != "list":
        raise BadInput(
            f"{resolved.algo} plays whole episodes from chosen seeds, which needs "
            f"--vectorization list, got {run.vectorization!r}"
        )


def _check_run(run: RunConfig) -> None:
    for name in ("steps", "eval_episodes", "n_envs"):
        if getattr(run, name) < 1:
            raise BadInput(f"{name} must be at least 1, got {getattr(run, name)}")
    for name in ("seed", "evals"):
        if getattr(run, name) < 0:
            raise BadInput(f"{name} must be at least 0, got {getattr(run, name)}")
    if not run.hidden or min(run.hidden) < 1:
        raise BadInput(f"hidden must be widths of at least 1, got {list(run.hidden)}")
    if run.device != "cpu" and run.policy == "mlp":
        raise BadInput(f"device {run.device!r} needs --policy torch; mlp runs on the CPU")
    if run.n_envs > _MOST_ENVS:
        raise BadInput(f"n_envs must be at most {_MOST_ENVS:,}, got {run.n_envs:,}")


def _built(resolved: Resolved) -> Algorithm:
    from redline.algorithms import registry
    from redline.algorithms.core.learner import Algorithm

    try:
        algorithm = resolved.recipe.build()
    except (ValueError, SystemExit) as error:
        raise BadInput(str(registry.fault(resolved.algo, error) or error)) from error
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise BadInput(f"algorithm {resolved.algo!r}: build() must give an Algorithm, got {kind}")
    return algorithm


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
    "critic_minibatch_size",
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
    total = recipe["n_steps"] * resolved.run.n_envs
    size = recipe.get("minibatch_size")
    if size is not None and total % size:
        raise BadInput(
            f"a rollout of n_steps {recipe['n_steps']} x n_envs {resolved.run.n_envs} = {total} "
            f"does not divide into minibatches of {size}"
        )
