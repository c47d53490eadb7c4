"""Surrogates of single elements beyond PPO's clip, and limits that any ratio surrogate may take.

As in `surrogates`, w is the derivative of the objective with respect to log pi; where a paper
writes a stop-gradient, the objective here is the function that has that gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from redline.algorithms.core.surrogates import (
    MAX_LOG_RATIO,
    Bounds,
    Elements,
    Surrogate,
    require_bounds,
)
from redline.algorithms.core.types import Array, Namespace


def cispo(cap: Literal["relative", "absolute"] = "relative", mask: bool = False) -> Surrogate:
    """CISPO (arXiv:2506.13585 Eq. 4): w = sg(clip(r, lo, hi)) A.

    The objective is the integral of that weight over log pi: with h = clip(r, lo, hi) it is
    h (1 + log r - log h) A, which is r A inside the bounds and goes on in a straight line outside.

    Args:
        cap: "relative": hi = 1 + clip.high (the paper; verl); "absolute": hi = clip.high itself
            (TRL; ScaleRL's 5.0).
        mask: Drop the elements that PPO's clip drops, instead of none.
    """

    def limits(e: Elements) -> Bounds:
        lo, hi = require_bounds(e)
        return lo, hi - (1.0 if cap == "absolute" else 0.0)

    def removed(e: Elements) -> Array:
        lo, hi = limits(e)
        return ((e.advantage > 0) & (e.ratio > hi)) | ((e.advantage < 0) & (e.ratio < lo))

    def weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
        lo, hi = limits(e)
        held = xp.minimum(xp.maximum(e.ratio, lo), hi)
        return held * e.advantage, ~removed(e) if mask else e.mask

    def objective(xp: Namespace, e: Elements) -> Array:
        lo, hi = (_log(xp, bound, e.ratio) for bound in limits(e))
        log_ratio = xp.minimum(e.log_prob - e.old_log_prob, MAX_LOG_RATIO)
        held = xp.minimum(xp.maximum(log_ratio, lo), hi)
        rest = log_ratio - held
        if mask:
            rest = xp.where(removed(e), xp.zeros_like(rest), rest)
        return xp.exp(held) * (1.0 + rest) * e.advantage

    return Surrogate("cispo_masked" if mask else "cispo", weight, objective, clips=True)


def _log(xp: Namespace, bound: Array | float, like: Array) -> Array:
    """log of a bound, -inf at 0, shaped like `like`."""
    whole = xp.zeros_like(like) + bound
    positive = whole > 0.0
    return xp.where(positive, xp.log(xp.where(positive, whole, xp.ones_like(whole))), -math.inf)


def sapo(tau_positive: float = 1.0, tau_negative: float = 1.05) -> Surrogate:
    """SAPO (arXiv:2511.20347): f(r) A, f(r) = (4 / tau) sigmoid(tau (r - 1)); no bounds.

    w = 4 s (1 - s) r A with s = sigmoid(tau (r - 1)): 1 at r = 1, and it fades away from there.

    Args:
        tau_positive: tau where A > 0.
        tau_negative: tau elsewhere.

    Raises:
        ValueError: A tau is not positive.
    """
    for name, tau in (("tau_positive", tau_positive), ("tau_negative", tau_negative)):
        if not tau > 0.0:
            raise ValueError(f"{name} must be above 0, got {tau:g}")

    def gate(xp: Namespace, e: Elements) -> tuple[Array, Array]:
        tau = xp.where(e.advantage > 0, tau_positive, xp.zeros_like(e.ratio) + tau_negative)
        # tanh, for exp overflows at the ratios that this surrogate is there for.
        return 0.5 * (1.0 + xp.tanh(0.5 * tau * (e.ratio - 1.0))), tau

    def weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
        s, _ = gate(xp, e)
        return 4.0 * s * (1.0 - s) * e.ratio * e.advantage, e.mask

    def objective(xp: Namespace, e: Elements) -> Array:
        s, tau = gate(xp, e)
        return 4.0 / tau * s * e.advantage

    return Surrogate("sapo", weight, objective)


@dataclass(frozen=True)
class RatioLimits:
    """Limits on the ratio beside the clip, for long tails; both are off by default.

    Attributes:
        truncate: Clamp r to (lowest, highest) before the clip, for example 0.2 and 5. As
            torch.clamp has it the gradient is 0 outside, so A > 0 with r below gets no rescue.
        dual_clip: c > 1 of dual-clip PPO (arXiv:1912.09729 Eq. 5): where A < 0 the objective is at
            least c A, so r > c has no gradient.

    Raises:
        ValueError: The order is not 0 <= lowest < 1 < highest, or c is not above 1.
    """

    truncate: tuple[float, float] | None = None
    dual_clip: float | None = None

    def __post_init__(self) -> None:
        if self.truncate is not None and not 0.0 <= self.truncate[0] < 1.0 < self.truncate[1]:
            raise ValueError(
                "ratio.truncate is two bounds around 1, for example 0.2 5, got "
                f"{self.truncate[0]:g} {self.truncate[1]:g}"
            )
        if self.dual_clip is not None and not self.dual_clip > 1.0:
            raise ValueError(f"ratio.dual_clip must be above 1, got {self.dual_clip:g}")

    def of(self, surrogate: Surrogate) -> Surrogate:
        """The surrogate within these limits."""
        if self.truncate is not None:
            surrogate = _truncated(surrogate, *self.truncate)
        return surrogate if self.dual_clip is None else _dual_clipped(surrogate, self.dual_clip)


def _truncated(inner: Surrogate, lowest: float, highest: float) -> Surrogate:
    def clamped(xp: Namespace, e: Elements) -> Elements:
        at = math.log(lowest) if lowest > 0.0 else -math.inf
        log_ratio = xp.minimum(xp.maximum(e.log_prob - e.old_log_prob, at), math.log(highest))
        return e._replace(log_prob=e.old_log_prob + log_ratio, ratio=xp.exp(log_ratio))

    def weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
        w, keep = inner.weight_of(xp, clamped(xp, e))
        return w, keep & (e.ratio >= lowest) & (e.ratio <= highest)

    def objective(xp: Namespace, e: Elements) -> Array:
        return inner.objective_of(xp, clamped(xp, e))

    return replace(inner, name=f"truncated_{inner.name}", weight_of=weight, objective_of=objective)


def _dual_clipped(inner: Surrogate, c: float) -> Surrogate:
    def weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
        w, keep = inner.weight_of(xp, e)
        return w, keep & ~((e.advantage < 0) & (e.ratio > c))

    def objective(xp: Namespace, e: Elements) -> Array:
        value = inner.objective_of(xp, e)
        return xp.where(e.advantage < 0, xp.maximum(value, c * e.advantage), value)

    return replace(inner, name=f"dual_clip_{inner.name}", weight_of=weight, objective_of=objective)
