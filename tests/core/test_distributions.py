"""Distributions and their analytic derivatives against torch.distributions and autograd."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close, identical
from scipy import stats
from torch_reference import XP, Reference, leaf

from redline.algorithms.core.distributions import Categorical, Distribution, MultiCategorical
from redline.algorithms.core.gaussians import DiagGaussian, TanhGaussian
from redline.algorithms.core.types import Params

# 20 choices: numpy sums few columns one by one and many in one call.
DISTRIBUTIONS: dict[str, Distribution] = {
    "categorical": Categorical(3),
    "many choices": Categorical(20),
    "multi_categorical": MultiCategorical((2, 5, 3)),
    "gaussian": DiagGaussian(3),
    "squashed": TanhGaussian((1.0, 0.4, 3.0)),
}
LEADING = {"flat": (7,), "rows": (2, 3)}

spaces = pytest.mark.parametrize("space", DISTRIBUTIONS)
shapes = pytest.mark.parametrize("leading", LEADING)


def raw_of(space: str, leading: str, seed: int) -> Params:
    """Random network outputs; the log standard deviation is one row for all states."""
    dist, rng = DISTRIBUTIONS[space], np.random.default_rng(seed)
    output = rng.normal(0.0, 1.5, (*LEADING[leading], dist.width))
    return (output, rng.normal(0.0, 0.5, dist.width)) if dist.has_log_std else (output,)


def torch_of(space: str, raw: Any) -> Reference:
    output, log_std, *_ = (*raw, None)
    return Reference(DISTRIBUTIONS[space], output, log_std)


def leaves(raw: Params) -> list[Any]:
    return [leaf(part) for part in raw]


def actions(space: str, leading: str, seed: int) -> Any:
    return DISTRIBUTIONS[space].sample(raw_of(space, leading, 0), np.random.default_rng(seed))


def same_derivatives(actual: Params, total: Any, raw: list[Any]) -> None:
    """The analytic derivative, summed over states where one row serves all, is autograd's."""
    expected = torch.autograd.grad(total, raw, materialize_grads=True)
    for mine, theirs in zip(actual, expected, strict=True):
        mine = mine.reshape(-1, mine.shape[-1]).sum(axis=0) if theirs.ndim == 1 else mine
        close(mine, theirs, rtol=1e-10, atol=1e-13)


@shapes
@spaces
def test_log_prob_and_entropy(space: str, leading: str) -> None:
    dist, raw = DISTRIBUTIONS[space], raw_of(space, leading, 0)
    action = actions(space, leading, 1)
    theirs = torch_of(space, leaves(raw))
    for xp, mine in ((np, raw), (XP, tuple(map(torch.as_tensor, raw)))):
        params = dist.params(xp, mine)
        chosen = action if xp is np else torch.as_tensor(action)
        log_prob = dist.log_prob(xp, params, chosen)
        assert tuple(log_prob.shape) == LEADING[leading]
        close(log_prob, theirs.log_prob(torch.as_tensor(action)), rtol=1e-11)
        close(dist.entropy(xp, params), theirs.entropy(), rtol=1e-11)


@shapes
@spaces
def test_kl(space: str, leading: str) -> None:
    dist = DISTRIBUTIONS[space]
    old, new = raw_of(space, leading, 2), raw_of(space, leading, 3)
    expected = torch_of(space, leaves(old)).kl_to(torch_of(space, leaves(new)))
    for xp, convert in ((np, np.asarray), (XP, torch.as_tensor)):
        pair = [dist.params(xp, tuple(map(convert, raw))) for raw in (old, new)]
        actual = dist.kl(xp, *pair)
        close(actual, expected, rtol=1e-10)
        assert (actual > 0.0).all()
        assert not dist.kl(xp, pair[0], pair[0]).any()


@shapes
@spaces
def test_derivatives(space: str, leading: str) -> None:
    dist = DISTRIBUTIONS[space]
    raw, old = raw_of(space, leading, 4), raw_of(space, leading, 5)
    params, old_params = dist.params(np, raw), dist.params(np, old)
    action = actions(space, leading, 6)
    weight = np.random.default_rng(7).normal(size=LEADING[leading])
    w, variables = torch.as_tensor(weight), leaves(raw)
    pi = torch_of(space, variables)
    log_prob = pi.log_prob(torch.as_tensor(action))
    same_derivatives(dist.score(params, action, weight), (w * log_prob).sum(), variables)
    pi = torch_of(space, variables)
    same_derivatives(dist.entropy_gradient(params, weight), (w * pi.entropy()).sum(), variables)
    kl = torch_of(space, leaves(old)).kl_to(torch_of(space, variables))
    same_derivatives(dist.kl_gradient(old_params, params, weight), (w * kl).sum(), variables)
    reverse = torch_of(space, variables).kl_to(torch_of(space, leaves(old)))
    mine = dist.reverse_kl_gradient(old_params, params, weight)
    same_derivatives(mine, (w * reverse).sum(), variables)


