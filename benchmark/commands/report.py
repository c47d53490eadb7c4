"""`redline report`: tables and curves of all runs below a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse

_DESCRIPTION = "Write report.md, report.csv and report.png into a folder of runs; print the tables."


@dataclass(frozen=True)
class ReportConfig:
    """Settings of `redline report`.

    Attributes:
        folder: Where redline matrix or redline run wrote.
        baseline: Algorithm that the others are compared with.
    """

    folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = None
    baseline: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Write a report."""
    config = parse(ReportConfig, arguments, prog="redline report", description=_DESCRIPTION)
    if config.folder is None:
        raise BadInput("say which folder: redline report DIR")
    # Its imports take longer than wrong arguments need to be answered.
    from redline.benchmark import report, tables

    results = report.write(config.folder, config.baseline)
    for task in results.tasks:
        for table in tables.of_task(results, task, config.baseline):
            tables.show(table, task)
    if config.baseline is not None and len(results.tasks) > 1:
        tables.show(tables.across_tasks(results, config.baseline))
    if (note := footnote(results.records)) is not None:
        print(note)
    for line in report.problems(results):
        print(line)
    print(f"report: {config.folder / 'report.md'}")
    return 0
