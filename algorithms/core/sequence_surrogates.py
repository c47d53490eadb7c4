"""Surrogates whose ratio belongs to a whole sequence: GSPO and GMPO. Arrays are [B, T], a row each.

An element's objective is that of its sequence, so that "seq_mean" (1 / (S |o_i|) per element) sums
to the papers' mean over sequences, and w is the derivative of the row's sum:
d/d(log pi_t) sum_t' f(s) A = |o| f'(s) s / |o| A.
"""

from __future__ import annotations

from dataclasses import replace

from redline.algorithms.core.arrays import stop_gradient
from redline.algorithms.core.surrogates import (
    MAX_LOG_RATIO,
    Elements,
    Surrogate,
    require_bounds,
)
from redline.algorithms.core.types import Array, Namespace


def _row_mean(xp: Namespace, value: Array, mask: Array) -> Array:
    """Mean over the valid elements of every row, [B, 1]; 0 for a row of none."""
    kept = xp.where(mask, value, xp.zeros_like(value))
    count = xp.sum(xp.astype(mask, value.dtype), axis=-1, keepdims=True)
    return xp.sum(kept, axis=-1, keepdims=True) / xp.maximum(count, xp.ones_like(count))


def _sequence_ratio(xp: Namespace, e: Elements) -> Array:
    """s = exp(mean_t log r_t), [B, 1] (arXiv:2507.18071 Eq. 7)."""
    log_ratio = _row_mean(xp, e.log_prob - e.old_log_prob, e.mask)
    return xp.exp(xp.minimum(log_ratio, xp.zeros_like(log_ratio) + MAX_LOG_RATIO))


def _removed(e: Elements, s: Array, advantage: Array) -> Array:
    lo, hi = require_bounds(e)
    return ((advantage > 0) & (s > hi)) | ((advantage < 0) & (s < lo))


def _pessimistic(xp: Namespace, e: Elements, s: Array, advantage: Array) -> Array:
    lo, hi = require_bounds(e)
    return xp.minimum(s * advantage, xp.minimum(xp.maximum(s, lo), hi) * advantage)


def _gspo_parts(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    zeros = xp.zeros_like(e.advantage)
    return _sequence_ratio(xp, e) + zeros, _row_mean(xp, e.advantage, e.mask) + zeros


def _gspo_weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    s, advantage = _gspo_parts(xp, e)
    return s * advantage, ~_removed(e, s, advantage)


def _gspo_objective(xp: Namespace, e: Elements) -> Array:
    return _pessimistic(xp, e, *_gspo_parts(xp, e))


def _gspo_token_weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    s = _sequence_ratio(xp, e) + xp.zeros_like(e.advantage)
    return s * e.advantage, ~_removed(e, s, e.advantage)


def _gspo_token_objective(xp: Namespace, e: Elements) -> Array:
    log_prob = xp.where(e.mask, e.log_prob, xp.zeros_like(e.log_prob))
    moving = xp.exp(log_prob - stop_gradient(log_prob))
    return _pessimistic(xp, e, stop_gradient(_sequence_ratio(xp, e)) * moving, e.advantage)


def _gmpo_parts(xp: Namespace, e: Elements) -> tuple[Array, Array, Array]:
    """The row's geometric mean of clipped ratios, its A, and where log r_t is not clipped."""
    lo, hi = (xp.log(xp.zeros_like(e.ratio) + bound) for bound in require_bounds(e))
    advantage = _row_mean(xp, e.advantage, e.mask) + xp.zeros_like(e.advantage)
    log_ratio = xp.minimum(e.log_prob - e.old_log_prob, MAX_LOG_RATIO)
    up = advantage > 0
    clipped = xp.where(up, xp.minimum(log_ratio, hi), xp.maximum(log_ratio, lo))
    kept = xp.where(up, log_ratio <= hi, log_ratio >= lo) | (advantage == 0)
    return xp.exp(_row_mean(xp, clipped, e.mask)), advantage, kept


def _gmpo_weight(xp: Namespace, e: Elements) -> tuple[Array, Array]:
    geometric, advantage, kept = _gmpo_parts(xp, e)
    return geometric * advantage, kept


def _gmpo_objective(xp: Namespace, e: Elements) -> Array:
    geometric, advantage, _ = _gmpo_parts(xp, e)
    return geometric * advantage


# min(s A, clip(s) A), s = exp(mean_t log r_t) (arXiv:2507.18071 Eq. 5); A is the row's mean.
GSPO = Surrogate(
    "gspo", _gspo_weight, _gspo_objective, level="sequence", clips=True, of_sequence=True
)
# The same with an advantage per token: s_t = sg(s) pi_t / sg(pi_t) (arXiv:2507.18071 Eq. 13).
GSPO_TOKEN = replace(
    GSPO, name="gspo_token", weight_of=_gspo_token_weight, objective_of=_gspo_token_objective
)
# (prod_t clip(r_t))^(1/|o|) A, each r_t clipped on one side in log space (arXiv:2507.20673 Eq. 4).
GMPO = replace(GSPO, name="gmpo", weight_of=_gmpo_weight, objective_of=_gmpo_objective)
