"""`redline matrix`: train what a suite still lacks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import tyro

from redline.benchmark import matrix, ranks, suite, suite_files
from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.commands.training import (
    Stopped,
    carry_out,
    check_numbers,
    failures,
    list_plan,
)
from redline.benchmark.errors import BadInput
from redline.benchmark.gpus import shared_out
from redline.benchmark.launchers import LocalPool
from redline.benchmark.parsing import parse
from redline.benchmark.preflight import check_tasks

_DESCRIPTION = (
    "Train every run of a suite that is missing, failed or incomplete. Running it again continues."
)


@dataclass(frozen=True)
class MatrixConfig:
    """Settings of `redline matrix`.

    Attributes:
        suite: A shipped suite (`redline list suites`) or a .toml file.
        jobs: Runs at the same time, each on one thread; best is the number of cores.
        gpus: Share out this many GPUs among the jobs, each of which then sees one alone; needs runs
            with the device cuda. None: every job sees all of them.
        launcher: "local": processes here; "ray": tasks of a Ray cluster, whose nodes have Redline
            installed and need no shared disk (extra `[ray]`).
        address: Of a Ray cluster that is there; None: one of this machine, with `jobs` CPUs.
        out: Folder of the results; None: results/<suite>.
        seeds: Instead of the suite's seeds.
        steps: Instead of the suite's budget.
        only: Runs of these methods or tasks alone; patterns such as "ppo*" too.
        patience: Seconds without an update after which a run counts as hung; its process is then
            ended and the run tried once more, as when it is killed. None: it may take any time.
        timeout: Seconds that a run may take, after which it is ended and has failed; None: any.
        overwrite: Replace runs that are there with other settings.
        dry_run: List the runs with the time that each should take, and end.
    """

    suite: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")] = None
    jobs: int = 1
    gpus: int | None = None
    launcher: Literal["local", "ray"] = "local"
    address: str | None = None
    out: Path | None = None
    seeds: tuple[int, ...] | None = None
    steps: int | None = None
    only: tuple[str, ...] = ()
    patience: float | None = 1800.0
    timeout: float | None = None
    overwrite: bool = False
    dry_run: bool = False


def main(arguments: Sequence[str]) -> int:
    """Train a matrix and print its table; 1 when a cell failed."""
    config = parse(MatrixConfig, arguments, prog="redline matrix", description=_DESCRIPTION)
    if config.suite is None:
        raise BadInput("say which suite: redline matrix SUITE (redline list suites shows them)")
    check_numbers(config.jobs, config.patience, config.timeout)
    ranks.require_alone("redline matrix")
    _check_launcher(config)
    chosen = suite_files.read(config.suite)
    root = config.out or Path("results") / chosen.name
    cells = suite.chosen(suite.cells(chosen, root, config.seeds, config.steps), config.only)
    gpus = shared_out(config.gpus, config.jobs, (cell.resolved for cell in cells))
    check_tasks(cell.resolved for cell in cells)
    plan = matrix.plan(cells, config.overwrite)
    if config.dry_run:
        return list_plan(plan, root, config.jobs)
    command = shlex.join(["redline", "matrix", *arguments])
    try:
        outcomes = carry_out(root, chosen, cells, plan, command, _launcher(config, gpus))
    except Stopped as stopped:
        return stopped.code
    _print_tables(root)
    failed = failures(outcomes)
    print(f"results: {root} ({len(cells) - failed} of {len(cells)} runs complete)")
    return 1 if failed else 0


def _check_launcher(config: MatrixConfig) -> None:
    if config.launcher == "local" and config.address is not None:
        raise BadInput("--address needs --launcher ray")
    if config.launcher == "ray" and config.gpus is not None:
        raise BadInput("--gpus needs --launcher local; Ray gives every run on cuda a GPU by itself")
    if config.launcher == "ray" and config.timeout is not None:
        raise BadInput("--timeout needs --launcher local; --patience ends runs that hang on Ray")
    if config.launcher == "ray" and find_spec("ray") is None:
        raise BadInput('--launcher ray needs ray: pip install "redline-rl[ray]"')


def _launcher(config: MatrixConfig, gpus: Sequence[str | None]) -> matrix.Launcher:
    if config.launcher == "local":
        return LocalPool(config.jobs, config.patience, config.timeout, gpus)
    from redline.benchmark.ray_launcher import RayPool

    return RayPool(config.address, config.jobs, config.patience)


def _print_tables(root: Path) -> None:
    from redline.benchmark.records import load
    from redline.benchmark.tables import overview, show

    results = load(root)
    for task in results.tasks:
        show(overview(results, task), task)
    if (note := footnote(results.records)) is not None:
        print(note)
