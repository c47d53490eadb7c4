"""Natural-gradient linear algebra on flat parameter vectors (numpy or torch alike)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from redline.algorithms.core.arrays import host
from redline.algorithms.core.types import Array

# A dense Fisher matrix of this many parameters takes 3.2 GB in float64.
MAX_DENSE_PARAMETERS = 20_000

Product = Callable[[Array], Array]


class Solution(NamedTuple):
    """x [P] of a linear system A x = b, exact or not, and x'A x."""

    x: Array
    quadratic: float


def damped(product: Product, damping: float) -> Product:
    """v -> (F + damping I) v."""
    return lambda v: product(v) + damping * v


def conjugate_gradient(
    product: Product, b: Array, iterations: int = 10, tolerance: float = 1e-10
) -> Solution:
    """x with A x = b for a symmetric positive definite A (Nocedal & Wright, Algorithm 5.2).

    Args:
        product: v -> A v.
        b: [P].
        iterations: At most this many products.
        tolerance: Stop when |r|^2 <= tolerance * |b|^2.

    Returns:
        x [P], the best iterate so far if a direction of non-positive curvature shows up, and
        x'A x = x'(b - r), for which the residual r saves a product.
    """
    x = b * 0.0
    residual = b + 0.0
    direction = residual
    norm = float(residual @ residual)
    stop = tolerance * norm
    for _ in range(iterations):
        if norm <= stop:
            break
        image = product(direction)
        curvature = float(direction @ image)
        if not curvature > 0.0:
            break
        step = norm / curvature
        x = x + step * direction
        residual = residual - step * image
        previous, norm = norm, float(residual @ residual)
        direction = residual + (norm / previous) * direction
    return Solution(x, float(x @ (b - residual)))


def dense_matrix(product: Product, like: Array) -> np.ndarray:
    """The matrix of a linear map, column by column: [P, P] in float64.

    Raises:
        ValueError: More than `MAX_DENSE_PARAMETERS` parameters.
    """
    size = int(like.shape[0])
    if size > MAX_DENSE_PARAMETERS:
        raise ValueError(
            f"solver dense holds a {size} x {size} Fisher matrix; it is refused above "
            f"{MAX_DENSE_PARAMETERS} parameters, use solver cg"
        )
    columns = np.empty((size, size))
    unit = like * 0.0
    for i in range(size):
        unit[i] = 1.0
        columns[i] = host(product(unit))
        unit[i] = 0.0
    return columns


def dense_solve(product: Product, b: Array) -> np.ndarray:
    """x with A x = b by building A and factorising it (the cost that CG avoids)."""
    matrix = dense_matrix(product, b)
    solution: np.ndarray = np.linalg.solve(matrix, host(b).astype(np.float64))
    return solution


def trust_region_scale(quadratic: float, delta: float) -> float:
    """sqrt(2 delta / x'Fx): the step along x whose quadratic KL is delta; 0 if x'Fx is not > 0."""
    return float(np.sqrt(2.0 * delta / quadratic)) if quadratic > 0.0 else 0.0


class Trial(NamedTuple):
    """What a candidate step would do."""

    gain: float
    kl: float


def backtrack(
    evaluate: Callable[[float], Trial], fractions: Iterable[float], max_kl: float
) -> tuple[float, Trial] | None:
    """The first fraction with gain > 0 and KL <= max_kl, or None when all fail.

    Args:
        evaluate: fraction of the full step -> the true gain and KL(old||new) there.
        fractions: Candidates, largest first.
        max_kl: The line not to cross, in nats.
    """
    for fraction in fractions:
        trial = evaluate(fraction)
        # Written so that nan fails both comparisons.
        if trial.gain > 0.0 and trial.kl <= max_kl:
            return fraction, trial
    return None
