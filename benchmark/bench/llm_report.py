"""`redline bench llm`, row by row: what the terminal and the JSON file say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redline.benchmark.bench import output
from redline.benchmark.bench.comparisons_llm import LanguageComparison
from redline.benchmark.bench.llm import Curve, Side, pairs, ratio
from redline.benchmark.tables import Table, show

_READING = """\
completions per second of CPU time, sampling, grading and learning together; in time-to rows the CPU
time until four rollouts in a row average that accuracy. ratio: theirs / ours in time, median
[smallest, largest] over the repeats; n/a where a side never got there."""


def run(
    rows: Sequence[LanguageComparison],
    repeats: int,
    rollouts: int | None,
    json: Path | None,
    sides: tuple[Side, Side],
) -> None:
    """Measure rows one after the other; the file is complete after each.

    Raises:
        OSError: The file cannot be written.
    """
    table: list[list[str]] = []
    found: list[dict[str, Any]] = []
    for row in rows:
        curves = []
        for ours, theirs in pairs(row, repeats, rollouts, sides):
            curves.append((ours, theirs))
            print(f"{row.name}: {_shown(row, ours)} against {_shown(row, theirs)}", flush=True)
        measured = summary(row, curves)
        found.append(measured)
        output.write_rows(json, found)
        table.append(_line(row, measured, curves))
    columns = ("row", "redline", "trl", "ratio")
    show(Table("GRPO on the language model that ships", columns, table))
    print(_READING)


def summary(row: LanguageComparison, curves: Sequence[tuple[Curve, Curve]]) -> dict[str, Any]:
    """What the JSON file holds of a row; ratios are null where one was not to be had."""
    ratios = [ratio(row, ours, theirs) for ours, theirs in curves]
    known = all(map(math.isfinite, ratios))
    return {
        "name": row.name,
        "ratio_median": statistics.median(ratios) if known else None,
        "ratio_min": min(ratios) if known else None,
        "ratio_max": max(ratios) if known else None,
        "repeats": len(curves),
        "ours": [_figure(row, ours) for ours, _ in curves],
        "theirs": [_figure(row, theirs) for _, theirs in curves],
        "accuracy_ours": [_last(ours) for ours, _ in curves],
        "accuracy_theirs": [_last(theirs) for _, theirs in curves],
    }


def _figure(row: LanguageComparison, curve: Curve) -> float | None:
    value = curve.rate if row.goal is None else curve.time_to(row.goal)
    return value if math.isfinite(value) else None


def _last(curve: Curve) -> float:
    """Accuracy over the last rollouts."""
    return statistics.fmean(curve.accuracy[-4:])


def _shown(row: LanguageComparison, curve: Curve) -> str:
    value = _figure(row, curve)
    if value is None:
        return "n/a"
    return f"{value:.1f} completions/s" if row.goal is None else f"{value:.1f} s"


def _line(
    row: LanguageComparison, measured: dict[str, Any], curves: Sequence[tuple[Curve, Curve]]
) -> list[str]:
    sides = [
        statistics.median(_figure(row, pair[i]) or math.nan for pair in curves) for i in (0, 1)
    ]
    shown = ["n/a" if math.isnan(value) else f"{value:.1f}" for value in sides]
    median = measured["ratio_median"]
    if median is None:
        return [row.name, *shown, "n/a"]
    spread = output.spread([measured["ratio_min"], measured["ratio_max"]])
    return [row.name, *shown, f"{median:.2f} {spread}"]
