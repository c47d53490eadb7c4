"""What the tables are held against: gates of our own, and numbers that others published."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Reference:
    """Gates and published numbers for one budget.

    Attributes:
        steps: The budget; runs of another one are held against nothing.
        gates: Task -> {"measure": "last" or "final", method: least IQM}.
        sources: name, versions, metric, and values as task -> method -> return.
    """

    steps: int
    gates: Mapping[str, Mapping[str, Any]]
    sources: Sequence[Mapping[str, Any]]


def reference() -> Reference:
    """The file that comes with the package."""
    text = (files("redline.benchmark.published") / "reference.toml").read_text(encoding="utf-8")
    return Reference(**tomllib.loads(text))
