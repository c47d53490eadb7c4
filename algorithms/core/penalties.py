"""Penalties beside the surrogate: the entropy bonus, and the KL to a fixed reference policy.

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
from redline.algorithms.core.types import Array, Namespace

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
