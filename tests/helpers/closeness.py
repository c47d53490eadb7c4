"""Comparison of arrays of any library, with a ceiling on how loose it may be."""

from typing import Any

import numpy as np

MAX_TOLERANCE = 1e-3


def to_numpy(value: Any) -> np.ndarray:
    """A numpy array from numpy, torch, array-api-strict or plain numbers."""
    if hasattr(value, "detach"):
        value = value.detach()
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    return np.from_dlpack(value)


def close(actual: Any, expected: Any, *, rtol: float = 1e-12, atol: float = 0.0) -> None:
    """Shapes are equal and |actual - expected| <= atol + rtol |expected|, element by element."""
    # A slip such as 1e6 for 1e-6 makes a test that cannot fail.
    assert 0.0 <= rtol <= MAX_TOLERANCE and 0.0 <= atol <= MAX_TOLERANCE
    actual, expected = to_numpy(actual), to_numpy(expected)
    assert actual.shape == expected.shape, f"shapes {actual.shape} and {expected.shape}"
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def identical(actual: Any, expected: Any) -> None:
    """Equal bit for bit."""
    actual, expected = to_numpy(actual), to_numpy(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()
