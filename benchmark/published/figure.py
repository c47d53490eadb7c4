"""Curves of a table: a panel per task, returns of training over steps."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from redline.benchmark.panels import STYLE, draw, styles_of
from redline.benchmark.plots import draw_legend
from redline.benchmark.tracks import STOCHASTIC

_COLUMNS = 3


def save(curves: pd.DataFrame, rows: pd.DataFrame, path: Path) -> None:
    """Write the figure as PNG; a task without any run keeps an empty panel that says so.

    Args:
        curves: Columns task, method, seed, step and STOCHASTIC: the return of training.
        rows: The table, for the order of tasks and methods.
        path: The file.

    Raises:
        OSError: The file cannot be written.
    """
    tasks = list(rows["task"].unique())
    styles = styles_of(list(rows["method"].unique()))
    columns = min(_COLUMNS, len(tasks))
    height = math.ceil(len(tasks) / columns)
    with mpl.rc_context(STYLE):
        size = (max(4.0 * columns, 8.0), 3.0 * height + 0.6)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(height, columns, squeeze=False).ravel()
        for axis in axes[len(tasks) :]:
            axis.set_visible(False)
        handles: dict[str, Artist] = {}
        for axis, task in zip(axes, tasks, strict=False):
            part = curves[curves["task"] == task]
            axis.set_title(task)
            if part.empty:
                axis.set(xticks=[], yticks=[])
                axis.text(0.5, 0.5, "not yet run", ha="center", transform=axis.transAxes)
                continue
            draw(axis, part, STOCHASTIC, styles)
            axis.set_xlabel("environment steps")
            lines, labels = axis.get_legend_handles_labels()
            handles |= dict(zip(labels, lines, strict=True))
        if handles:
            title = "return of training episodes: mean and 95% t interval over seeds"
            draw_legend(figure, handles, title)
        figure.savefig(path, dpi=120)
