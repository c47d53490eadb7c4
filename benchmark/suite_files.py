"""Suites: TOML files that name tasks, seeds, methods and settings, and how they are read.

```toml
question = "Does a wider upper bound help PPO?"
tasks = ["CartPole-v1"]
seeds = [0, 1, 2]
algorithms = ["reinforce", "ppo"]     # each as it is
plugin = ["mine.py"]                  # files that register more, relative to the suite

# For every cell; names as on the command line. Where control and language tasks stand side by side,
# what only one track has goes into variants on its tasks.
[settings]
steps = 100_000

[[variants]]                          # one more row of the table each
algorithm = "ppo"                     # or algorithms = [...], a row for each
tasks = ["CartPole-v1"]               # optional: on these tasks only
seeds = [0]                           # optional: in place of the seeds above
settings = { "clip.high" = 0.28 }

[[variants]]                          # a sweep: a row for every combination, here four
algorithm = "grpo"
axes = { "clip.high" = [0.2, 0.28], group_size = [4, 16] }
```
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from redline.benchmark.errors import BadInput, unknown
from redline.benchmark.suite import Suite, Variant, distinct, seeds_of

_SUITE_KEYS = ("question", "tasks", "seeds", "algorithms", "plugin", "settings", "variants")
_VARIANT_KEYS = ("algorithm", "algorithms", "tasks", "seeds", "settings", "axes")
# A suite says these in its own keys, or its command line does.
_NO_SETTINGS = ("task", "seed", "out", "overwrite", "resume", "plugin", "help")


def shipped() -> dict[str, Any]:
    """Name -> file of every suite that comes with the package."""
    folder = files("redline.benchmark") / "suites"
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {entry.name.removesuffix(".toml"): entry for entry in sorted(found, key=str)}


def read(name: str) -> Suite:
    """A shipped suite by name, or a file that ends in .toml.

    Raises:
        BadInput: No such suite, or one that does not follow the format above.
    """
    if name.endswith(".toml"):
        source: Any = Path(name)
        there = source.parent.glob("*.toml")
        others = [str(entry) for entry in there if entry.name != "pyproject.toml"]
        if others and not source.exists():
            raise unknown("suite file", name, others)
    else:
        known = shipped()
        if name not in known:
            file = f"{name}.toml"
            if Path(file).is_file():
                raise BadInput(
                    f"unknown suite {name!r}; there is a file {file}: say its whole name"
                )
            raise unknown("suite", name, known)
        source = known[name]
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8-sig"))  # some editors write a mark
    except OSError as error:
        raise BadInput(f"cannot read suite {name}: {error.strerror}") from error
    except ValueError as error:  # also bytes that are no text
        raise BadInput(f"suite {name} is not valid TOML: {error}") from error
    try:
        return _suite(Path(name).stem, Path(name).parent, data)
    except BadInput as error:
        raise BadInput(f"suite {name}: {error}") from error


def _suite(name: str, folder: Path, data: Mapping[str, Any]) -> Suite:
    _check_keys("key", data, _SUITE_KEYS)
    tasks = _names("tasks", data.get("tasks"))
    common = _settings(data.get("settings", {}))
    algorithms = _names("algorithms", data["algorithms"]) if "algorithms" in data else []
    seeds = seeds_of(data.get("seeds"))
    variants = [Variant(algorithm, common, tasks, seeds) for algorithm in algorithms]
    extra = data.get("variants", [])
    if not isinstance(extra, list) or not all(isinstance(entry, dict) for entry in extra):
        raise BadInput("variants must be tables: [[variants]]")
    for entry in extra:
        variants += _variants(entry, common, tasks, seeds)
    if not variants:
        raise BadInput("algorithms or [[variants]] must name at least one method")
    plugin = _names("plugin", data["plugin"]) if "plugin" in data else []
    return Suite(
        name,
        str(data.get("question", "")),
        tasks,
        variants,
        [str(folder / path) for path in plugin],
    )


def _variants(
    entry: Mapping[str, Any], common: Mapping[str, Any], tasks: Sequence[str], seeds: Sequence[int]
) -> list[Variant]:
    _check_keys("key of [[variants]]", entry, _VARIANT_KEYS)
    if ("algorithm" in entry) == ("algorithms" in entry):
        raise BadInput("a variant needs the name of an algorithm, or algorithms = [names]")
    names = _names("algorithms", entry.get("algorithms", [entry.get("algorithm")]))
    own = _names("tasks", entry["tasks"]) if "tasks" in entry else tasks
    for task in own:
        if task not in tasks:
            raise unknown(f"task of variant {names[0]}", task, tasks)
    settings = {**common, **_settings(entry.get("settings", {}))}
    chosen = seeds_of(entry["seeds"]) if "seeds" in entry else seeds
    points = _points(entry.get("axes", {}), settings)
    return [Variant(name, {**settings, **point}, own, chosen) for name in names for point in points]


def _points(axes: Any, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis fastest; a single empty one of none."""
    values = _settings(axes)
    for name, listed in values.items():
        if not (isinstance(listed, list) and listed):
            raise BadInput(f"axis {name} must be a list of values, got {listed!r}")
        distinct(f"axis {name}", listed)
        if name in settings:
            raise BadInput(f"{name} is an axis and a setting of one variant; keep one of them")
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _check_keys(kind: str, data: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in data:
        if key not in known:
            raise unknown(kind, key, known)


def _names(key: str, value: Any) -> list[str]:
    if not (isinstance(value, list) and value and all(isinstance(name, str) for name in value)):
        raise BadInput(f"{key} must be a list of at least one name, got {value!r}")
    return distinct(key, value)


def _settings(value: Any) -> dict[str, Any]:
    """Dotted name -> value; nested tables become dots, so that later ones replace earlier ones."""
    if not isinstance(value, Mapping):
        raise BadInput(f"settings must be a table, got {value!r}")
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat |= {f"{key}.{inner}": leaf for inner, leaf in _settings(item).items()}
        else:
            flat[key] = item
    for key in flat:
        if key in _NO_SETTINGS:
            raise BadInput(f"{key} is no setting of a suite; use its own keys or the command line")
    return flat
