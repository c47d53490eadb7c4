"""Conjugate gradient, Fisher products and their solutions against dense linear algebra."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, make_batch, make_policy
from closeness import close, identical
from torch_reference import leaf, reference

from redline.algorithms.core.curvature import (
    MAX_DENSE_PARAMETERS,
    Trial,
    backtrack,
    conjugate_gradient,
    damped,
    dense_matrix,
    dense_solve,
    trust_region_scale,
)
from redline.algorithms.core.types import Batch
from redline.envs.policies import MLPPolicy

SPACES = tuple(DISTRIBUTIONS)
ACTIVATIONS = ("tanh", "relu")


def positive_definite(size: int, seed: int) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(size, size))
    return factor @ factor.T + 0.5 * np.eye(size)


def times(matrix: Any) -> Any:
    return lambda v: matrix @ v


@pytest.mark.parametrize("size", [1, 2, 7, 20])
def test_conjugate_gradient_is_a_dense_solve(size: int) -> None:
    matrix = positive_definite(size, seed=size)
    b = np.random.default_rng(0).normal(size=size)
    x, _ = conjugate_gradient(times(matrix), b, iterations=5 * size, tolerance=1e-26)
    close(x, np.linalg.solve(matrix, b), rtol=1e-9, atol=1e-11)
    close(dense_solve(times(matrix), b), np.linalg.solve(matrix, b), rtol=1e-10)


def test_conjugate_gradient_runs_on_torch() -> None:
    matrix = torch.as_tensor(positive_definite(6, seed=1))
    b = torch.arange(6.0, dtype=torch.float64)
    x, _ = conjugate_gradient(times(matrix), b, iterations=30, tolerance=1e-26)
    assert isinstance(x, torch.Tensor)
    close(x, torch.linalg.solve(matrix, b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("iterations", "tolerance"), [(3, 0.0), (50, 1e-2)])
def test_conjugate_gradient_counts_its_products(iterations: int, tolerance: float) -> None:
    matrix = np.diag(np.arange(1.0, 21.0))
    calls = []

    def product(v: Any) -> Any:
        calls.append(v)
        return matrix @ v

    b = np.ones(20)
    x, _ = conjugate_gradient(product, b, iterations, tolerance)
    assert len(calls) <= iterations
    if tolerance:
        residual = b - matrix @ x
        assert residual @ residual <= tolerance * (b @ b)
        assert len(calls) < 20
    else:
        assert len(calls) == iterations


def test_conjugate_gradient_leaves_its_input_alone() -> None:
    b = np.array([1.0, 2.0])
    conjugate_gradient(times(np.diag([1.0, 4.0])), b)
    identical(b, np.array([1.0, 2.0]))


def test_conjugate_gradient_of_zero_is_zero() -> None:
    def refuse(v: Any) -> Any:
        raise AssertionError("nothing to solve")

    x, quadratic = conjugate_gradient(refuse, np.zeros(3))
    identical(x, np.zeros(3))
    assert quadratic == 0.0


@pytest.mark.parametrize("curvature", [-1.0, 0.0, np.nan])
def test_conjugate_gradient_stops_at_a_flat_or_falling_direction(curvature: float) -> None:
    x, quadratic = conjugate_gradient(times(np.diag([curvature, curvature])), np.ones(2))
    identical(x, np.zeros(2))
    assert quadratic == 0.0


@pytest.mark.parametrize("iterations", [1, 3, 40])
def test_conjugate_gradient_knows_its_quadratic_form(iterations: int) -> None:
    matrix = positive_definite(12, seed=4)
    b = np.random.default_rng(1).normal(size=12)
    x, quadratic = conjugate_gradient(times(matrix), b, iterations)
    assert quadratic == pytest.approx(x @ matrix @ x, rel=1e-12)


def mean_kl(policy: MLPPolicy, batch: Batch, flat: Any) -> Any:
    """Mean KL(old||new) over the valid elements, old being the policy as it is."""
    observation = batch.observation[batch.mask]
    old = reference(policy, torch.tensor(policy.parameters), observation)
    return old.kl_to(reference(policy, flat, observation)).mean()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("space", SPACES)
def test_the_fisher_product_is_the_hessian_of_the_kl(space: str, activation: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], activation, seed=1)
    batch = make_batch(policy, seed=2)
    assert 0 < batch.mask.sum() < batch.mask.size
    hessian = torch.autograd.functional.hessian(
        lambda flat: mean_kl(policy, batch, flat), leaf(policy.parameters)
    )
    product = policy.fisher_product(batch)
    close(dense_matrix(product, policy.parameters), hessian, rtol=1e-9, atol=1e-12)
    v = np.random.default_rng(3).normal(size=policy.parameters.shape)
    close(product(v), hessian.numpy() @ v, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("space", SPACES)
def test_the_fisher_product_ignores_padding_and_advantages(space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=4)
    batch = make_batch(policy, seed=5)
    dirty = Batch(
        np.where(batch.mask[..., None], batch.observation, 1e6),
        batch.action,
        batch.old_log_prob + 1e6,
        batch.advantage * 1e6,
        batch.mask,
    )
    v = np.random.default_rng(6).normal(size=policy.parameters.shape)
    identical(policy.fisher_product(dirty)(v), policy.fisher_product(batch)(v))


def test_products_in_a_row_do_not_disturb_each_other() -> None:
    policy = make_policy(DISTRIBUTIONS["gaussian"], seed=7)
    product = policy.fisher_product(make_batch(policy, seed=8))
    v = np.random.default_rng(9).normal(size=(2, policy.parameters.size))
    first, second = product(v[0]), product(v[1])
    kept = first.copy()
    policy.act(np.ones((3, 3)), None)
    identical(product(v[0]), kept)
    identical(first, kept)
    close(product(v[0] + v[1]), first + second, rtol=1e-9, atol=1e-12)


def test_damping_is_added_to_the_diagonal() -> None:
    matrix = positive_definite(5, seed=10)
    dense = dense_matrix(damped(times(matrix), 0.3), np.zeros(5))
    close(dense, matrix + 0.3 * np.eye(5))


def test_a_dense_matrix_of_a_large_network_is_refused() -> None:
    def refuse(v: Any) -> Any:
        raise AssertionError("no product may be computed")

    with pytest.raises(ValueError, match="use solver cg"):
        dense_solve(refuse, np.zeros(MAX_DENSE_PARAMETERS + 1, dtype=np.float32))
    with pytest.raises(AssertionError, match="no product"):
        dense_solve(refuse, np.zeros(MAX_DENSE_PARAMETERS // 10))


@pytest.mark.parametrize("quadratic", [0.0, -1.0, np.nan, np.inf])
def test_a_step_without_curvature_has_scale_0(quadratic: float) -> None:
    assert trust_region_scale(quadratic, 0.01) == 0.0


@pytest.mark.parametrize(
    "trial", [Trial(np.nan, 0.0), Trial(1.0, np.nan), Trial(0.0, 0.0), Trial(1.0, np.inf)]
)
def test_a_candidate_without_a_proven_gain_is_not_taken(trial: Trial) -> None:
    assert backtrack(lambda fraction: trial, [1.0, 0.5], 0.01) is None
