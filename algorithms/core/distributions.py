"""What an action distribution is, and those over choices, with their exact derivatives.

A distribution is a set of functions of its parameters (a tuple of arrays), so one definition
serves the numpy fast path (analytic derivatives) and torch (autograd through the same lines).
`raw` is what the network puts out; derivatives are with respect to `raw`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from redline.algorithms.core.types import Array, Namespace, Params

# Columns up to which numpy's reductions over the last axis are slower than column by column.
_FEW = 16


class Distribution(Protocol):
    """What a policy needs of an action distribution; N stands for any leading axes."""

    @property
    def width(self) -> int:
        """Network outputs per state."""

    @property
    def has_log_std(self) -> bool:
        """A free, state-independent log standard deviation belongs to the parameters."""

    @property
    def most_entropy(self) -> float | None:
        """Largest entropy in nats; None where actions have densities, not probabilities."""

    def params(self, xp: Namespace, raw: Params) -> Params:
        """Network outputs -> canonical parameters."""

    def log_prob(self, xp: Namespace, params: Params, action: Array) -> Array:
        """log pi(a|s), [N], in nats."""

    def entropy(self, xp: Namespace, params: Params) -> Array:
        """H(pi(.|s)), [N], in nats (differential on Box actions)."""

    def kl(self, xp: Namespace, old: Params, new: Params) -> Array:
        """Exact KL(old||new), [N], summed over action dimensions."""

    def score(self, params: Params, action: Array, weight: Array) -> Params:
        """weight * d log pi(a|s) / d raw (numpy; torch differentiates by itself)."""

    def entropy_gradient(self, params: Params, weight: Array) -> Params:
        """weight * d H / d raw (numpy)."""

    def kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        """weight * d KL(old||new) / d raw_new (numpy)."""

    def reverse_kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        """weight * d KL(new||old) / d raw_new (numpy)."""

    def metric(self, xp: Namespace, params: Params, tangent: Params) -> Params:
        """Fisher matrix of the distribution in `raw`, times `tangent`."""

    def sample(self, raw: Params, rng: np.random.Generator) -> Array:
        """One action per state from numpy network outputs."""

    def mode(self, raw: Params) -> Array:
        """The most probable action per state from numpy network outputs."""


def _row_max(xp: Namespace, x: Array) -> Array:
    """Maximum over the last axis, kept as an axis of one."""
    if isinstance(x, np.ndarray) and x.shape[-1] <= _FEW:
        columns = [x[..., i] for i in range(x.shape[-1])]
        return functools.reduce(np.maximum, columns)[..., None]
    return xp.max(x, axis=-1, keepdims=True)


def row_sum(xp: Namespace, x: Array) -> Array:
    """Sum over the last axis; on few columns numpy's product with ones is far quicker."""
    if isinstance(x, np.ndarray) and x.shape[-1] <= _FEW:
        return x @ np.ones(x.shape[-1], dtype=x.dtype)
    return xp.sum(x, axis=-1)


def _chosen(x: Array, action: Array) -> Array:
    """Flat indices of x[..., action]."""
    return _row_starts(action.size, x.shape[-1]) + action.ravel()


@functools.lru_cache(maxsize=8)
def _row_starts(rows: int, width: int) -> Array:
    return np.arange(0, rows * width, width)


