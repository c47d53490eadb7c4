"""Normal distributions over actions in a box, clipped to it or squashed into it.

The parameters are (mean [N, d], log_std broadcastable to it), and they are what the network puts
out. An action is the sample u of the normal distribution itself; the task maps it into the box.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from redline.algorithms.core.distributions import row_sum
from redline.algorithms.core.types import Array, Namespace, Params

_LOG_2 = math.log(2.0)
_LOG_2PI = math.log(2.0 * math.pi)

# Gauss-Hermite: E f(mean + std z) = sum_k _WEIGHTS[k] f(mean + std _NODES[k]).
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class _Normals(ABC):
    """Independent normals, `width` of them: what does not depend on how a sample is bounded."""

    has_log_std = True
    most_entropy: float | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """Dimensions of the box."""

    def params(self, xp: Namespace, raw: Params) -> Params:
        return raw

    def log_prob(self, xp: Namespace, params: Params, action: Array) -> Array:
        mean, log_std = params
        z = (action - mean) * xp.exp(-log_std)
        constant = row_sum(xp, log_std) + 0.5 * self.width * _LOG_2PI
        return -0.5 * row_sum(xp, z * z) - constant

    def entropy(self, xp: Namespace, params: Params) -> Array:
        mean, log_std = params
        constant = 0.5 * self.width * (1.0 + _LOG_2PI)
        return xp.sum(log_std + xp.zeros_like(mean), axis=-1) + constant

    def kl(self, xp: Namespace, old: Params, new: Params) -> Array:
        # log(s1/s0) + (s0^2 + (m0-m1)^2) / (2 s1^2) - 1/2, summed over dimensions.
        gap = new[1] - old[1]
        z = (old[0] - new[0]) * xp.exp(-new[1])
        return xp.sum(gap + 0.5 * (xp.exp(-2.0 * gap) + z * z) - 0.5, axis=-1)

    def score(self, params: Params, action: Array, weight: Array) -> Params:
        mean, log_std = params
        inverse = np.exp(-log_std)
        z = (action - mean) * inverse
        w = weight[..., None]
        return (z * inverse * w, (z * z - 1.0) * w)

    def entropy_gradient(self, params: Params, weight: Array) -> Params:
        zeros = np.zeros_like(params[0])
        return (zeros, zeros + weight[..., None])

    def kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        inverse = np.exp(-new[1])
        z = (old[0] - new[0]) * inverse
        w = weight[..., None]
        return (-z * inverse * w, (1.0 - np.exp(2.0 * (old[1] - new[1])) - z * z) * w)

    def reverse_kl_gradient(self, old: Params, new: Params, weight: Array) -> Params:
        w = weight[..., None]
        pull = (new[0] - old[0]) * np.exp(-2.0 * old[1])
        return (pull * w, (np.exp(2.0 * (new[1] - old[1])) - 1.0) * w)

    def metric(self, xp: Namespace, params: Params, tangent: Params) -> Params:
        return (tangent[0] * xp.exp(-2.0 * params[1]), 2.0 * tangent[1])

    def sample(self, raw: Params, rng: np.random.Generator) -> Array:
        mean, log_std = raw
        return mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)

    def mode(self, raw: Params) -> Array:
        return raw[0]


@dataclass(frozen=True)
class DiagGaussian(_Normals):
    """Independent normals over `d` numbers; densities are those of u itself."""

    d: int

    @property
    def width(self) -> int:
        return self.d


@dataclass(frozen=True)
class TanhGaussian(_Normals):
    """a = middle + half_range tanh(u) with u normal: every action lies in the box.

    Densities are those of a, in the box's own units: log pi(a) = log N(u) - sum_i log |da_i/du_i|
    (arXiv:1801.01290, appendix C). The map has no parameters and an inverse, so score, KL and
    Fisher matrix are those of the normal distribution. `mode` is its mean: a is then the median.

    The entropy, that of the normal plus E[sum_i log |da_i/du_i|], has no closed form: a
    Gauss-Hermite rule of 32 nodes per dimension gives it, and the exact derivative of the rule its
    gradient. The error per dimension, for any mean, is below 1e-13 nats at a standard deviation of
    1/e, 1e-7 at 1 and 2e-3 at e; of the gradient, 1e-13, 1e-6 and 2e-2.

    Attributes:
        half_range: (high - low) / 2 of every dimension of the box.
    """

    half_range: tuple[float, ...]

    @property
    def width(self) -> int:
        return len(self.half_range)

    @property
    def _log_volume(self) -> float:
        return math.fsum(math.log(half) for half in self.half_range)

    def log_prob(self, xp: Namespace, params: Params, action: Array) -> Array:
        stretch = row_sum(xp, _log_slope(xp, action)) + self._log_volume
        return super().log_prob(xp, params, action) - stretch

    def entropy(self, xp: Namespace, params: Params) -> Array:
        u, _, weights = _quadrature(xp, params)
        stretch = row_sum(xp, _log_slope(xp, u) @ weights) + self._log_volume
        return super().entropy(xp, params) + stretch

    def entropy_gradient(self, params: Params, weight: Array) -> Params:
        u, deviation, weights = _quadrature(np, params)
        pull = -2.0 * np.tanh(u)  # d log(1 - tanh(u)^2) / du
        w = weight[..., None]
        return ((pull @ weights) * w, ((pull * deviation) @ weights + 1.0) * w)


def _log_slope(xp: Namespace, u: Array) -> Array:
    """log(1 - tanh(u)^2), which rounding would make log 0 from |u| = 9 on in float32."""
    size = xp.abs(u)
    return 2.0 * (_LOG_2 - size - xp.log1p(xp.exp(-2.0 * size)))


def _quadrature(xp: Namespace, params: Params) -> tuple[Array, Array, Array]:
    """The nodes u = mean + deviation [N, d, 32], the deviations, and the nodes' weights."""
    mean, log_std = params
    nodes, weights = (
        xp.asarray(part, dtype=mean.dtype, device=mean.device) for part in (_NODES, _WEIGHTS)
    )
    deviation = xp.exp(log_std)[..., None] * nodes
    return mean[..., None] + deviation, deviation, weights
