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


class Elements(NamedTuple):
    """What a surrogate sees: arrays of one shape, [B, T] or flat [N].

    Attributes:
        log_prob: log pi(a|s).
        old_log_prob: log pi_old(a|s).
        ratio: pi / pi_old, a function of `log_prob` also for autograd.
        advantage: A.
        mask: True where an element counts.
        bounds: (lo, hi) on the ratio, numbers or arrays; None for methods without a clip.
    """

    log_prob: Array
    old_log_prob: Array
    ratio: Array
    advantage: Array
    mask: Array
    bounds: Bounds | None


class Weights(NamedTuple):
    """Weights on grad log pi and what the telemetry needs, all shaped like the mask.

    Attributes:
        w: The weight; 0 where masked.
        keep: False where the method removed the gradient of an element (its clip).
        ratio: pi / pi_old.
    """

    w: Array
    keep: Array
    ratio: Array


WeightFunction = Callable[[Namespace, Elements], tuple[Array, Array]]
ObjectiveFunction = Callable[[Namespace, Elements], Array]


def importance_ratio(xp: Namespace, *, log_prob: Array, old_log_prob: Array) -> Array:
    """r = exp(log pi - log pi_old), with the log ratio capped so that it stays finite."""
    return xp.exp(xp.minimum(log_prob - old_log_prob, MAX_LOG_RATIO))


@dataclass(frozen=True)
class Surrogate:
    """A weight function, its objective, and what may be done with them.

    Attributes:
        name: The field's name for it.
        weight_of: (xp, elements) -> (w, keep): the weight before the clip, and False where the
            clip removes it; masked entries may hold anything.
        objective_of: (xp, elements) -> the objective per element; masked entries likewise.
        level: "token" when an element's weight depends on that element only, else "sequence".
        meaningful_value: The objective's value estimates improvement, so it may be line-searched
            (false for score functions, whose gradient alone means something).
        clips: The method has bounds on the ratio.
        of_sequence: Its ratio belongs to the whole row, so bounds of single elements mean nothing.
    """

    name: str
    weight_of: WeightFunction
    objective_of: ObjectiveFunction
    level: Literal["token", "sequence"] = "token"
    meaningful_value: bool = True
    clips: bool = False
    of_sequence: bool = False

    def weights(
        self,
        xp: Namespace,
        *,
        log_prob: Array,
        old_log_prob: Array,
        advantage: Array,
        mask: Array,
        bounds: Bounds | None = None,
    ) -> Weights:
        """Weights on grad log pi.

        Raises:
            ValueError: The arrays differ in shape.
        """
        e = _elements(xp, log_prob, old_log_prob, advantage, mask, bounds)
        w, keep = self.weight_of(xp, e)
        return Weights(_masked(xp, mask & keep, w), keep, e.ratio)

    def objective(
        self,
        xp: Namespace,
        *,
        log_prob: Array,
        old_log_prob: Array,
        advantage: Array,
        mask: Array,
        bounds: Bounds | None = None,
    ) -> Array:
        """The textbook objective per element, 0 where masked.

        Raises:
            ValueError: The arrays differ in shape.
        """
        e = _elements(xp, log_prob, old_log_prob, advantage, mask, bounds)
        return _masked(xp, mask, self.objective_of(xp, e))


def _elements(
    xp: Namespace,
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    mask: Array,
    bounds: Bounds | None,
) -> Elements:
    require_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage, mask=mask)
    ratio = importance_ratio(xp, log_prob=log_prob, old_log_prob=old_log_prob)
    return Elements(log_prob, old_log_prob, ratio, advantage, mask, bounds)


def _masked(xp: Namespace, keep: Array, value: Array) -> Array:
    # where, never a product: an infinite ratio times a zero mask would be nan.
    return xp.where(keep, value, xp.zeros_like(value))


def _score_function_weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    """REINFORCE: w = A (Williams 1992)."""
    return e.advantage, e.mask


def _score_function_objective(xp: Namespace, e: Elements) -> Array:
    """A log pi: right gradient, meaningless value."""
    return e.advantage * e.log_prob


def _ratio_weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    """Plain importance ratio: w = r A (Kakade & Langford 2002; TRPO Eq. 14)."""
    return e.ratio * e.advantage, e.mask


def _ratio_objective(xp: Namespace, e: Elements) -> Array:
    """r A."""
    return e.ratio * e.advantage


def _clipped_ratio_weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    """PPO-clip: w = r A unless (A > 0 and r > hi) or (A < 0 and r < lo), then 0."""
    lo, hi = require_bounds(e)
    removed = ((e.advantage > 0) & (e.ratio > hi)) | ((e.advantage < 0) & (e.ratio < lo))
    return e.ratio * e.advantage, ~removed


def _clipped_ratio_objective(xp: Namespace, e: Elements) -> Array:
    """min(r A, clip(r, lo, hi) A) (PPO, arXiv:1707.06347 Eq. 7)."""
    lo, hi = require_bounds(e)
    clipped = xp.minimum(xp.maximum(e.ratio, lo), hi)
    return xp.minimum(e.ratio * e.advantage, clipped * e.advantage)


def require_bounds(e: Elements) -> Bounds:
    """The bounds of a surrogate that clips."""
    assert e.bounds is not None, "Algorithm refuses a clipping surrogate without bounds"
    return e.bounds


SCORE_FUNCTION = Surrogate(
    "score_function", _score_function_weight, _score_function_objective, meaningful_value=False
)
RATIO = Surrogate("ratio", _ratio_weight, _ratio_objective)
CLIPPED_RATIO = Surrogate(
    "clipped_ratio", _clipped_ratio_weight, _clipped_ratio_objective, clips=True
)


def from_objective(
    objective: ObjectiveFunction,
    name: str = "custom",
    level: Literal["token", "sequence"] = "token",
    clips: bool = False,
) -> Surrogate:
    """A surrogate from an objective alone: w is its derivative by autograd on the [B, T] arrays.

    Args:
        objective: (xp, elements) -> objective per element, written with `xp` so that it runs on
            torch; only `log_prob` and `ratio` are differentiated.
        name: For messages and logs.
        level: "sequence" when an element's objective depends on other elements of its row.
        clips: Bounds are used; an element whose weight is exactly 0 although A is not then counts
            as clipped.
    """

    def weight_of(xp: Namespace, e: Elements) -> tuple[Array, Array]:
        import array_api_compat.torch as torch_namespace
        import torch

        log_prob, old_log_prob, advantage, mask = (
            torch.as_tensor(a) for a in (e.log_prob, e.old_log_prob, e.advantage, e.mask)
        )
        leaf = log_prob.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            inputs = _elements(torch_namespace, leaf, old_log_prob, advantage, mask, e.bounds)
            total = _masked(torch_namespace, mask, objective(torch_namespace, inputs)).sum()
            (w,) = torch.autograd.grad(total, leaf)
        keep = (w != 0) | (advantage == 0) if clips else mask
        return (w.numpy(), keep.numpy()) if isinstance(e.log_prob, np.ndarray) else (w, keep)

    return Surrogate(name, weight_of, objective, level=level, clips=clips)
