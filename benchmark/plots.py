"""Curves of a report: mean over seeds with an interval over seeds, one colour per method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from redline.benchmark.baselines.catalogue import is_external
from redline.benchmark.records import (
    CLIP_FRACTION,
    KL,
    KL_COEF,
    MIXTURE_ALPHA,
    Results,
)
from redline.benchmark.stats import t_interval
from redline.benchmark.tracks import TRACKS, track_of

# Okabe and Ito's colours, told apart with any colour vision; black last. Dashes start when they
# are used up.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
_COLUMNS = 3
# Points of a training metric: each is the mean of the updates around it.
_BINS = 40

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}

_HEADLINES = tuple(track.headline for track in TRACKS)
_LABELS = {
    **{track.headline: track.measure for track in TRACKS},
    KL: "KL(old‖new) in nats",
    CLIP_FRACTION: "share of gradient clipped",
    KL_COEF: "coefficient of the KL penalty",
    MIXTURE_ALPHA: "weight α of the new policy",
}
_LOGARITHMIC = (KL, KL_COEF, MIXTURE_ALPHA)
# Panels side by side below the rewards of a single task.
_ABREAST = 2


def save(results: Results, path: Path) -> None:
    """Write the figure as PNG: what every task is judged by, and below it what updates log.

    Raises:
        OSError: The file cannot be written.
    """
    tasks, methods = results.tasks, results.methods
    styles = {
        name: {
            "color": _COLOURS[i % len(_COLOURS)],
            # Coprime cycles: neighbours differ in both, so curves that coincide are both seen.
            "linestyle": _DASHES[i % len(_DASHES)],
        }
        for i, name in enumerate(methods)
    }
    shown = [
        metric
        for metric in (KL, CLIP_FRACTION, KL_COEF, MIXTURE_ALPHA)
        if metric in results.updates and results.updates[metric].fillna(0.0).any()
    ]
    with mpl.rc_context(_STYLE):
        figure, axes = _panels(tasks, shown)
        for (task, metric), axis in axes.items():
            frame = results.evals if metric in _HEADLINES else results.updates
            _draw(axis, frame[frame["task"] == task], metric, styles)
            axis.set_title(task if metric in _HEADLINES else "")
            axis.set_xlabel(track_of(task).unit)
        for axis in axes.values():
            # Such as the clip fraction of a task on which no method clips.
            axis.set_visible(axis.has_data())
        handles = {
            label: line
            for axis in reversed(list(axes.values()))  # the first panel with a name counts
            for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        order = [name for name in methods if name in handles]
        labels = [f"{name} (external)" if is_external(name) else name for name in order]
        figure.legend(
            [handles[name] for name in order],
            labels,
            loc="outside lower center",
            title="mean and 95% t interval over seeds",
            title_fontsize=8,
            ncols=_legend_columns(labels, figure.get_figwidth()),
        )
        figure.savefig(path, dpi=160)


def _legend_columns(names: Sequence[str], inches: float) -> int:
    """As many columns as the longest name leaves room for, at most five."""
    longest = 0.7 + 0.085 * max(map(len, names), default=1)
    return max(1, min(len(names), 5, int(inches / longest)))


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
    heights = [3.2 if row[0] and row[0][1] in _HEADLINES else 2.3 for row in rows]
    size = max(4.0 * columns, 8.0), sum(heights) + 0.4
    figure = Figure(figsize=size, layout="constrained")
    keys = list(dict.fromkeys(key for row in rows for key in row if key))
    # Names of panels must be text: their place in `keys`.
    mosaic: list[Any] = [["." if key is None else str(keys.index(key)) for key in r] for r in rows]
    axes = figure.subplot_mosaic(mosaic, height_ratios=heights)
    return figure, {keys[int(name)]: axis for name, axis in axes.items()}


def _draw(axis: Axes, frame: pd.DataFrame, metric: str, styles: dict[str, Any]) -> None:
    for method, style in styles.items():
        runs = frame[frame["method"] == method].dropna(subset=[metric])
        if not len(runs) or (metric not in _HEADLINES and not runs[metric].any()):
            continue  # a method without a clip has a clip fraction of 0 throughout
        if metric in _HEADLINES:
            step, mean, low, high = _over_seeds([one for _, one in runs.groupby("seed")], metric)
            axis.fill_between(step, low, high, color=style["color"], alpha=0.13, linewidth=0)
        else:
            step, mean = _binned(runs, metric)
        # A line of one point is not seen.
        axis.plot(step, mean, label=method, marker="o" if len(step) == 1 else "", **style)
    if metric in _LOGARITHMIC:
        axis.set_yscale("log")
    elif metric in _HEADLINES and np.isfinite(frame[metric]).any():
        # By the data: with few seeds an interval reaches far beyond what a task can pay.
        low, high = frame[metric].min(), frame[metric].max()
        # Beside a large number 1 is nothing, and an axis must not end where it begins.
        margin = 0.05 * (high - low) or max(1.0, 1e-3 * abs(high))
        axis.set_ylim(low - margin, high + margin)
    axis.set_xlim(left=0.0)
    axis.set_ylabel(_LABELS[metric])
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def _over_seeds(curves: Sequence[pd.DataFrame], metric: str) -> tuple[Any, Any, Any, Any]:
    """Steps, mean, and bounds of the t interval at every step, by linear interpolation.

    Seeds are evaluated at slightly different steps where rollouts are whole episodes. Beyond its
    own last point a seed counts no more, unless only the end of the last rollout is missing.
    """
    ends = [float(curve["step"].iloc[-1]) for curve in curves]
    steps = np.linspace(0.0, max(ends), max(map(len, curves)))
    gap = max(ends) / max(len(steps) - 1, 1)
    rows = []
    for curve, end in zip(curves, ends, strict=True):
        beyond = None if max(ends) - end < gap else np.nan
        rows.append(np.interp(steps, curve["step"], curve[metric], left=np.nan, right=beyond))
    columns = [column[np.isfinite(column)] for column in np.array(rows).T]
    mean = [column.mean() if len(column) else np.nan for column in columns]
    bounds = [t_interval(column) or (np.nan, np.nan) for column in columns]
    return steps, np.array(mean), *np.array(bounds).T


def _binned(runs: pd.DataFrame, metric: str) -> tuple[Any, Any]:
    """Steps and means of a training metric: of each seed within a bin, then of the seeds."""
    bins = pd.cut(runs["step"], _BINS, labels=False)
    per_seed = runs.groupby([bins, runs["seed"]])[["step", metric]].mean()
    mean = per_seed.groupby(level=0).mean()
    # A log axis has no place for 0 (a refused step, say): a gap instead of a fall to the floor.
    value = mean[metric].where(mean[metric] > 0) if metric in _LOGARITHMIC else mean[metric]
    return mean["step"].to_numpy(), value.to_numpy()
