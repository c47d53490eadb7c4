"""Panels of curves, for every kind of report: mean over seeds, one colour per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from redline.benchmark.records import (
    ANSWER_LENGTH,
    CLIP_FRACTION,
    CLIP_HI,
    ENTROPY,
    KL,
    KL_COEF,
    MIXTURE_ALPHA,
    OUTSIDE_BAND,
)
from redline.benchmark.stats import t_interval
from redline.benchmark.tracks import TRACKS

# Okabe and Ito's colours, told apart with any colour vision; black last. Dashes start when they
# are used up.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
# Points of a training metric: each is the mean of the updates around it.
_BINS = 40

STYLE: dict[Any, Any] = {
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

# What is evaluated rather than logged by updates.
EVALUATED = tuple(name for track in TRACKS for name in (track.headline, track.second))
LABELS = {
    **{name: track.measure for track in TRACKS for name in (track.headline, track.second)},
    KL: "KL(old‖new) in nats",
    CLIP_FRACTION: "share of gradient clipped",
    OUTSIDE_BAND: "share of ratios outside [0.8, 1.2]",
    ENTROPY: "entropy in nats",
    KL_COEF: "coefficient of the KL penalty",
    MIXTURE_ALPHA: "weight α of the new policy",
    CLIP_HI: "upper bound of the clip",
    ANSWER_LENGTH: "tokens per answer",
}
_LOGARITHMIC = (KL, KL_COEF, MIXTURE_ALPHA)


def styles_of(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Method -> colour and dashes of its curve."""
    return {
        name: {
            "color": _COLOURS[i % len(_COLOURS)],
            # Coprime cycles: neighbours differ in both, so curves that coincide are both seen.
            "linestyle": _DASHES[i % len(_DASHES)],
        }
        for i, name in enumerate(methods)
    }


def draw(axis: Axes, frame: pd.DataFrame, metric: str, styles: dict[str, Any]) -> None:
    """One metric of every method that has it.

    Args:
        axis: Where to draw.
        frame: Rows of one task, as in `Results`.
        metric: Name of the column.
        styles: Method -> style of its curve.
    """
    for method, style in styles.items():
        runs = frame[frame["method"] == method].dropna(subset=[metric])
        if not len(runs) or (metric not in EVALUATED and not runs[metric].any()):
            continue  # a method without a clip has a clip fraction of 0 throughout
        if metric in EVALUATED:
            step, mean, low, high = _over_seeds([one for _, one in runs.groupby("seed")], metric)
            axis.fill_between(step, low, high, color=style["color"], alpha=0.13, linewidth=0)
        else:
            step, mean = _binned(runs, metric)
        # A line of one point is not seen.
        axis.plot(step, mean, label=method, marker="o" if len(step) == 1 else "", **style)
    if metric in _LOGARITHMIC:
        axis.set_yscale("log")
    elif metric in EVALUATED and np.isfinite(frame[metric]).any():
        # By the data: with few seeds an interval reaches far beyond what a task can pay.
        low, high = frame[metric].min(), frame[metric].max()
        # Beside a large number 1 is nothing, and an axis must not end where it begins.
        margin = 0.05 * (high - low) or max(1.0, 1e-3 * abs(high))
        axis.set_ylim(low - margin, high + margin)
    axis.set_xlim(left=0.0)
    axis.set_ylabel(LABELS[metric])
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
