"""Suites: matrices of runs, turned into cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from redline.benchmark.arguments import resolve, to_arguments
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput, unknown
from redline.benchmark.runs import run_path, variant_name

# In a comparison a method that goes too far is shown, not stopped.
_DEFAULTS = {"breaker": "record"}


@dataclass(frozen=True)
class Variant:
    """A row of the table: a method with its settings.

    Attributes:
        algorithm: Name of the recipe.
        settings: Dotted overrides, those of the whole suite included.
        tasks: Where it runs.
        seeds: Reported seeds.
    """

    algorithm: str
    settings: Mapping[str, Any]
    tasks: Sequence[str]
    seeds: Sequence[int]


@dataclass(frozen=True)
class Suite:
    """A matrix of runs as its file describes it.

    Attributes:
        name: Name of the file.
        question: What the report shall answer, "" where the file does not say.
        tasks: Task names.
        variants: Methods.
        plugin: Files that register more methods.
    """

    name: str
    question: str
    tasks: Sequence[str]
    variants: Sequence[Variant]
    plugin: Sequence[str]

    @property
    def seeds(self) -> list[int]:
        """Every seed that some method runs with, in ascending order."""
        return sorted({seed for variant in self.variants for seed in variant.seeds})


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a matrix.

    Attributes:
        resolved: Its settings.
        folder: Where it is written.
    """

    resolved: Resolved
    folder: Path

    @property
    def name(self) -> str:
        """Variant, task and seed."""
        run = self.resolved.run
        return f"{self.variant} {run.task} seed={run.seed}"

    @property
    def variant(self) -> str:
        """The method with what differs from its preset."""
        return variant_name(self.resolved.algo, self.resolved.overrides)

    @property
    def names(self) -> tuple[str, str, str]:
        """What the cell may be chosen by: variant, method and task."""
        return self.variant, self.resolved.algo, self.resolved.run.task


def cells(
    suite: Suite, root: Path, seeds: Sequence[int] | None = None, steps: int | None = None
) -> list[Cell]:
    """Every run of a suite, all methods' first seeds first.

    Args:
        suite: What to run.
        root: Folder of the results.
        seeds: Instead of the suite's, for every method.
        steps: Instead of the suite's, for every cell.

    Raises:
        BadInput: A setting does not fit its method, or two cells are the same.
    """
    asked = None if seeds is None else seeds_of(seeds)
    rows = [
        (_resolve(suite, variant, task, steps), variant.seeds if asked is None else asked)
        for task in suite.tasks
        for variant in suite.variants
        if task in variant.tasks
    ]
    found: dict[Path, Cell] = {}
    for seed in suite.seeds if asked is None else asked:
        for row, own in rows:
            if seed not in own:
                continue
            resolved = dataclasses.replace(row, run=dataclasses.replace(row.run, seed=seed))
            cell = Cell(resolved, run_path(root, resolved))
            if cell.folder in found:
                raise BadInput(f"suite {suite.name} lists {cell.name} twice")
            found[cell.folder] = cell
    return list(found.values())


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Those whose method or task is one of the patterns; all where there is none.

    Raises:
        BadInput: A pattern fits no cell.
    """
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for cell in cells for name in cell.names):
            known = {name for cell in cells for name in cell.names}
            raise unknown("method or task of --only", pattern, known)
    return [
        cell
        for cell in cells
        if not only or any(fnmatchcase(name, pattern) for pattern in only for name in cell.names)
    ]


def _resolve(suite: Suite, variant: Variant, task: str, steps: int | None) -> Resolved:
    settings = {**_DEFAULTS, **variant.settings, **({} if steps is None else {"steps": steps})}
    try:
        arguments = to_arguments({"task": task, **settings})
        if suite.plugin:
            arguments += to_arguments({"plugin": suite.plugin})
        return resolve(variant.algorithm, arguments)
    except BadInput as error:
        where = f"suite {suite.name}, {variant.algorithm} on {task}"
        raise BadInput(f"{where}: {error}") from error


def seeds_of(value: Any) -> list[int]:
    """Distinct whole numbers from 0 on.

    Raises:
        BadInput: The value is something else.
    """
    whole = isinstance(value, list | tuple) and all(type(seed) is int for seed in value)
    if not (whole and value and min(value) >= 0):
        raise BadInput(f"seeds must be a list of whole numbers from 0 on, got {value!r}")
    return distinct("seeds", list(value))


def distinct(key: str, values: list[Any]) -> list[Any]:
    """The values of a key.

    Raises:
        BadInput: One is there twice.
    """
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise BadInput(f"{key} lists {twice!r} twice")
    return values
