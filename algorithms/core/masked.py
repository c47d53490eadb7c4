"""Statistics over the elements that count. Masked entries never matter, whatever they hold."""

from __future__ import annotations

import math

from redline.algorithms.core.arrays import namespace
from redline.algorithms.core.types import Array, Namespace

# Below this relative spread the differences are rounding of equal numbers, not a signal.
_ROUNDING = 1e-6


def require_same_shape(**arrays: Array) -> None:
    """Refuse arrays that would broadcast silently, such as (N,) against (N, 1).

    Raises:
        ValueError: Two shapes differ; the message names them.
    """
    found = [array.shape for array in arrays.values()]
    if found.count(found[0]) != len(found):
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"these arrays must have one shape, got {listed}")


def masked_mean(xp: Namespace, value: Array, mask: Array) -> Array:
    """Mean of `value` over `mask`; 0 when nothing counts."""
    count = xp.sum(xp.astype(mask, value.dtype))
    total = xp.sum(xp.where(mask, value, xp.zeros_like(value)))
    return total / xp.maximum(count, xp.ones_like(count))


def standardise(value: Array, mask: Array | None = None, eps: float = 1e-8) -> Array:
    """(x - mean) / (std + eps) over the masked elements, 0 elsewhere.

    std is the sample standard deviation (n - 1), as torch and SB3 use it. A single element has
    no spread and is returned as it is; equal elements give exactly 0.

    Args:
        value: Any shape.
        mask: Same shape, None when every element counts.
        eps: Added to the standard deviation.
    """
    if mask is not None:
        result = namespace(value).zeros_like(value)
        result[mask] = standardise(value[mask], eps=eps)
        return result
    flat = value.reshape(-1)
    size = flat.shape[0]
    if size <= 1:
        return value
    mean = flat.sum() / size
    centred = flat - mean
    std = math.sqrt(float(centred @ centred) / (size - 1))
    # |x| <= |mean| + sqrt(size) std, so the maximum is looked for only where it can matter.
    if std <= _ROUNDING * (abs(float(mean)) + math.sqrt(size) * std) and std <= _ROUNDING * float(
        abs(flat).max()
    ):
        return namespace(value).zeros_like(value)
    return (centred / (std + eps)).reshape(value.shape)
