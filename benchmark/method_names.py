"""What the rows of a table are called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redline.benchmark.config import NOT_HASHED
from redline.benchmark.runs import variant_name


def method_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for every run, equal for runs that differ in nothing but the seed.

    It is the variant's name; where that stands for several settings (a folder above two suites),
    the settings that differ are added.
    """
    plain = [variant_name(data["algo"], data.get("overrides", {})) for data in records]
    settings = [_settings(data) for data in records]
    groups: dict[tuple[str, str], list[int]] = {}
    for i, (name, data) in enumerate(zip(plain, records, strict=True)):
        groups.setdefault((data["run"]["task"], name), []).append(i)
    names = list(plain)
    for (_, name), members in groups.items():
        keys = sorted({key for i in members for key in settings[i]})
        differ = [key for key in keys if len({settings[i].get(key) for i in members}) > 1]
        for i in members if differ else ():
            values = ", ".join(f"{key}={settings[i].get(key)}" for key in differ)
            names[i] = f"{name} ({values})"
    return names


def _settings(data: Mapping[str, Any]) -> dict[str, str]:
    """Everything that is computed, the seed apart, as text."""
    run = {k: v for k, v in data["run"].items() if k not in (*NOT_HASHED, "seed", "task")}
    return {key: json.dumps(value) for key, value in {**run, **data["recipe"]}.items()}
