"""Settings of a run: what the user may say, resolved to one record with a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from redline.benchmark.errors import unknown
from redline.benchmark.tracks import ControlConfig, LanguageConfig, RunConfig

if TYPE_CHECKING:
    pass

T = TypeVar("T")


# They say where and how a run is written or found, not what is computed.
NOT_HASHED = (
    "out",
    "overwrite",
    "resume",
    "tensorboard",
    "plugin",
    "sampler_process",
    "breaker",
    "telemetry",
    "review_every",
)
# Entry of a record beside the settings of a run: hash of the plugin's file.
PLUGIN_CODE = "plugin_code"


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

    @property
    def control(self) -> ControlConfig:
        """The other settings of a run on a control task."""
        assert isinstance(self.run, ControlConfig)
        return self.run

    @property
    def language(self) -> LanguageConfig:
        """The other settings of a run on a language task."""
        assert isinstance(self.run, LanguageConfig)
        return self.run

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
            data["run"].pop(name, None)
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
        elif isinstance(value, Mapping) and dataclasses.is_dataclass(getattr(instance, head)):
            nested.setdefault(head, {}).update(value)
        else:
            changes[key] = tuple(value) if isinstance(value, list) else value
    for head, inner in nested.items():
        changes[head] = replace_fields(getattr(instance, head), inner)
    return dataclasses.replace(instance, **changes)  # type: ignore[type-var]


def flat_fields(instance: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value of every leaf of a nested dataclass, the entries of mappings too."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        name = prefix + field.name
        if dataclasses.is_dataclass(value):
            leaves |= flat_fields(value, f"{name}.")
        elif isinstance(value, Mapping):
            leaves |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            leaves[name] = value
    return leaves


def setting_names(resolved: Resolved) -> set[str]:
    """Dotted names of all settings of a run."""
    return {*flat_fields(resolved.run), *flat_fields(resolved.recipe)}