@dataclass(frozen=True)
class Categorical:
    """One choice among `n`; parameters are normalised log-probabilities [N, n]."""

    n: int
    has_log_std = False

    @property
    def width(self) -> int:
        return self.n

    @property
    def most_entropy(self) -> float | None:
        return math.log(self.n)

    def params(self, xp: Namespace, raw: Params) -> Params:
        shifted = raw[0] - _row_max(xp, raw[0])
        return (shifted - xp.log(row_sum(xp, xp.exp(shifted)))[..., None],)

    def log_prob(self, xp: Namespace, params: Params, action: Array) -> Array:
        log_p = params[0]
        if isinstance(log_p, np.ndarray):
            return log_p.ravel()[_chosen(log_p, action)].reshape(action.shape)
        return xp.take_along_axis(log_p, action[..., None], axis=-1)[..., 0]

    def entropy(self, xp: Namespace, params: Params) -> Array:
        return -row_sum(xp, xp.exp(params[0]) * params[0])

    def kl(self, xp: Namespace, old: Params, new: Params) -> Array:
        # p_old (e^x - 1 - x), x = log p_new - log p_old: as p_old (-x) in sum, for both sum to 1,
        # but without its cancellation near equal distributions. e^x may overflow where x is large.
        x, p = new[0] - old[0], xp.exp(old[0])
        near = p * (xp.expm1(xp.minimum(x, xp.ones_like(x))) - x)
        return row_sum(xp, xp.where(x <= 1.0, near, xp.exp(new[0]) - p * (1.0 + x)))

    def score(self, params: Params, action: Array, weight: Array) -> Params:
        gradient = np.exp(params[0]) * -weight[..., None]
        gradient.reshape(-1)[_chosen(gradient, action)] += weight.ravel()
        return (gradient,)

    def entropy_gradient(self, params: Params, weight: Array) -> Params:
        log_p = params[0]
        entropy = self.entropy(np, params)
        return (-np.exp(log_p) * (log_p + entropy[..., None]) * weight[..., None],)

    def kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        return ((np.exp(new[0]) - np.exp(old[0])) * weight[..., None],)

    def reverse_kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        gap = new[0] - old[0]
        return (np.exp(new[0]) * (gap - self.kl(np, new, old)[..., None]) * weight[..., None],)

    def metric(self, xp: Namespace, params: Params, tangent: Params) -> Params:
        p = xp.exp(params[0])
        return (p * (tangent[0] - row_sum(xp, p * tangent[0])[..., None]),)

    def sample(self, raw: Params, rng: np.random.Generator) -> Array:
        # Gumbel-max needs no normalisation: argmax(logits + Gumbel noise) ~ softmax(logits).
        return (raw[0] + rng.gumbel(size=raw[0].shape)).argmax(axis=-1)

    def mode(self, raw: Params) -> Array:
        return raw[0].argmax(axis=-1)


@dataclass(frozen=True)
class MultiCategorical:
    """Independent choices among `nvec[i]`; log-probability, entropy and KL are sums over i."""

    nvec: tuple[int, ...]
    has_log_std = False

    @property
    def width(self) -> int:
        return sum(self.nvec)

    @property
    def most_entropy(self) -> float | None:
        return sum(map(math.log, self.nvec))

    def _parts(self, params: Params) -> list[tuple[Categorical, Params, slice]]:
        parts, start = [], 0
        for n in self.nvec:
            part = slice(start, start + n)
            parts.append((Categorical(n), (params[0][..., part],), part))
            start += n
        return parts

    def _join(self, xp: Namespace, pieces: list[Params]) -> Params:
        return (xp.concat([piece[0] for piece in pieces], axis=-1),)

    def params(self, xp: Namespace, raw: Params) -> Params:
        return self._join(xp, [dist.params(xp, part) for dist, part, _ in self._parts(raw)])

    def log_prob(self, xp: Namespace, params: Params, action: Array) -> Array:
        terms = [
            dist.log_prob(xp, part, action[..., i])
            for i, (dist, part, _) in enumerate(self._parts(params))
        ]
        return sum(terms[1:], terms[0])

    def entropy(self, xp: Namespace, params: Params) -> Array:
        terms = [dist.entropy(xp, part) for dist, part, _ in self._parts(params)]
        return sum(terms[1:], terms[0])

    def kl(self, xp: Namespace, old: Params, new: Params) -> Array:
        terms = [dist.kl(xp, (old[0][..., at],), part) for dist, part, at in self._parts(new)]
        return sum(terms[1:], terms[0])

    def score(self, params: Params, action: Array, weight: Array) -> Params:
        parts = enumerate(self._parts(params))
        return self._join(
            np, [dist.score(part, action[..., i], weight) for i, (dist, part, _) in parts]
        )

    def entropy_gradient(self, params: Params, weight: Array) -> Params:
        parts = self._parts(params)
        return self._join(np, [dist.entropy_gradient(part, weight) for dist, part, _ in parts])

    def kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        return self._join(
            np,
            [
                dist.kl_gradient((old[0][..., at],), part, weight)
                for dist, part, at in self._parts(new)
            ],
        )

    def reverse_kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        pieces = zip(self._parts(old), self._parts(new), strict=True)
        return self._join(
            np, [dist.reverse_kl_gradient(a, b, weight) for (dist, a, _), (_, b, _) in pieces]
        )

    def metric(self, xp: Namespace, params: Params, tangent: Params) -> Params:
        return self._join(
            xp,
            [
                dist.metric(xp, part, (tangent[0][..., at],))
                for dist, part, at in self._parts(params)
            ],
        )

    def sample(self, raw: Params, rng: np.random.Generator) -> Array:
        return np.stack([dist.sample(part, rng) for dist, part, _ in self._parts(raw)], axis=-1)

    def mode(self, raw: Params) -> Array:
        return np.stack([dist.mode(part) for dist, part, _ in self._parts(raw)], axis=-1)
