"""Numbers as tables show them."""

from __future__ import annotations

import numpy as np

from redline.benchmark.stats import Interval, Summary


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
