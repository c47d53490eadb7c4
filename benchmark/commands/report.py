"""`redline report`: tables and curves of all runs below a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse

_DESCRIPTION = (
    "Write report.html, report.md, report.csv and report.png into a folder of runs; "
    "print the tables."
)


@dataclass(frozen=True)
class ReportConfig:
    """Settings of `redline report`.

    Attributes:
        folder: Where redline matrix or redline run wrote.
        baseline: Algorithm that the others are compared with; None: ppo, else the first.
        by: What is compared: "final", the last evaluation, or "area", the learning curve's mean.
        paired: Compare the runs of the same seed with each other; only for methods to which a seed
            means the same.
    """

    folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = None
    baseline: str | None = None
    by: Literal["final", "area"] = "final"
    paired: bool = False


def main(arguments: Sequence[str]) -> int:
    """Write a report."""
    config = parse(ReportConfig, arguments, prog="redline report", description=_DESCRIPTION)
    if config.folder is None:
        raise BadInput("say which folder: redline report DIR")
    # Its imports take longer than wrong arguments need to be answered.
    from redline.benchmark import report, tables

    said = report.write(config.folder, config.baseline, config.by, config.paired)
    for task, found in said.tables.items():
        for table in found:
            tables.show(table, task)
        if found.uncompared is not None:
            print(found.uncompared)
    if said.across is not None:
        tables.show(said.across)
    if (note := footnote(said.results.records)) is not None:
        print(note)
    for line in report.problems(said.results):
        print(line)
    print(f"report: {config.folder / 'report.html'}")
    return 0
