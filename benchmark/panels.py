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
    found = frame[["method", "seed", "step", metric]].dropna(subset=[metric])
    by_method = dict(list(found.groupby("method", observed=True, sort=False)))
    for method, style in styles.items():
        runs = by_method.get(method)
        if runs is None or (metric not in EVALUATED and not runs[metric].any()):
            continue  # a method without a clip has a clip fraction of 0 throughout
        seed, step, value = (runs[name].to_numpy() for name in ("seed", "step", metric))
        if metric in EVALUATED:
            at, mean, low, high = _over_seeds(seed, step, value)
            axis.fill_between(at, low, high, color=style["color"], alpha=0.13, linewidth=0)
        else:
            at, mean = _binned(seed, step, value)
            if metric in _LOGARITHMIC:
                # A log axis has no place for 0 (a refused step, say): a gap, no fall to the floor.
                mean = np.where(mean > 0, mean, np.nan)
        # A line of one point is not seen.
        axis.plot(at, mean, label=method, marker="o" if len(at) == 1 else "", **style)
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


def _over_seeds(seed: Any, step: Any, value: Any) -> tuple[Any, Any, Any, Any]:
    """Steps, mean, and bounds of the t interval at every step, by linear interpolation.

    Seeds are evaluated at slightly different steps where rollouts are whole episodes. Beyond its
    own last point a seed counts no more, unless only the end of the last rollout is missing.
    """
    order = np.argsort(seed, kind="stable")
    cuts = np.flatnonzero(np.diff(seed[order])) + 1
    curves = list(zip(np.split(step[order], cuts), np.split(value[order], cuts), strict=True))
    last = max(own[-1] for own, _ in curves)
    steps = np.linspace(0.0, last, max(len(own) for own, _ in curves))
    gap = last / max(len(steps) - 1, 1)
    rows = []
    for own, reached in curves:
        beyond = None if last - own[-1] < gap else np.nan
        rows.append(np.interp(steps, own, reached, left=np.nan, right=beyond))
    columns = [column[np.isfinite(column)] for column in np.array(rows).T]
    mean = [column.mean() if len(column) else np.nan for column in columns]
    bounds = [t_interval(column) or (np.nan, np.nan) for column in columns]
    return steps, np.array(mean), *np.array(bounds).T


def _binned(seed: Any, step: Any, value: Any) -> tuple[Any, Any]:
    """Steps and means of a training metric: of each seed within a bin, then of the seeds."""
    seeds, place = np.unique(seed, return_inverse=True)
    width = (step.max() - step.min()) / _BINS or 1.0
    # A step on an edge belongs to the bin before it.
    bins = np.clip(np.ceil((step - step.min()) / width).astype(int) - 1, 0, _BINS - 1)
    cell, shape = bins * len(seeds) + place, (_BINS, len(seeds))
    count = np.bincount(cell, minlength=_BINS * len(seeds)).reshape(shape)
    filled = count.any(axis=1)
    of_seed = [
        np.bincount(cell, weights, _BINS * len(seeds)).reshape(shape) / np.maximum(count, 1)
        for weights in (step, value)
    ]
    at, mean = (each[filled].sum(axis=1) / (count[filled] > 0).sum(axis=1) for each in of_seed)
    return at, mean
