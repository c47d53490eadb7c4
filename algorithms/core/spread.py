"""Sums over a policy's flat vectors where other processes hold the rest of them."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import numpy as np

from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.types import Array


@runtime_checkable
class Spread(Protocol):
    """A policy of which each of several processes holds a part of the flat vectors."""

    def pooled(self, values: Array) -> Array:
        """Sum over the processes; numpy, the same bits in all of them."""


def pooled(policy: Policy, values: Any) -> Array:
    """Numbers [...] of this process's part of the flat vectors, summed over all parts.

    Args:
        policy: A `Spread` one, or one that is whole, whose numbers are given back.
        values: numpy, or a list of numbers.
    """
    array = np.asarray(values, dtype=np.float64)
    return policy.pooled(array) if isinstance(policy, Spread) else array


def gradient_norm(policy: Policy) -> float:
    """Euclidean norm of the whole gradient."""
    gradient = policy.gradient_buffer
    return math.sqrt(float(pooled(policy, float(gradient @ gradient))))
