"""Figures of the page: small ones, each a file of its own, so that they flow with the window."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from redline.benchmark.formats import number
from redline.benchmark.page.sections import Picture
from redline.benchmark.panels import EVALUATED, LABELS, STYLE, draw
from redline.benchmark.stats import profile, summarise

Styles = Mapping[str, Mapping[str, Any]]

_SVG: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: smaller, and sharp at any size
    "svg.hashsalt": "redline",  # the same file every time
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
}
_SIZE = (4.4, 2.7)  # inches; as wide as a phone, so that text there is as large as intended
_WIDE = (5.4, 3.4)
# More dots in a row are drawn as one path, pale, for one by one they take 150 bytes each.
_MOST_DOTS = 20
# Characters of a name beside an axis, and where names would be the same otherwise.
_LABEL, _LONGEST_LABEL = 24, 52
# Levels of a profile: more of them cannot be told apart.
_MOST_LEVELS = 100


def curve(
    frame: pd.DataFrame, metric: str, styles: Styles, *, title: str, unit: str, wide: bool = False
) -> Picture | None:
    """One metric over training; None where no method has it.

    Args:
        frame: Rows of one task, as in `Results`.
        metric: Column of the frame.
        styles: Method -> style.
        title: Of the picture.
        unit: What a step is.
        wide: Draw it larger.
    """
    if metric not in frame or not frame[metric].fillna(0.0).any():
        return None
    figure, axis = _empty(wide)
    with _style():
        draw(axis, frame, metric, dict(styles))
        axis.set_xlabel(unit)
        return _picture(figure, title) if axis.has_data() else None


def profiles(
    strata: Mapping[str, Sequence[Any]], styles: Styles, *, title: str, label: str
) -> Picture | None:
    """Performance profiles: share of runs that reach at least a level, over all levels.

    Args:
        strata: Method -> values by seed, a sequence per task; methods without a value are left out.
        styles: Method -> style.
        title: Of the picture.
        label: What a level is.
    """
    shown = {name: parts for name, parts in strata.items() if parts and all(map(len, parts))}
    levels = sorted({float(v) for parts in shown.values() for part in parts for v in part})
    if len(levels) < 2:
        return None
    margin = 0.03 * (levels[-1] - levels[0])
    shares = np.linspace(0.0, 1.0, min(len(levels), _MOST_LEVELS))
    inner = np.quantile(levels, shares, method="nearest")
    at = np.array([levels[0] - margin, *inner, levels[-1] + margin])
    figure, axis = _empty()
    with _style():
        for name, parts in shown.items():
            axis.step(at, profile(parts, at), where="pre", label=name, **styles[name])
        axis.set_xlabel(label)
        axis.set_ylabel("share of runs that reach it")
        axis.set_ylim(-0.03, 1.03)
        _shorten(axis, levels)
        return _picture(figure, title)


def intervals(values: Mapping[str, Sequence[float]], styles: Styles, *, title: str) -> Picture:
    """Mean and 95% t interval of every method, with a dot for each seed.

    Args:
        values: Method -> finite results by seed.
        styles: Method -> style.
        title: Of the picture.
    """
    names = list(values)
    figure, axis = _empty(height=0.9 + 0.27 * len(names))
    with _style():
        for place, name in enumerate(names):
            _interval(axis, place, values[name], str(styles[name]["color"]))
        axis.set_yticks(range(len(names)), _short(names))
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        _shorten(axis, [value for own in values.values() for value in own])
        axis.grid(axis="y", visible=False)
        return _picture(figure, title)


def _interval(axis: Axes, place: int, values: Sequence[float], colour: str) -> None:
    summary = summarise(values)
    if summary.n == 0:
        return
    if len(values) <= _MOST_DOTS:
        dots: dict[str, Any] = {"s": 22, "alpha": 0.6, "edgecolor": "white", "linewidth": 0.7}
        axis.scatter(values, [place] * len(values), color=colour, zorder=3, **dots)
    else:
        # Pieces of a line that are as long as nothing, with round ends.
        x, y = np.repeat(values, 3), np.tile([place, place, np.nan], len(values))
        style: dict[str, Any] = {"linewidth": 4.5, "solid_capstyle": "round", "zorder": 1.5}
        (line,) = axis.plot(x, y, color=colour, alpha=0.35, **style)
        line.get_path().should_simplify = False
    if summary.mean_interval is not None:
        axis.plot(summary.mean_interval, [place, place], color=colour, linewidth=2.2)
    axis.plot([summary.mean], [place], marker="|", markersize=11, markeredgewidth=2.2, color=colour)
    axis.annotate(
        number(summary.mean),
        (summary.mean, place),
        xytext=(0, 6),
        textcoords="offset points",
        fontsize=7,
        ha="center",
    )


def _shorten(axis: Axes, values: Sequence[float]) -> None:
    """Thousands as k, where there are any."""
    if max(map(abs, values), default=0.0) >= 1000.0:
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def _short(names: Sequence[str]) -> list[str]:
    """Long names without the settings that all variants share, and without some of their middle.

    Of the middle as much stays as is needed to tell them apart, where there is room.
    """
    whole = [name.split("--") for name in names]
    names = [
        name if len(name) <= _LABEL else _without_shared(parts, whole)
        for name, parts in zip(names, whole, strict=True)
    ]
    found = list(names)
    for length in range(_LABEL, _LONGEST_LABEL + 1, 4):
        half = length // 2
        found = [n if len(n) <= length else f"{n[:half]}…{n[half + 1 - length :]}" for n in names]
        if len(set(found)) == len(names):
            break
    return found


def _without_shared(parts: Sequence[str], whole: Sequence[Sequence[str]]) -> str:
    """A name in parts without those that all others of its method have."""
    alike = [set(other[1:]) for other in whole if other[0] == parts[0] and len(other) > 1]
    shared = set.intersection(*alike) if len(alike) > 1 else set()
    kept = [part for part in parts[1:] if part not in shared]
    return parts[0] + ("…" if shared else "--") + "--".join(kept)


def _empty(wide: bool = False, height: float | None = None) -> tuple[Figure, Axes]:
    width, usual = _WIDE if wide else _SIZE
    with _style():
        figure = Figure(figsize=(width, height or usual), layout="constrained")
        return figure, figure.subplots()


def _style() -> Any:
    return mpl.rc_context({**STYLE, **_SVG})


def _picture(figure: Figure, title: str) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawn = re.sub(rb'<path [^>]*d="[^"]*"', _rounded, file.getvalue())
    code = base64.b64encode(drawn).decode("ascii")
    return Picture(f"data:image/svg+xml;base64,{code}", title)


def _rounded(path: re.Match[bytes]) -> bytes:
    """Hundredths of a point are seen by nobody, and digits after them are a third of a file."""
    return re.sub(rb"(\.\d\d)\d+", rb"\1", path[0])


def metric_title(metric: str) -> str:
    """What a curve shows, as a title."""
    label = LABELS[metric]
    return f"{label[0].upper()}{label[1:]}" if metric in EVALUATED else label