@spaces
def test_the_metric_is_the_hessian_of_the_kl(space: str) -> None:
    dist, raw = DISTRIBUTIONS[space], raw_of(space, "flat", 8)
    raw = tuple(part[0] if part.ndim > 1 else part for part in raw)
    flat = torch.as_tensor(np.concatenate(raw))
    sizes = [len(part) for part in raw]

    def kl(x: Any) -> Any:
        return torch_of(space, flat.split(sizes)).kl_to(torch_of(space, x.split(sizes)))

    hessian = torch.autograd.functional.hessian(kl, flat)
    tangent = np.random.default_rng(9).normal(size=flat.shape)
    pieces = tuple(np.split(tangent, np.cumsum(sizes)[:-1]))
    for xp, convert in ((np, np.asarray), (XP, torch.as_tensor)):
        params = dist.params(xp, tuple(map(convert, raw)))
        image = dist.metric(xp, params, tuple(map(convert, pieces)))
        whole = np.concatenate([np.asarray(part) for part in image])
        close(whole, hessian.numpy() @ tangent, rtol=1e-9, atol=1e-12)


@spaces
def test_extreme_outputs_stay_finite(space: str) -> None:
    dist = DISTRIBUTIONS[space]
    output = np.zeros((2, dist.width), np.float32)
    output[0, 0], output[1, -1] = 3e4, -3e4
    raw = (output, np.zeros(dist.width, np.float32)) if dist.has_log_std else (output,)
    params = dist.params(np, raw)
    action = dist.mode(raw)
    numbers = [dist.log_prob(np, params, action), dist.entropy(np, params)]
    weight = np.ones(2, np.float32)
    numbers += [*dist.score(params, action, weight), *dist.entropy_gradient(params, weight)]
    assert all(np.isfinite(part).all() for part in numbers)
    assert {part.dtype for part in numbers} == {np.dtype(np.float32)}


def expected_frequencies(probabilities: Any, draws: int, choices: Any) -> float:
    """p-value of the chi-square test."""
    counts = np.bincount(choices, minlength=len(probabilities))
    return float(stats.chisquare(counts, probabilities * draws).pvalue)


@pytest.mark.parametrize("space", ["categorical", "many choices", "multi_categorical"])
def test_samples_are_as_frequent_as_their_probability(space: str) -> None:
    dist, draws = DISTRIBUTIONS[space], 20_000
    raw = raw_of(space, "flat", 10)[0][0]
    sample = dist.sample((np.tile(raw, (draws, 1)),), np.random.default_rng(11))
    sample = sample.reshape(draws, -1)
    widths = [len(part.probs) for part in torch_of(space, [torch.as_tensor(raw)]).parts]
    # A seed is fixed: the bound is not a rate of false alarms but says that nothing is far off.
    for column, part in enumerate(np.split(raw, np.cumsum(widths)[:-1])):
        probabilities = np.exp(part) / np.exp(part).sum()
        assert expected_frequencies(probabilities, draws, sample[:, column]) > 0.01
    for i in range(1, len(widths)):  # independent choices
        table = np.zeros((widths[0], widths[i]))
        np.add.at(table, (sample[:, 0], sample[:, i]), 1)
        assert stats.chi2_contingency(table).pvalue > 0.01


def test_gaussian_samples() -> None:
    mean, log_std = np.array([1.0, -2.0]), np.array([0.0, math.log(3.0)])
    tiled = np.tile(mean, (20_000, 1))
    sample = DiagGaussian(2).sample((tiled, log_std), np.random.default_rng(12))
    z = (sample - mean) / np.exp(log_std)
    for column in z.T:
        assert stats.kstest(column, "norm").pvalue > 0.01
    assert abs(np.corrcoef(z.T)[0, 1]) < 0.02


@spaces
def test_sampling_is_a_function_of_the_generator(space: str) -> None:
    identical(actions(space, "rows", 13), actions(space, "rows", 13))
    assert (actions(space, "rows", 13) != actions(space, "rows", 14)).any()


def test_the_mode() -> None:
    identical(Categorical(3).mode((np.array([[0.0, 2.0, 1.0]]),)), np.array([1]))
    multi = MultiCategorical((2, 3)).mode((np.array([[1.0, 0.0, 0.0, 0.0, 5.0]]),))
    identical(multi, np.array([[0, 2]]))
    mean = np.array([[0.3, -0.7]])
    identical(DiagGaussian(2).mode((mean, np.zeros(2))), mean)


def test_entropy_by_hand() -> None:
    uniform = Categorical(4).params(np, (np.zeros((1, 4)),))
    close(Categorical(4).entropy(np, uniform), np.array([math.log(4.0)]))
    certain = Categorical(4).params(np, (np.array([[800.0, 0.0, 0.0, 0.0]]),))
    assert Categorical(4).entropy(np, certain)[0] == 0.0
    narrow = DiagGaussian(1).entropy(np, (np.zeros((1, 1)), np.array([-2.0])))
    assert narrow[0] < 0.0  # a density's entropy may be negative


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_divergence_of_near_categoricals_survives_single_precision(library: str) -> None:
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(500, 4))
    nearby, far = raw + 1e-3 * rng.normal(size=raw.shape), raw + 9.0 * rng.normal(size=raw.shape)
    dist, xp = Categorical(4), np if library == "numpy" else XP
    for other in (nearby, far):
        old, new = (dist.params(np, (logits,)) for logits in (raw, other))
        exact = (np.exp(old[0]) * (old[0] - new[0])).sum(axis=-1)
        single = [(xp.asarray(part[0].astype(np.float32)),) for part in (old, new)]
        actual = np.asarray(dist.kl(xp, *single))
        assert (actual >= 0.0).all()
        close(actual.astype(np.float64), exact, rtol=1e-3, atol=1e-10)
