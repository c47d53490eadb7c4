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

from redline.benchmark.records import CURVES, Results
from redline.benchmark.stats import (
    Interval,
    Summary,
    difference,
    normalise,
    summarise,
)
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
            mean_and_half_width(summarise(_done(runs)[f"final_{track.other}"])),
            number(_done(runs)["seconds"].mean()),
        ]
        for method, runs in _methods(results, task)
    ]
    header = ["algorithm", "seeds", *CURVES, track.other, "s/run"]
    return Table(f"{track.measure}, ± half a 95% interval over seeds", header, rows)


def rewards(results: Results, task: str) -> Table:
    """What every method reached on one task, by the metric that it is judged by."""
    rows = [[method, seeds(runs), *_of_curve(runs, "")] for method, runs in _methods(results, task)]
    return Table(track_of(task).policies[0], ["algorithm", "seeds", *CURVES], rows)


def sampled(results: Results, task: str) -> Table | None:
    """The same by the other metric; None where it was not evaluated."""
    methods, track = _methods(results, task), track_of(task)
    if not any(_done(runs)[f"final_{track.other}"].notna().any() for _, runs in methods):
        return None
    rows = [[method, *_of_curve(runs, f"_{track.other}")] for method, runs in methods]
    return Table(track.policies[1], ["algorithm", *CURVES], rows)


def robust(results: Results, task: str) -> Table:
    """Middles of the seeds' final rewards, which single seeds move little."""
    rows = []
    for method, runs in _methods(results, task):
        final = summarise(_done(runs)["final"])
        rows.append(
            [
                method,
                number(final.median),
                number(final.iqm),
                brackets(final.iqm_interval, final.n) if final.n else "n/a",
            ]
        )
    header = ["algorithm", "median", "IQM", "95% interval of IQM"]
    return Table(f"final of the {track_of(task).policies[0]}, over seeds", header, rows)


def _of_curve(runs: pd.DataFrame, suffix: str) -> list[str]:
    """Last, highest and mean height of the evaluation curves."""
    return [mean_and_half_width(summarise(_done(runs)[name + suffix])) for name in CURVES]


def of_task(results: Results, task: str, baseline: str | None) -> list[Table]:
    """All tables of one task, in the order of a report."""
    tables = [rewards(results, task), sampled(results, task), robust(results, task)]
    if baseline is not None:
        tables.append(comparison(results, task, baseline))
    return [table for table in (*tables, costs(results, task)) if table is not None]


def costs(results: Results, task: str) -> Table:
    """What the runs of one task took, means over the seeds that are done."""
    rows = []
    for method, runs in _methods(results, task):
        done = _done(runs)
        rows.append(
            [
                method,
                f"{done['steps'].mean():,.0f}" if len(done) else "n/a",
                number(done["seconds"].mean()),
                f"{done['fps'].mean():,.0f}" if len(done) else "n/a",
                f"{done['peak_mb'].max():,.0f}" if len(done) else "n/a",
            ]
        )
    unit = track_of(task).unit
    header = ["algorithm", unit, "seconds per run", f"{unit.split()[-1]}/s", "peak MiB"]
    return Table("cost", header, rows)


_COMPARED = "compared with {} by Welch's t test, rows not corrected for each other"


def comparison(results: Results, task: str, baseline: str) -> Table:
    """Differences of the final reward to one method, by Welch's test."""
    finals = {name: _done(runs)["final"].tolist() for name, runs in _methods(results, task)}
    rows = []
    for method, values in finals.items():
        if method == baseline:
            continue
        found = difference(values, finals.get(baseline, []))
        few = min(len(values), len(finals.get(baseline, [])))
        rows.append(
            [
                method,
                number(found.mean, sign=True),
                brackets(found.interval, few),
                "n/a" if np.isnan(found.p) else f"{found.p:.3f}",
            ]
        )
    header = ["algorithm", f"final − {baseline}", "95% interval", "p"]
    return Table(_COMPARED.format(baseline), header, rows)


def across_tasks(results: Results, baseline: str) -> Table:
    """Mean over tasks of normalised finals: 0 is the untrained policy, 1 the baseline's mean.

    A seed's value is its mean over all tasks, so that seeds stay the sample; seeds that lack a task
    are left out.
    """
    done = _done(results.runs)
    parts, refused = [], []
    for task, runs in done.groupby("task"):
        low = runs["untrained"].mean()
        high = runs.loc[runs["method"] == baseline, "final"].mean()
        try:
            score = normalise(runs["final"], low=low, high=high)
        except ValueError:
            refused.append(str(task))
        else:
            parts.append(runs[["method", "seed"]].assign(task=task, score=score))
    used = len(parts)
    rows = []
    for method in results.methods:
        values: list[float] = []
        if parts:
            scores = pd.concat(parts)
            per_seed = scores[scores["method"] == method].groupby("seed")["score"]
            values = per_seed.mean()[per_seed.count() == used].tolist()
        rows.append([method, str(len(values)), mean_and_half_width(summarise(values))])
    skipped = (
        f" (without {', '.join(refused)}, where both references are the same or nan)"
        if refused
        else ""
    )
    title = f"normalised score over {used} tasks{skipped}"
    return Table(title, ["algorithm", "seeds", "score"], rows)


def _methods(results: Results, task: str) -> list[tuple[str, pd.DataFrame]]:
    of_task = results.runs[results.runs["task"] == task]
    return [(str(name), of_task[of_task["method"] == name]) for name in of_task["method"].unique()]


def _done(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["status"] == "done"]


def seeds(runs: pd.DataFrame) -> str:
    """Seeds done of those asked for, and what became of the others."""
    done = _done(runs)
    lost = runs.loc[runs["status"] != "done", "status"].value_counts().sort_index()
    parts = [f"{count} {status}" for status, count in lost.items()]
    if count := int((~np.isfinite(done["final"].astype(float))).sum()):
        parts.append(f"{count} nan")
    return f"{len(done)}/{len(runs)}" + (f" ({', '.join(parts)})" if parts else "")


def number(value: float, sign: bool = False, scale: float | None = None) -> str:
    """A number with about four digits or whole, "n/a" for nan.

    Args:
        value: The number.
        sign: Show + as well.
        scale: The number whose digits to match; None: `value`.
    """
    if not np.isfinite(value):
        return "n/a"
    size = abs(value if scale is None else scale)
    steps = ((0, 1000), (1, 100), (2, 1), (3, 0))
    digits = next(digits for digits, limit in steps if size >= limit)
    return f"{value:{'+' if sign else ''},.{digits}f}"


def mean_and_half_width(summary: Summary) -> str:
    """Mean ± half of its interval."""
    if summary.n == 0:
        return "n/a"
    if summary.mean_interval is None:
        return f"{number(summary.mean)} ± n/a"
    half = (summary.mean_interval.high - summary.mean_interval.low) / 2
    return f"{number(summary.mean)} ± {number(half, scale=summary.mean)}"


def brackets(interval: Interval | None, n: int) -> str:
    """An interval, or how many seeds are too few for one."""
    if interval is None:
        return f"n/a (n={n})"
    scale = max(abs(interval.low), abs(interval.high))
    return f"[{number(interval.low, scale=scale)}, {number(interval.high, scale=scale)}]"
