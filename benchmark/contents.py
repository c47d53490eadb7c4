"""What a report says, worked out once for all of its forms: terminal, Markdown, page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from redline.benchmark import tables
from redline.benchmark.comparison import Judging, comparison, uncompared
from redline.benchmark.records import Results
from redline.benchmark.scores import across_tasks
from redline.benchmark.tables import Table


@dataclass(frozen=True)
class TaskTables:
    """Tables of one task; going through them gives those that there are, in order.

    Attributes:
        rewards: What every method reached.
        sampled: The same by the other metric; None where it was not evaluated.
        robust: Middles of the seeds.
        costs: What the runs took.
        comparison: Differences to the baseline; None where nothing can be compared.
        uncompared: Why not, as a sentence; None where something is, or nothing was asked for.
    """

    rewards: Table
    sampled: Table | None
    robust: Table
    costs: Table
    comparison: Table | None
    uncompared: str | None

    def __iter__(self) -> Iterator[Table]:
        every = (self.rewards, self.sampled, self.robust, self.costs, self.comparison)
        return (table for table in every if table is not None)


@dataclass(frozen=True)
class Contents:
    """What a report is written from.

    Attributes:
        results: The runs.
        how: How methods are compared; None: they are not.
        findings: What the doctor says, in lines.
        tables: Task -> its tables.
        across: Results over all tasks; None where there is one task, or no baseline.
    """

    results: Results
    how: Judging | None
    findings: Sequence[str]
    tables: Mapping[str, TaskTables]
    across: Table | None


def contents(results: Results, how: Judging | None, findings: Sequence[str] = ()) -> Contents:
    """All tables of a report.

    Args:
        results: The runs.
        how: How methods are compared; None: they are not.
        findings: What the doctor says, in lines.
    """
    found = {task: _of_task(results, task, how) for task in results.tasks}
    several = len(results.tasks) > 1
    across = across_tasks(results, how) if several and how is not None else None
    return Contents(results, how, findings, found, across)


def _of_task(results: Results, task: str, how: Judging | None) -> TaskTables:
    return TaskTables(
        tables.rewards(results, task),
        tables.sampled(results, task),
        tables.robust(results, task),
        tables.costs(results, task),
        None if how is None else comparison(results, task, how),
        None if how is None else uncompared(results, task, how),
    )
