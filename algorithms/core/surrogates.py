"""Surrogates as weights on grad log pi, each beside the textbook objective it comes from.

gradient = sum over elements of coefficient * w(r, A) * grad log pi(a|s),  r = pi / pi_old.

Every weight function is array-API code (`xp` is numpy, torch or any conforming namespace) and is
the derivative of its objective with respect to log pi, away from the tie points. The clip is
inclusive: at r exactly 1 - low or 1 + high the gradient is kept, as torch.clamp does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from redline.algorithms.core.masked import require_same_shape
from redline.algorithms.core.types import Array, Namespace

# exp(20) = 4.9e8: far outside every band, and its square still fits a float32.
MAX_LOG_RATIO = 20.0

Bounds = tuple[Array | float, Array | float]


class Weights(NamedTuple):
    """Weights on grad log pi and what the telemetry needs, all shaped like the mask.

    Attributes:
        w: The weight; 0 where masked.
        keep: False where the method removed the gradient of an element (its clip).
        ratio: r, the importance ratio that the method used.
    """

    w: Array
    keep: Array
    ratio: Array


@dataclass(frozen=True)
class Surrogate:
    """A weight function, its objective, and what may be done with them.

    Attributes:
        name: The field's name for it.
        weights: (xp, *, log_prob, old_log_prob, advantage, mask, bounds) -> Weights.
        objective: Same arguments -> the objective per element [B, T].
        level: "token" when an element's weight depends on that element only, else "sequence".
        meaningful_value: The objective's value estimates improvement, so it may be line-searched
            (false for score functions, whose gradient alone means something).
        clips: The method has bounds on the ratio.
    """

    name: str
    weights: Callable[..., Weights]
    objective: Callable[..., Array]
    level: Literal["token", "sequence"] = "token"
    meaningful_value: bool = True
    clips: bool = False


def importance_ratio(xp: Namespace, *, log_prob: Array, old_log_prob: Array) -> Array:
    """r = exp(log pi - log pi_old), with the log ratio capped so that it stays finite."""
    return xp.exp(xp.minimum(log_prob - old_log_prob, MAX_LOG_RATIO))


def _masked(xp: Namespace, keep: Array, value: Array) -> Array:
    # where, never a product: an infinite ratio times a zero mask would be nan.
    return xp.where(keep, value, xp.zeros_like(value))


def score_function_weights(
    xp: Namespace,
    *,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds | None = None,
) -> Weights:
    """REINFORCE: w = A (Williams 1992)."""
    require_same_shape(log_prob=log_prob, advantage=advantage, mask=mask)
    ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
    return Weights(_masked(xp, mask, advantage), mask, ratio)


def score_function_objective(
    xp: Namespace,
    *,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds | None = None,
) -> Array:
    """A log pi: right gradient, meaningless value."""
    return _masked(xp, mask, advantage * log_prob)


def ratio_weights(
    xp: Namespace,
    *,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds | None = None,
) -> Weights:
    """Plain importance ratio: w = r A (Kakade & Langford 2002; TRPO Eq. 14)."""
    require_same_shape(log_prob=log_prob, advantage=advantage, mask=mask)
    ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
    return Weights(_masked(xp, mask, ratio * advantage), mask, ratio)


def ratio_objective(
    xp: Namespace,
    *,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds | None = None,
) -> Array:
    """r A."""
    ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
    return _masked(xp, mask, ratio * advantage)


def clipped_ratio_weights(
    xp: Namespace,
    *,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds,
) -> Weights:
    """PPO-clip: w = r A unless (A > 0 and r > hi) or (A < 0 and r < lo), then 0."""
    require_same_shape(log_prob=log_prob, advantage=advantage, mask=mask)
    lo, hi = bounds
    ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
    removed = ((advantage > 0) & (ratio > hi)) | ((advantage < 0) & (ratio < lo))
    return Weights(_masked(xp, mask & ~removed, ratio * advantage), ~removed, ratio)


def clipped_ratio_objective(
    xp: Namespace,
    *,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds,
) -> Array:
    """min(r A, clip(r, lo, hi) A) (PPO, arXiv:1707.06347 Eq. 7)."""
    lo, hi = (xp.ones_like(log_prob) * bound for bound in bounds)
    ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
    clipped = xp.minimum(xp.maximum(ratio, lo), hi)
    return _masked(xp, mask, xp.minimum(ratio * advantage, clipped * advantage))


SCORE_FUNCTION = Surrogate(
    "score_function", score_function_weights, score_function_objective, meaningful_value=False
)
RATIO = Surrogate("ratio", ratio_weights, ratio_objective)
CLIPPED_RATIO = Surrogate(
    "clipped_ratio", clipped_ratio_weights, clipped_ratio_objective, clips=True
)


def from_objective(
    objective: Callable[..., Array],
    name: str = "custom",
    level: Literal["token", "sequence"] = "token",
    clips: bool = False,
) -> Surrogate:
    """A surrogate from an objective alone: w is its derivative by autograd on the [B, T] arrays.

    Args:
        objective: (xp, *, log_prob, old_log_prob, advantage, mask, bounds) -> objective [B, T],
            written with `xp` so that it runs on torch.
        name: For messages and logs.
        level: "sequence" when an element's objective depends on other elements of its row.
        clips: Bounds are used; an element whose weight is exactly 0 although A is not then counts
            as clipped.
    """

    def weights(
        xp: Namespace,
        *,
        log_prob: Array,
        old_log_prob: Array,
        advantage: Array,
        mask: Array,
        bounds: Bounds | None = None,
    ) -> Weights:
        import array_api_compat.torch as torch_namespace
        import torch

        tensors = [torch.as_tensor(a) for a in (log_prob, old_log_prob, advantage, mask)]
        leaf = tensors[0].detach().clone().requires_grad_(True)
        with torch.enable_grad():
            value = objective(
                torch_namespace,
                log_prob=leaf,
                old_log_prob=tensors[1],
                advantage=tensors[2],
                mask=tensors[3],
                bounds=bounds,
            )
            total = torch.where(tensors[3], value, torch.zeros_like(value)).sum()
            (w,) = torch.autograd.grad(total, leaf)
        w = torch.where(tensors[3], w, torch.zeros_like(w))
        keep = (w != 0) | (tensors[2] == 0) if clips else torch.ones_like(tensors[3])
        ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
        if isinstance(log_prob, np.ndarray):
            return Weights(w.numpy(), keep.numpy(), ratio)
        return Weights(w, keep, ratio)

    return Surrogate(name, weights, objective, level=level, clips=clips)
