"""The external baselines by name; nothing here imports the libraries themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from redline.benchmark.baselines import settings, zoo
from redline.benchmark.errors import BadInput, unknown

if TYPE_CHECKING:
    from redline.benchmark.config import Resolved

_RECIPES: dict[str, type[Any]] = {
    "sb3:a2c": settings.StableBaselines3A2C,
    "sb3:ppo": settings.StableBaselines3PPO,
    "sb3:trpo": settings.StableBaselines3TRPO,
}
_PACKAGES = {"stable-baselines3": "stable_baselines3", "sb3-contrib": "sb3_contrib"}

# One environment, as in both libraries; their networks are always torch's.
_OF_RUN: dict[str, Any] = {"n_envs": 1, "policy": "torch"}


_PAPERS = {
    "sb3:a2c": "arXiv:1602.01783",
    "sb3:ppo": "arXiv:1707.06347",
    "sb3:trpo": "arXiv:1502.05477",
}
# Library whose implementation it is, and the package that brings it.
_STABLE, _CONTRIB = ("Stable-Baselines3", "stable-baselines3"), ("sb3-contrib", "sb3-contrib")
_FROM = {"sb3:a2c": _STABLE, "sb3:ppo": _STABLE, "sb3:trpo": _CONTRIB}


def is_external(algo: str) -> bool:
    """Whether a name asks for another library's method: ours have no colon."""
    return ":" in algo


def names() -> list[str]:
    """All baselines, sorted."""
    return sorted(_RECIPES)


def describe(algo: str) -> str:
    """One line about a baseline: what it is, and whose."""
    library, package = _FROM[algo]
    name = algo.rpartition(":")[2].upper()
    return f"external: {name} ({_PAPERS[algo]}) as {library} implements it (pip package {package})"


def get(algo: str) -> type[Any]:
    """The settings of a baseline.

    Raises:
        BadInput: No such baseline, with the nearest ones.
    """
    if algo not in _RECIPES:
        raise unknown("algorithm", algo, _RECIPES)
    return _RECIPES[algo]


def preset(algo: str, task: str) -> dict[str, Any]:
    """Overrides for a baseline on a task: what rl-zoo publishes, else the library's defaults."""
    return _OF_RUN | zoo.published(algo, task)


def require_packages(what: str) -> None:
    """Refuse, with the way to install them, what needs libraries that are not there.

    Args:
        what: Subject and verb of the sentence.

    Raises:
        BadInput: A library is missing.
    """
    missing = [package for package, module in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise BadInput(
            f"{what} Stable-Baselines3, which is not installed; pip install {' '.join(missing)}"
        )


def check(resolved: Resolved) -> None:
    """Refuse settings that these libraries have no place for.

    Raises:
        BadInput: With the setting, its value, and what was expected.
    """
    run, recipe = resolved.control, vars(resolved.recipe)
    if run.policy != "torch":
        raise BadInput(
            f"{resolved.algo} brings its own networks, which --policy torch stands for, "
            f"got {run.policy!r}"
        )
    if run.vectorization != "list":
        raise BadInput(
            f"{resolved.algo} steps its environments in a loop, which is --vectorization list, "
            f"got {run.vectorization!r}"
        )
    if run.action_bound != "clip":
        raise BadInput(
            f"{resolved.algo} clips its actions, which is --action-bound clip, "
            f"got {run.action_bound!r}"
        )
    for name in ("learning_rate", "clip_range"):
        if name in recipe:
            _check_rate(name, recipe[name])
    smallest = min(recipe["n_steps"] * run.n_envs, recipe.get("batch_size", 2))
    if recipe["normalize_advantage"] and smallest < 2:
        raise BadInput(
            "normalize_advantage needs n_steps x n_envs and batch_size of at least 2, got "
            f"{recipe['n_steps']} x {run.n_envs} and {recipe.get('batch_size', 'no batch_size')}"
        )


def _check_rate(name: str, rate: settings.Rate) -> None:
    try:
        valid = 0 < settings.parsed(rate)[0] < float("inf")
    except ValueError:
        valid = False
    if not valid:
        raise BadInput(f"{name} must be a number above 0, or lin_ and such a number, got {rate!r}")


def footnote(records: Iterable[Mapping[str, Any]]) -> str | None:
    """What is said below tables about the external runs in them; None where there are none.

    Args:
        records: run.json of every run.
    """
    found: dict[str, set[str]] = {}
    for record in records:
        if record["algo"] in _FROM:
            library, package = _FROM[record["algo"]]
            version = record.get("versions", {}).get(package, "of unknown version")
            found.setdefault(library, set()).add(str(version))
    if not found:
        return None
    used = " and ".join(f"{name} {' / '.join(sorted(seen))}" for name, seen in found.items())
    whose = "its" if len(found) == 1 else "their"
    return (
        f"sb3:* are external: {used}, {whose} own implementation, evaluated by the same evaluator"
    )
