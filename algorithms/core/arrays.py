"""Which library an array belongs to, and its way to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.algorithms.core.types import Array, Namespace


def namespace(value: Array) -> Namespace:
    """The array-API namespace of an array: numpy itself, else array-api-compat's."""
    if isinstance(value, np.ndarray):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(value)


def host(value: Array) -> np.ndarray[Any, Any]:
    """The array in numpy; precisions that numpy lacks (bfloat16) become float32."""
    if isinstance(value, np.ndarray):
        return value
    value = value.detach()
    narrow = value.is_floating_point() and value.dtype.itemsize < 4
    return np.asarray((value.float() if narrow else value).cpu())


def stop_gradient(value: Array) -> Array:
    """The same numbers, as constants for autograd."""
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()
