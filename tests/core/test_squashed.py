"""The density of a normal sample squashed into a box, in the box's own units."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from scipy import integrate, stats
from torch_reference import XP, Reference, leaf

from redline.algorithms.core.gaussians import DiagGaussian, TanhGaussian

LOW, HIGH = -0.5, 2.5
HALF, MIDDLE = (HIGH - LOW) / 2, (HIGH + LOW) / 2
ONE = TanhGaussian((HALF,))
CASES = [(0.0, 0.0), (0.8, -1.0), (-0.4, 0.4)]

cases = pytest.mark.parametrize(("mean", "log_std"), CASES)


def params_of(mean: float, log_std: float, rows: int = 1) -> tuple[Any, Any]:
    return np.full((rows, 1), mean), np.array([log_std])


def density(action: Any, mean: float, log_std: float) -> Any:
    """pi(a) for actions of the box."""
    u = np.arctanh((np.asarray(action) - MIDDLE) / HALF).reshape(-1, 1)
    return np.exp(ONE.log_prob(np, params_of(mean, log_std, len(u)), u)).reshape(np.shape(action))


@cases
def test_the_density_integrates_to_one(mean: float, log_std: float) -> None:
    total, _ = integrate.quad(density, LOW, HIGH, args=(mean, log_std), epsabs=1e-10, limit=200)
    assert total == pytest.approx(1.0, abs=1e-8)


@cases
def test_samples_have_that_density(mean: float, log_std: float) -> None:
    raw = params_of(mean, log_std, 50_000)
    action = MIDDLE + HALF * np.tanh(ONE.sample(raw, np.random.default_rng(3)))
    edges = np.linspace(LOW, HIGH, 21)
    counts, _ = np.histogram(action, edges)
    mass = np.array(
        [integrate.quad(density, a, b, args=(mean, log_std))[0] for a, b in pairwise(edges)]
    )
    common = mass * len(action) > 5
    expected = np.append(mass[common], mass[~common].sum()) * len(action)
    found = np.append(counts[common], counts[~common].sum())
    kept = expected > 0.0
    assert stats.chisquare(found[kept], expected[kept], sum_check=False).pvalue > 0.01


@cases
def test_the_entropy_is_that_of_samples(mean: float, log_std: float) -> None:
    raw = params_of(mean, log_std, 100_000)
    log_prob = ONE.log_prob(np, raw, ONE.sample(raw, np.random.default_rng(4)))
    error = log_prob.std() / math.sqrt(len(log_prob))
    entropy = float(ONE.entropy(np, params_of(mean, log_std))[0])
    assert abs(entropy + log_prob.mean()) < 3.0 * error
    assert error < 0.01


def exact(mean: float, std: float) -> tuple[float, float, float]:
    """E log(1 - tanh(u)^2) and its derivatives by mean and log std, by a sum of 20,001 terms."""
    z = np.linspace(-12.0, 12.0, 20_001)
    u, weight = mean + std * z, stats.norm.pdf(z) * (24.0 / 20_000)
    slope = -2.0 * np.tanh(u)
    value = -2.0 * (np.logaddexp(u, -u) - math.log(2.0))
    return float(weight @ value), float(weight @ slope), float(weight @ (slope * std * z))


@pytest.mark.parametrize(
    ("log_std", "limit", "limit_of_gradient"), [(-1.0, 1e-13, 1e-13), (0.0, 1e-7, 1e-6)]
)
def test_the_error_of_the_quadrature_is_as_said(
    log_std: float, limit: float, limit_of_gradient: float
) -> None:
    box = TanhGaussian((1.0,))
    for mean in np.linspace(-4.0, 4.0, 17):
        value, by_mean, by_log_std = exact(mean, math.exp(log_std))
        raw = params_of(mean, log_std)
        entropy = box.entropy(np, raw) - DiagGaussian(1).entropy(np, raw)
        assert abs(entropy[0] - value) < limit
        gradient = box.entropy_gradient(raw, np.ones(1))
        assert abs(gradient[0][0, 0] - by_mean) < limit_of_gradient
        assert abs(gradient[1][0, 0] - 1.0 - by_log_std) < limit_of_gradient


def test_the_entropy_is_differentiated_alike_on_torch() -> None:
    box, rng = TanhGaussian((0.3, 2.0)), np.random.default_rng(5)
    mean, log_std, weight = rng.normal(size=(6, 2)), np.array([-0.7, 0.6]), rng.normal(size=6)
    raw = leaf(mean), leaf(log_std)
    total = (torch.as_tensor(weight) * box.entropy(XP, raw)).sum()
    expected = torch.autograd.grad(total, raw)
    actual = box.entropy_gradient((mean, log_std), weight)
    close(actual[0], expected[0], rtol=1e-11)
    close(actual[1].sum(axis=0), expected[1], rtol=1e-11)
    close(box.entropy(np, (mean, log_std)), Reference(box, *raw).entropy(), rtol=1e-11)


def test_far_samples_have_a_finite_density() -> None:
    u = np.array([[-300.0], [-20.0], [0.0], [20.0], [300.0]], np.float32)
    raw = u, np.zeros(1, np.float32)
    log_prob = ONE.log_prob(np, raw, u)
    # log(1 - tanh(u)^2) = 2 log 2 - 2|u|, up to exp(-2|u|).
    tail = (
        -0.5 * math.log(2.0 * math.pi) - math.log(HALF) - 2.0 * math.log(2.0) + 2.0 * abs(u[:, 0])
    )
    tail[2] -= -2.0 * math.log(2.0)
    close(log_prob, tail, rtol=1e-6, atol=1e-6)
    assert log_prob.dtype == np.float32


def test_the_ratio_and_the_divergence_are_those_of_the_samples() -> None:
    plain, rng = DiagGaussian(1), np.random.default_rng(6)
    old, new = params_of(0.3, -0.2, 9), params_of(-0.5, 0.1, 9)
    u = rng.normal(size=(9, 1))
    ratio = ONE.log_prob(np, new, u) - ONE.log_prob(np, old, u)
    close(ratio, plain.log_prob(np, new, u) - plain.log_prob(np, old, u), rtol=1e-10)
    close(ONE.kl(np, old, new), plain.kl(np, old, new))
