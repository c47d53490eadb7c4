"""Results as tables, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from redline.benchmark.formats import brackets, mean_and_half_width, number
from redline.benchmark.records import CURVES, Results
from redline.benchmark.stats import FEW, finite, iqm_interval, summarise
from redline.benchmark.tracks import track_of

# Width of a table that is not shown on a terminal, so that a log file does not break its lines.
_FILE_WIDTH = 160


@dataclass(frozen=True)
class Table:
    """Text in rows.

    Attributes:
        title: What it shows.
        header: Names of the columns; the first holds names, the others numbers.
        rows: Cells.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As a Markdown table, without the title."""
        align = ["---", *("---:" for _ in self.header[1:])]
        lines = [self.header, align, *self.rows]
        return "\n".join(f"| {' | '.join(c.replace('|', '/') for c in line)} |" for line in lines)


def show(table: Table, task: str | None = None) -> None:
    """Print a table to the terminal, its title with the task's name."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    drawn = RichTable(box=box.SIMPLE_HEAD)
    for i, name in enumerate(table.header):
        drawn.add_column(escape(name), justify="right" if i else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*map(escape, row))
    title = table.title if task is None else f"{task}, {table.title}"
    console.print(title, markup=False, highlight=False)
    console.print(drawn)


def overview(results: Results, task: str) -> Table:
    """The main figures of one task, a row per method."""
    track = track_of(task)
    rows = [
        [
            method,
            seeds(runs),
            *_of_curve(runs, ""),
            mean_and_half_width(summarise(done(runs)[f"final_{track.other}"])),
            number(done(runs)["seconds"].mean()),
        ]
        for method, runs in methods_of(results, task)
    ]
    header = ["algorithm", "seeds", *CURVES, track.other, "s/run"]
    return Table(f"{track.measure}, ± half a 95% interval over seeds", header, rows)


def rewards(results: Results, task: str) -> Table:
    """What every method reached on one task, by the metric that it is judged by."""
    rows = [
        [method, seeds(runs), *_of_curve(runs, "")] for method, runs in methods_of(results, task)
    ]
    return Table(track_of(task).policies[0], ["algorithm", "seeds", *CURVES], rows)


def sampled(results: Results, task: str) -> Table | None:
    """The same by the other metric; None where it was not evaluated."""
    methods, track = methods_of(results, task), track_of(task)
    if not any(done(runs)[f"final_{track.other}"].notna().any() for _, runs in methods):
        return None
    rows = [[method, *_of_curve(runs, f"_{track.other}")] for method, runs in methods]
    return Table(track.policies[1], ["algorithm", *CURVES], rows)


def robust(results: Results, task: str) -> Table:
    """Middles of the seeds' final rewards, which single seeds move little."""
    rows, fewest = [], FEW
    for method, runs in methods_of(results, task):
        final = summarise(done(runs)["final"])
        fewest = min(fewest, final.n)
        interval = iqm_interval([finite(done(runs)["final"])])
        rows.append(
            [
                method,
                number(final.median),
                number(final.iqm),
                brackets(interval, final.n) if final.n else "n/a",
            ]
        )
    header = ["algorithm", "median", "IQM", "95% interval of IQM"]
    title = f"final of the {track_of(task).policies[0]}, over seeds"
    if fewest < FEW:
        title += f" (below {FEW} of them an interval of the IQM is rough)"
    return Table(title, header, rows)


def _of_curve(runs: pd.DataFrame, suffix: str) -> list[str]:
    """Last, highest and mean height of the evaluation curves."""
    return [mean_and_half_width(summarise(done(runs)[name + suffix])) for name in CURVES]


def costs(results: Results, task: str) -> Table:
    """What the runs of one task took, means over the seeds that are done."""
    rows = []
    for method, runs in methods_of(results, task):
        ended = done(runs)
        rows.append(
            [
                method,
                f"{ended['steps'].mean():,.0f}" if len(ended) else "n/a",
                number(ended["seconds"].mean()),
                f"{ended['fps'].mean():,.0f}" if len(ended) else "n/a",
                number(ended["update_seconds"].mean()),
                f"{ended['peak_mb'].max():,.0f}" if len(ended) else "n/a",
            ]
        )
    unit = track_of(task).unit
    header = ["algorithm", unit, "seconds per run", f"{unit.split()[-1]}/s", "s/update", "peak MiB"]
    return Table("cost", header, rows)


def methods_of(results: Results, task: str) -> list[tuple[str, pd.DataFrame]]:
    """Name and runs of every method on one task, in the order of the tables."""
    of_task = results.runs[results.runs["task"] == task]
    return [(str(name), runs) for name, runs in of_task.groupby("method", sort=False)]


def done(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs that ended as they should."""
    return runs[runs["status"] == "done"]


def seeds(runs: pd.DataFrame) -> str:
    """Seeds done of those asked for, and what became of the others."""
    ended = done(runs)
    lost = runs.loc[runs["status"] != "done", "status"].value_counts().sort_index()
    parts = [f"{count} {status}" for status, count in lost.items()]
    if count := int((~np.isfinite(ended["final"].astype(float))).sum()):
        parts.append(f"{count} nan")
    return f"{len(ended)}/{len(runs)}" + (f" ({', '.join(parts)})" if parts else "")
