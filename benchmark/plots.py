"""Curves of a report: mean over seeds with an interval over seeds, one colour per method."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from redline.benchmark.baselines.catalogue import is_external
from redline.benchmark.panels import EVALUATED, STYLE, draw, styles_of
from redline.benchmark.records import (
    CLIP_FRACTION,
    KL,
    KL_COEF,
    MIXTURE_ALPHA,
    Results,
)
from redline.benchmark.tracks import track_of

_COLUMNS = 3
# Panels side by side below the rewards of a single task.
_ABREAST = 2
# Characters of a line of names, and its height in inches.
_LINE_LENGTH, _LINE_HEIGHT = 36, 0.17


def save(results: Results, path: Path) -> None:
    """Write the figure as PNG: what every task is judged by, and below it what updates log.

    Raises:
        OSError: The file cannot be written.
    """
    tasks, methods = results.tasks, results.methods
    styles = styles_of(methods)
    shown = [
        metric
        for metric in (KL, CLIP_FRACTION, KL_COEF, MIXTURE_ALPHA)
        if metric in results.updates and results.updates[metric].fillna(0.0).any()
    ]
    with mpl.rc_context(STYLE):
        figure, axes = _panels(tasks, shown)
        for (task, metric), axis in axes.items():
            frame = results.evals if metric in EVALUATED else results.updates
            draw(axis, frame[frame["task"] == task], metric, styles)
            axis.set_title(textwrap.fill(task, _LINE_LENGTH) if metric in EVALUATED else "")
            axis.set_xlabel(track_of(task).unit)
        for axis in axes.values():
            # Such as the clip fraction of a task on which no method clips.
            axis.set_visible(axis.has_data())
        handles = {
            label: line
            for axis in reversed(list(axes.values()))  # the first panel with a name counts
            for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        order = {name: handles[name] for name in methods if name in handles}
        draw_legend(figure, order, "mean and 95% t interval over seeds")
        figure.savefig(path, dpi=160)


def draw_legend(figure: Figure, handles: Mapping[str, Artist], title: str) -> None:
    """Names of methods below a figure, which grows by their height."""
    labels = [_label(name) for name in handles]
    columns = _legend_columns(labels, figure.get_figwidth())
    lines = sum(label.count("\n") + 1 for label in labels) / columns
    figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * lines)
    figure.legend(
        list(handles.values()),
        labels,
        loc="outside lower center",
        title=title,
        title_fontsize=8,
        ncols=columns,
    )


def _label(method: str) -> str:
    """Name of a method in the legend, a long one in several lines."""
    name = f"{method} (external)" if is_external(method) else method
    return textwrap.fill(name, _LINE_LENGTH)


def _legend_columns(labels: Sequence[str], inches: float) -> int:
    """As many columns as the longest line leaves room for, at most five."""
    lines = [line for label in labels for line in label.split("\n")]
    longest = 0.7 + 0.085 * max(map(len, lines), default=1)
    return max(1, min(len(labels), 5, int(inches / longest)))


def _panels(
    tasks: Sequence[str], shown: Sequence[str]
) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """(task, metric) -> panel: a column per task; a single task's metrics lie side by side."""
    columns = math.ceil(len(tasks) / math.ceil(len(tasks) / _COLUMNS))
    rows: list[list[tuple[str, str] | None]] = []
    if len(tasks) == 1:
        abreast = min(max(len(shown), 1), _ABREAST)
        rows = [[(tasks[0], track_of(tasks[0]).headline)] * abreast]
        for start in range(0, len(shown), abreast):
            row: list[tuple[str, str] | None] = [
                (tasks[0], metric) for metric in shown[start : start + abreast]
            ]
            rows.append(row + row[-1:] * (abreast - len(row)))
    else:
        for start in range(0, len(tasks), columns):
            block = tasks[start : start + columns]
            empty = [None] * (columns - len(block))
            rows.append([*((task, track_of(task).headline) for task in block), *empty])
            rows += [[*((task, metric) for task in block), *empty] for metric in shown]
    heights = [3.2 if row[0] and row[0][1] in EVALUATED else 2.3 for row in rows]
    size = max(4.0 * columns, 8.0), sum(heights) + 0.2
    figure = Figure(figsize=size, layout="constrained")
    keys = list(dict.fromkeys(key for row in rows for key in row if key))
    # Names of panels must be text: their place in `keys`.
    mosaic: list[Any] = [["." if key is None else str(keys.index(key)) for key in r] for r in rows]
    axes = figure.subplot_mosaic(mosaic, height_ratios=heights)
    return figure, {keys[int(name)]: axis for name, axis in axes.items()}
