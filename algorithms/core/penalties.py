"""Penalties beside the surrogate: entropy, KL to a fixed reference, divergence from pi_old.

With d = log pi - log pi_ref at the sampled action (Schulman, "Approximating KL divergence"):

    k1: d             weight d(k1)/d(log pi) = 1
    k2: d^2 / 2       weight d
    k3: exp(-d)-1+d   weight 1 - exp(-d)

The weight of k1 carries no information under sampling from pi (its mean is 0 whatever pi_ref is);
k2's is the gradient of KL(pi||pi_ref) on policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.surrogates import MAX_LOG_RATIO
from redline.algorithms.core.types import Array, KLTerm, Namespace

Estimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class Penalties:
    """Coefficients of what is added to or taken from the objective.

    Attributes:
        entropy: Coefficient of the full-distribution entropy bonus.
        kl: Coefficient of the penalty to the reference policy (the policy at the start of the run).
        estimator: How that KL is estimated at the sampled action.
    """

    entropy: float = 0.0
    kl: float = 0.0
    estimator: Estimator = "k3"

    def __post_init__(self) -> None:
        if self.kl < 0:
            raise ValueError(f"kl_coef must be at least 0, got {self.kl}")


@dataclass(frozen=True)
class OldPolicyPenalty:
    """coefficient * divergence of pi from pi_old, exact, over the valid elements.

    Attributes:
        coefficient: In units of the objective per nat.
        over: "mean" over the elements, or the "max" (the bound of arXiv:1502.05477 Eq. 9).
        reverse: KL(new||old) instead of KL(old||new).
    """

    coefficient: float
    over: Literal["mean", "max"] = "mean"
    reverse: bool = False

    def share(self, xp: Namespace, *, divergence: Array, mask: Array) -> Array:
        """Weights with sum(share * divergence) = mean, or max; 0 where masked."""
        zeros = xp.zeros_like(divergence)
        if self.over == "mean":
            count = max(1, int(xp.count_nonzero(mask)))
            return xp.where(mask, zeros + 1.0 / count, zeros)
        lowest = xp.where(mask, divergence, zeros - 1.0)
        share = zeros.reshape(-1)
        share[int(xp.argmax(lowest.reshape(-1)))] = 1.0
        return share.reshape(divergence.shape)

    def term(self, xp: Namespace, mask: Array) -> KLTerm:
        """What `Policy.gradient` takes."""
        return KLTerm(
            lambda divergence: self.coefficient * self.share(xp, divergence=divergence, mask=mask),
            self.reverse,
        )

    def value(self, xp: Namespace, *, divergence: Array, mask: Array) -> float:
        """coefficient * mean or max of the divergence."""
        share = self.share(xp, divergence=divergence, mask=mask)
        kept = xp.where(mask, divergence, xp.zeros_like(divergence))
        return self.coefficient * float(xp.sum(share * kept))


def _minus_log_ratio(xp: Namespace, *, log_prob: Array, anchor_log_prob: Array) -> Array:
    return xp.minimum(anchor_log_prob - log_prob, MAX_LOG_RATIO)


def kl_estimate(
    xp: Namespace, estimator: Estimator, *, log_prob: Array, anchor_log_prob: Array
) -> Array:
    """k1, k2 or k3 per element, in nats."""
    minus_d = _minus_log_ratio(xp, log_prob=log_prob, anchor_log_prob=anchor_log_prob)
    if estimator == "k1":
        return -minus_d
    if estimator == "k2":
        return 0.5 * minus_d * minus_d
    return xp.expm1(minus_d) - minus_d


def kl_weight(
    xp: Namespace, estimator: Estimator, *, log_prob: Array, anchor_log_prob: Array
) -> Array:
    """Derivative of `kl_estimate` with respect to log_prob, per element."""
    minus_d = _minus_log_ratio(xp, log_prob=log_prob, anchor_log_prob=anchor_log_prob)
    if estimator == "k1":
        return xp.ones_like(log_prob)
    if estimator == "k2":
        return -minus_d
    return -xp.expm1(minus_d)
