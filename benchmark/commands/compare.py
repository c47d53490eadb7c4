"""`redline compare`: train what is missing, and say which method is better."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from redline.benchmark import matrix, ranks
from redline.benchmark.arguments import resolve
from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.commands.training import (
    Stopped,
    carry_out,
    check_numbers,
    failures,
    list_plan,
)
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput
from redline.benchmark.gpus import shared_out
from redline.benchmark.launchers import LocalPool
from redline.benchmark.notes import untuned
from redline.benchmark.parsing import parse
from redline.benchmark.preflight import check_tasks
from redline.benchmark.runs import run_path
from redline.benchmark.suite import Cell, Suite
from redline.benchmark.tracks import track_of

_DESCRIPTION = (
    "Train the runs of some methods that are missing, hold the methods against one of them, "
    "and write a report."
)
_USAGE = "redline compare ALGO ALGO... --task TASK"
_OWN = ("--task", "--seed", "--out", "--plugin", "--resume", "--overwrite", "--steps")


@dataclass(frozen=True)
class CompareConfig:
    """Settings of `redline compare`.

    Attributes:
        algorithms: At least two methods; one with settings of its own is written with quotes:
            "ppo --clip.high 0.28".
        task: Where they run.
        seeds: How many, from 0 on.
        steps: Budget of every run; None: the presets'.
        baseline: Whom the others are held against; None: ppo where it is among them, else the last.
        by: What is compared: "final", the last evaluation, or "area", the learning curve's mean.
        paired: Compare the runs of the same seed with each other.
        plugin: Python files that register more algorithms.
        jobs: Runs at the same time, each on one thread; best is the number of cores.
        gpus: Share out this many GPUs among the jobs, each of which then sees one alone; needs
            methods with --device cuda. None: every job sees all of them.
        out: Folder of the results; None: results/compare, where the next call finds them again.
        patience: Seconds without an update after which a run counts as hung.
        overwrite: Replace runs that are there with other settings.
        dry_run: List the runs with the time that each should take, and end.
    """

    algorithms: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ALGO ALGO...")
    ] = ()
    task: str | None = None
    seeds: int = 5
    steps: int | None = None
    baseline: str | None = None
    by: Literal["final", "area"] = "final"
    paired: bool = False
    plugin: tuple[Path, ...] = ()
    jobs: int = 1
    gpus: int | None = None
    out: Path | None = None
    patience: float | None = 1800.0
    overwrite: bool = False
    dry_run: bool = False


def main(arguments: Sequence[str]) -> int:
    """Train and judge; 1 when a run failed."""
    config = parse(CompareConfig, arguments, prog="redline compare", description=_DESCRIPTION)
    if len(config.algorithms) < 2:
        raise BadInput(f"say at least two algorithms: {_USAGE}")
    if config.task is None:
        raise BadInput(f"redline compare needs --task, for example --task CartPole-v1 ({_USAGE})")
    if config.seeds < 1:
        raise BadInput(f"--seeds must be at least 1, got {config.seeds}")
    check_numbers(config.jobs, config.patience)
    ranks.require_alone("redline compare")
    root = config.out or Path("results") / "compare"
    methods = _alike([_method(text, config) for text in config.algorithms])
    cells = _cells(methods, root, config.seeds)
    names = list(dict.fromkeys(cell.variant for cell in cells))
    baseline = config.baseline or ("ppo" if "ppo" in names else names[-1])
    if baseline not in names:
        raise BadInput(f"--baseline must be one of {', '.join(names)}, got {baseline!r}")
    gpus = shared_out(config.gpus, config.jobs, methods)
    check_tasks(methods)
    for note in untuned(methods):
        print(f"note: {note}")
    plan = matrix.plan(cells, config.overwrite)
    if config.dry_run:
        return list_plan(plan, root, config.jobs)
    suite = Suite("compare", "", [config.task], [], [])
    command = shlex.join(["redline", "compare", *arguments])
    launcher = LocalPool(config.jobs, config.patience, gpus=gpus)
    try:
        outcomes = carry_out(root, suite, cells, plan, command, launcher)
    except Stopped as stopped:
        return stopped.code
    _judge(root, cells, baseline, config)
    return 1 if failures(outcomes) else 0


def _method(text: str, config: CompareConfig) -> Resolved:
    """One method, seed 0."""
    assert config.task is not None
    try:
        algo, *flags = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is no method with settings: {error}") from error
    for flag in flags:
        if (name := flag.partition("=")[0].replace("_", "-")) in _OWN:
            raise BadInput(f"{name} of {text!r} holds for all methods: write it outside the quotes")
    flags += ["--task", config.task, "--seed", "0"]
    if config.steps is not None:
        flags += ["--steps", str(config.steps)]
    if config.plugin:
        flags += ["--plugin", *map(str, config.plugin)]
    return resolve(algo, flags, prog="redline compare")


def _alike(methods: Sequence[Resolved]) -> list[Resolved]:
    """The same methods, all evaluated as the one that is evaluated most.

    Raises:
        BadInput: Their budgets differ, as those of presets may.
    """
    budgets = {f"{one.run.steps:,} of {one.algo}": one.run.steps for one in methods}
    if len(set(budgets.values())) > 1:
        raise BadInput(f"the presets' budgets differ ({', '.join(budgets)}); give --steps")
    size = track_of(methods[0].run.task).size
    most = {name: max(getattr(one.run, name) for one in methods) for name in ("evals", size)}
    return [replace(one, run=replace(one.run, **most)) for one in methods]


def _cells(methods: Sequence[Resolved], root: Path, seeds: int) -> list[Cell]:
    """All methods' first seeds first.

    Raises:
        BadInput: A method is named twice.
    """
    found: dict[Path, Cell] = {}
    for seed in range(seeds):
        for method in methods:
            resolved = replace(method, run=replace(method.run, seed=seed))
            cell = Cell(resolved, run_path(root, resolved))
            if cell.folder in found:
                raise BadInput(f"{cell.variant} is named twice")
            found[cell.folder] = cell
    return list(found.values())


def _judge(root: Path, cells: Sequence[Cell], baseline: str, config: CompareConfig) -> None:
    from redline.benchmark import report, tables

    paths = [cell.folder.relative_to(root).as_posix() for cell in cells]
    said = report.write(root, baseline, config.by, config.paired, paths)
    for task, found in said.tables.items():
        tables.show(tables.overview(said.results, task), task)
        if found.comparison is not None:
            tables.show(found.comparison, task)
    if (note := footnote(said.results.records)) is not None:
        print(note)
    for line in report.problems(said.results):
        print(line)
    again = f"redline report {shlex.quote(str(root))}"
    print(f"report: {root / 'report.html'}, of these runs; {again} makes it of all in the folder")
