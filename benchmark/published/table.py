"""The table of a suite from the summaries that are there: CSV, Markdown and curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from redline.benchmark.files import written_at_the_end
from redline.benchmark.published.cells import NUMBERS, configuration, read_summary
from redline.benchmark.published.reference import Reference, reference
from redline.benchmark.stats import Interval, finite, iqm_interval, summarise
from redline.benchmark.suite import Cell
from redline.benchmark.tracks import STOCHASTIC
from redline.benchmark.words import counted

_HEADINGS = {
    "last": "last 10%",
    "final": "final",
    "best": "best",
    "area": "area",
    "cpu_seconds": "CPU s",
    "wall_seconds": "wall s",
    "peak_memory_mb": "MiB",
}
# Columns of text; the others are numbers.
_WORDS = ["task", "method", "gate", "published", "by", "versions", "metric", "package", "version"]
_RETURNS = ("last", "final", "best", "area")
_ABOUT = """\
Returns are interquartile means over seeds, with a 95% bootstrap interval, widened for few seeds,
in brackets. *last 10%*: mean of the stochastic policy's evaluations in the last tenth of training;
*final*: last evaluation of the deterministic policy; *best*: highest deterministic evaluation of a
run, which favours noise; *area*: mean height of the stochastic policy's curve. Every evaluation is
{episodes}. Seconds are means over seeds: CPU seconds of the process, and wall seconds
on machines that did other work too. Seeds that are missing enter nothing; seeds whose returns
became infinite or no number are counted beside the seeds and enter no mean.
"""


def write(cells: Sequence[Cell], root: Path) -> int:
    """Write table.csv, table.md and table.png; gives how many runs they rest on.

    A summary of other settings, or of an older revision of the code, is left out and said so.

    Args:
        cells: The whole suite, in the order of the table.
        root: Folder with cells/, where the table goes.

    Raises:
        BadInput: The folder cannot be written.
    """
    from redline.benchmark.published.figure import save

    found: dict[Cell, Mapping[str, Any]] = {}
    stale = 0
    for cell in cells:
        summary = read_summary(cell, root)
        if summary is not None and summary["configuration"] == configuration(cell):
            found[cell] = summary
        else:
            stale += summary is not None
    rows = table(cells, found)
    with written_at_the_end(root) as folder:
        rows.to_csv(folder / "table.csv", index=False, float_format="%.6g")
        text = markdown(cells, found, rows, stale, reference())
        (folder / "table.md").write_text(text, encoding="utf-8")
        save(_curves(found), rows, folder / "table.png")
    return len(found)


def table(cells: Sequence[Cell], found: Mapping[Cell, Mapping[str, Any]]) -> pd.DataFrame:
    """A row per task and method, those without any run too; `seeds` of `expected` are there."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.resolved.run.task, cell.variant), []).append(cell)
    rows = []
    for (task, method), members in groups.items():
        there = [found[cell] for cell in members if cell in found]
        row: dict[str, Any] = {
            "task": task,
            "method": method,
            "seeds": len(there),
            "expected": len(members),
            "not_finite": sum(not _is_finite(one) for one in there),
        }
        for name in NUMBERS:
            values = finite([one[name] for one in there])
            if name.endswith(("seconds", "mb")):
                row[name] = float(values.mean()) if len(values) else np.nan
                continue
            interval = iqm_interval([values]) or Interval(np.nan, np.nan)
            row |= {
                name: summarise(values).iqm,
                f"{name}_low": interval.low,
                f"{name}_high": interval.high,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def _is_finite(summary: Mapping[str, Any]) -> bool:
    return len(finite([summary[name] for name in _RETURNS])) == len(_RETURNS)


def _curves(found: Mapping[Cell, Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (cell.resolved.run.task, cell.variant, cell.resolved.run.seed, step, value)
            for cell, summary in found.items()
            for step, value in summary["curve"]
        ],
        columns=["task", "method", "seed", "step", STOCHASTIC],
    ).astype({"step": float, STOCHASTIC: float})


def markdown(
    cells: Sequence[Cell],
    found: Mapping[Cell, Mapping[str, Any]],
    rows: pd.DataFrame,
    stale: int,
    held: Reference,
) -> str:
    """The page: gates, a table per task with published numbers below it, versions."""
    budgets = {cell.resolved.run.steps for cell in cells}
    episodes = {cell.resolved.control.eval_episodes for cell in cells}
    budget = " / ".join(f"{steps:,}" for steps in sorted(budgets))
    parts = [f"# {budget} steps: {len(found)} of {len(cells)} runs\n", "![curves](table.png)\n"]
    if stale:
        parts.append(f"{stale} summaries of other settings or older code are left out.\n")
    played = " / ".join(map(str, sorted(episodes)))
    parts.append(_ABOUT.format(episodes=f"the mean of {played} episodes"))
    comparable = budgets == {held.steps}
    if comparable:
        parts.append(_gates(rows, held))
    for task, part in rows.groupby("task", sort=False):
        parts += [f"## {task}\n", _task(part), *_same_runs(str(task), cells, found)]
        if comparable and (published := _published(str(task), held)):
            parts.append(published)
    parts.append(_versions(found))
    return "\n".join(parts)


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---" if name in ("", *_WORDS) else "---:" for name in head]
    lines = [head, rule, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _number(value: float) -> str:
    return "-" if not np.isfinite(value) else f"{value:,.1f}"


def _task(part: pd.DataFrame) -> str:
    rows = []
    for row in part[part["seeds"] > 0].to_dict("records"):
        shown = []
        for name in _HEADINGS:
            text = _number(row[name])
            if name in ("last", "final") and np.isfinite(row[f"{name}_low"]):
                text += f" [{_number(row[f'{name}_low'])}, {_number(row[f'{name}_high'])}]"
            shown.append(text)
        seeds = f"{row['seeds']} of {row['expected']}"
        if row["not_finite"]:
            seeds += f", {row['not_finite']} not finite"
        rows.append([str(row["method"]), seeds, *shown])
    waiting = ", ".join(part[part["seeds"] == 0]["method"])
    left = f"\nNot yet run: {waiting}.\n" if waiting else ""
    return (_lines(["method", "seeds", *_HEADINGS.values()], rows) if rows else "") + left


def _same_runs(
    task: str, cells: Sequence[Cell], found: Mapping[Cell, Mapping[str, Any]]
) -> Iterator[str]:
    """A sentence on every two methods that were the same run on each seed that both have."""
    evaluations: dict[str, dict[int, Any]] = {}
    for cell in cells:
        run = cell.resolved.run
        if run.task == task and cell in found:
            evaluations.setdefault(cell.variant, {})[run.seed] = found[cell]["evaluations"]
    for one, other in combinations(evaluations, 2):
        common = evaluations[one].keys() & evaluations[other].keys()
        if common and all(evaluations[one][seed] == evaluations[other][seed] for seed in common):
            on = f"{len(common)} seed" + "s" * (len(common) > 1)
            yield f"{one} and {other} are the same run on {on}, digit by digit.\n"


def _gates(rows: pd.DataFrame, held: Reference) -> str:
    """What was to be reached; with seeds missing, what is there decides and is said to be part."""
    lines = []
    for row in rows.to_dict("records"):
        gate = held.gates.get(row["task"], {})
        if row["method"] not in gate:
            continue
        least, measure = gate[row["method"]], gate["measure"]
        value = row[measure]
        if not row["seeds"]:
            verdict = "not yet run"
        else:
            verdict = "reached" if value >= least else "missed"
            if row["not_finite"]:
                verdict = f"missed: {row['not_finite']} seeds are not finite"
            if row["seeds"] < row["expected"]:
                verdict += f" so far ({row['seeds']} of {row['expected']} seeds)"
        what = f"{_HEADINGS[measure]} >= {least:,}"
        lines.append([row["task"], row["method"], what, _number(value), verdict])
    return "## Gates\n\n" + _lines(["task", "method", "gate", "IQM", ""], lines)


def _published(task: str, held: Reference) -> str:
    lines = [
        [method, f"{value:,}", source["name"], source["versions"], source["metric"]]
        for source in held.sources
        for method, value in source["values"].get(task, {}).items()
    ]
    if not lines:
        return ""
    head = ["published", "return", "by", "versions", "metric"]
    return _lines(head, lines)


def _versions(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    """Packages, and which runs rest on other versions than most do."""
    kinds: dict[str, Counter[str]] = {}
    for summary in found.values():
        for name, version in summary["versions"].items():
            kinds.setdefault(name, Counter())[version] += 1
    lines = [
        [name, ", ".join(_share(version, n, counts) for version, n in counts.most_common())]
        for name, counts in sorted(kinds.items())
    ]
    if not lines:
        return "## Versions\n\nNo run yet.\n"
    return "## Versions\n\n" + _lines(["package", "version"], lines)


def _share(version: str, runs: int, counts: Counter[str]) -> str:
    return version if len(counts) == 1 else f"{version} ({counted(runs, 'run')})"
