"""A mixture of policies: its density, its sampling, and what it refuses."""

import math
from dataclasses import replace
from typing import Any

import array_api_compat.torch as xp_torch
import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, make_batch, make_policy
from closeness import close, identical
from double import collect, lm_batch, lm_policy
from scipy import stats

from redline.algorithms.core.autograd import AutogradPolicy
from redline.algorithms.core.distributions import Categorical, MultiCategorical
from redline.algorithms.core.mixture import MixturePolicy, log_sum_exp
from redline.algorithms.core.telemetry import after_update
from redline.algorithms.core.types import Batch
from redline.envs.policies import MLPPolicy

spaces = pytest.mark.parametrize("space", DISTRIBUTIONS)
inexact = pytest.mark.parametrize("space", ["multi_categorical", "gaussian"])
STATES = 4


def parts_of(space: str, count: int = 3) -> list[MLPPolicy]:
    """Policies far apart."""
    return [make_policy(DISTRIBUTIONS[space], seed=seed, spread=0.8) for seed in range(count)]


def mixed_by_hand(alpha: float, old: Any, new: Any) -> Any:
    """log((1 - alpha) pi_old + alpha pi') of two log-probabilities."""
    return np.log((1.0 - alpha) * np.exp(old) + alpha * np.exp(new))


@pytest.mark.parametrize("alpha", [1e-4, 0.3, 0.99])
@spaces
def test_the_density_is_the_mixture_of_the_densities(space: str, alpha: float) -> None:
    old, new, _ = parts_of(space)
    batch = make_batch(old)
    mixture = MixturePolicy([old]).with_component(new, alpha)
    expected = mixed_by_hand(alpha, old.evaluate(batch).log_prob, new.evaluate(batch).log_prob)
    close(mixture.evaluate(batch).log_prob, expected, rtol=1e-12, atol=1e-12)
    mean = old.copy()
    mean.restore((1.0 - alpha) * old.parameters + alpha * new.parameters)
    if alpha == 0.3:  # a mean of parameters is another policy
        assert np.abs(mean.evaluate(batch).log_prob - expected)[batch.mask].max() > 0.1


@spaces
def test_the_density_of_torch_policies(space: str) -> None:
    dist = DISTRIBUTIONS[space]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        old, new = (
            AutogradPolicy(torch.nn.Linear(3, dist.width).double(), dist, log_std)
            for log_std in (0.0, -0.5)
        )
    source = make_batch(make_policy(dist))
    fields = (source.observation, source.action, source.old_log_prob, source.advantage, source.mask)
    batch = Batch(*map(old.asarray, fields))
    mixture = MixturePolicy([old]).with_component(new, 0.3)
    pair = [part.evaluate(batch).log_prob.numpy() for part in (old, new)]
    close(mixture.evaluate(batch).log_prob, mixed_by_hand(0.3, *pair), rtol=1e-12, atol=1e-12)


def test_the_density_of_language_models() -> None:
    old, new = (lm_policy(seed, torch.float64) for seed in (0, 1))
    batch = lm_batch(old, collect(old))
    mixture = MixturePolicy([old]).with_component(new, 0.3)
    pair = [part.evaluate(batch).log_prob.numpy() for part in (old, new)]
    evaluation = mixture.evaluate(batch)
    close(evaluation.log_prob, mixed_by_hand(0.3, *pair), rtol=1e-12, atol=1e-12)
    probabilities = evaluation.params[0].exp()
    close(probabilities.sum(-1), np.ones(probabilities.shape[:-1]), rtol=1e-12)


def test_the_weights_after_several_updates() -> None:
    first, second, third = parts_of("categorical")
    mixture = MixturePolicy([first]).with_component(second, 0.5).with_component(third, 0.2)
    close(mixture.weights, [0.4, 0.4, 0.2])
    assert mixture.newest is third and mixture.heaviest is first
    assert mixture.with_component(first, 1.0).components == [first]
    fourth = mixture.with_component(first, 0.7)
    close(fourth.weights, [0.12, 0.12, 0.06, 0.7])
    assert fourth.heaviest is first and len(mixture.components) == 3
    close(MixturePolicy(parts_of("categorical", 2), [3.0, 1.0]).weights, [0.75, 0.25])


def test_entropy_and_divergences_are_exact_where_there_is_one_choice() -> None:
    parts = parts_of("categorical")
    batch = make_batch(parts[0])
    mixture = MixturePolicy(parts, [0.5, 0.2, 0.3])
    tables = [np.exp(part.evaluate(batch).params[0]) for part in parts]
    new = sum(w * table for w, table in zip([0.5, 0.2, 0.3], tables, strict=True))
    old = np.exp(batch.reference[0])
    evaluation = mixture.evaluate(batch)
    close(np.exp(evaluation.params[0]), new)
    close(evaluation.entropy, -(new * np.log(new)).sum(axis=-1))
    close(mixture.kl(batch), (old * np.log(old / new)).sum(axis=-1), rtol=1e-9)
    close(mixture.kl(batch, reverse=True), (new * np.log(new / old)).sum(axis=-1), rtol=1e-9)
    names = after_update(batch, evaluation, mixture.kl(batch, evaluation))
    assert {"train/kl", "train/kl_max", "train/entropy"} <= names.keys()
    assert not any(name.endswith("_sampled") for name in names)


@inexact
def test_entropy_and_divergence_are_named_estimates_elsewhere(space: str) -> None:
    parts = parts_of(space, 2)
    batch = make_batch(parts[0], shape=(40,), by=0.0)
    mixture = MixturePolicy(parts, [0.9, 0.1])
    evaluation = mixture.evaluate(batch)
    ratio = np.exp(evaluation.log_prob - batch.old_log_prob)
    divergence = mixture.kl(batch, evaluation)
    close(divergence, ratio - 1.0 - np.log(ratio), rtol=1e-9, atol=1e-12)
    close(evaluation.entropy, -evaluation.log_prob)
    assert evaluation.params == ()
    metrics = after_update(batch, evaluation, divergence)
    close(metrics["train/kl_sampled"], divergence.mean())
    close(metrics["train/kl_max_sampled"], divergence.max())
    close(metrics["train/entropy_sampled"], -evaluation.log_prob.mean())
    assert not {"train/kl", "train/kl_max", "train/entropy"} & metrics.keys()


@inexact
def test_the_estimate_of_the_divergence_is_right_on_average(space: str) -> None:
    # Close enough that the ratio has no heavy tail.
    parts = [make_policy(DISTRIBUTIONS[space], seed=seed) for seed in range(2)]
    observation = np.tile(np.random.default_rng(0).normal(size=3), (100_000, 1))
    action = parts[0].act(observation, np.random.default_rng(1))
    zeros, mask = np.zeros(len(action)), np.ones(len(action), dtype=bool)
    batch = Batch(observation, action, zeros, zeros, mask)
    old = parts[0].evaluate(batch)
    batch = Batch(observation, action, old.log_prob, zeros, mask, old.params)
    mixture = MixturePolicy(parts, [0.6, 0.4])
    # KL(old||new) with the same actions and without the control variate r - 1.
    plain = old.log_prob - mixture.evaluate(batch).log_prob
    estimate = mixture.kl(batch)
    spread = (estimate - plain).std() / math.sqrt(len(action))
    assert estimate.mean() > 0.01 and abs(estimate.mean() - plain.mean()) < 3.0 * spread


def frequencies(mixture: MixturePolicy, observation: Any, draws: int = 20_000) -> Any:
    """Actions [draws] of one state."""
    return mixture.act(np.tile(observation, (draws, 1)), np.random.default_rng(2))


def test_samples_are_as_frequent_as_the_mixture_says() -> None:
    parts = parts_of("categorical")
    mixture = MixturePolicy(parts, [0.5, 0.3, 0.2])
    for observation in np.random.default_rng(3).normal(size=(STATES, 3)):
        tables = [np.exp(part.predict(observation[None])[0][0]) for part in parts]
        expected = 0.5 * tables[0] + 0.3 * tables[1] + 0.2 * tables[2]
        counts = np.bincount(frequencies(mixture, observation), minlength=len(expected))
        assert stats.chisquare(counts, expected * counts.sum()).pvalue > 0.01


def test_two_choices_are_drawn_from_one_component() -> None:
    parts = parts_of("multi_categorical", 2)
    mixture = MixturePolicy(parts, [0.5, 0.5])
    observation = np.random.default_rng(4).normal(size=3)
    action = frequencies(mixture, observation)
    joint = np.zeros((2, 3))
    for part in parts:
        log_p = part.predict(observation[None])[0][0]
        joint += 0.5 * np.exp(log_p[:2, None] + log_p[None, 2:])
    counts = np.zeros((2, 3))
    np.add.at(counts, (action[:, 0], action[:, 1]), 1)
    assert stats.chisquare(counts.ravel(), (joint * counts.sum()).ravel()).pvalue > 0.01
    # Independent choices with the mixture's marginals are something else.
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    assert stats.chisquare(counts.ravel(), (product * counts.sum()).ravel()).pvalue < 1e-6


def flat_gaussian(mean: float, log_std: float, d: int = 1) -> MLPPolicy:
    """The same normal in every state."""
    rng = np.random.default_rng(0)
    family: Any = DISTRIBUTIONS["gaussian"]
    policy = MLPPolicy(3, replace(family, d=d), (), "tanh", rng, log_std, np.float64)
    policy.parameters[:-d] = 0.0
    policy.parameters[-2 * d : -d] = mean
    return policy


def test_samples_of_two_normals() -> None:
    parts = [flat_gaussian(-2.0, 0.0), flat_gaussian(3.0, math.log(0.5))]
    mixture = MixturePolicy(parts, [0.7, 0.3])
    action = frequencies(mixture, np.zeros(3))[:, 0]

    def cdf(x: Any) -> Any:
        return 0.7 * stats.norm.cdf(x, -2.0, 1.0) + 0.3 * stats.norm.cdf(x, 3.0, 0.5)

    assert stats.kstest(action, cdf).pvalue > 0.01
    assert stats.binomtest(int((action > 0.9).sum()), len(action), 0.3 + 0.7 * 0.0019).pvalue > 0.01


def test_the_mode() -> None:
    zeros = np.zeros((2, 3))
    wide, narrow = flat_gaussian(-2.0, 0.0, 2), flat_gaussian(3.0, -1.0, 2)
    close(MixturePolicy([wide, narrow]).act(zeros, None), np.full((2, 2), 3.0))
    close(MixturePolicy([wide, narrow], [0.99, 0.01]).act(zeros, None), np.full((2, 2), -2.0))
    # One choice: the most probable under the mixture, which need be no component's favourite.
    favourites = [[0.5, 0.0, 0.4, 0.1], [0.0, 0.5, 0.4, 0.1]]
    parts = [make_policy(Categorical(4), seed=seed) for seed in range(2)]
    for part, table in zip(parts, favourites, strict=True):
        part.parameters[:] = 0.0
        part.parameters[-4:] = np.log(np.array(table) + 1e-9)
    identical(MixturePolicy(parts).act(zeros, None), np.array([2, 2]))


@spaces
def test_one_component_is_that_policy(space: str) -> None:
    (only,) = parts_of(space, 1)
    batch, mixture = make_batch(only), MixturePolicy([only])
    for mine, theirs in zip(mixture.evaluate(batch)[:2], only.evaluate(batch)[:2], strict=True):
        identical(mine, theirs)
    identical(mixture.kl(batch), only.kl(batch))
    observation = batch.observation.reshape(-1, 3)
    for seed in (None, 5):
        rngs = [None if seed is None else np.random.default_rng(seed) for _ in range(2)]
        identical(mixture.act(observation, rngs[0]), only.act(observation, rngs[1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@spaces
def test_a_snapshot_is_put_back_bit_for_bit(space: str, dtype: Any) -> None:
    dist, rng = DISTRIBUTIONS[space], np.random.default_rng(0)
    parts = [MLPPolicy(3, dist, (4,), "tanh", rng, dtype=dtype) for _ in range(4)]
    mixture = MixturePolicy(parts[:1])
    for part in parts[1:]:
        mixture = mixture.with_component(part, 0.3)
    source = make_batch(make_policy(dist))
    fields = (source.observation, source.action, source.old_log_prob, source.advantage, source.mask)
    batch = Batch(*map(mixture.asarray, fields))
    for count in (1, 2, 4):
        other = MixturePolicy([MLPPolicy(3, dist, (4,), "tanh", rng, dtype=dtype)] * count)
        other.restore(mixture.snapshot())
        assert other.weights == mixture.weights and len(other.components) == 4
        identical(other.parameters, mixture.parameters)
        identical(other.snapshot(), mixture.snapshot())
        identical(other.evaluate(batch).log_prob, mixture.evaluate(batch).log_prob)
    single = MixturePolicy(parts[:1])
    mixture.restore(single.snapshot())
    identical(mixture.evaluate(batch).log_prob, single.evaluate(batch).log_prob)


def test_a_snapshot_of_a_torch_policy() -> None:
    mixture = MixturePolicy([lm_policy(0), lm_policy(1), lm_policy(2)], [0.1, 0.2, 0.7])
    other = MixturePolicy([lm_policy(3)])
    other.restore(mixture.snapshot().numpy())
    assert other.weights == mixture.weights
    identical(other.parameters, mixture.parameters)


def test_a_copy_is_independent_and_has_the_same_bits() -> None:
    rng, parts = np.random.default_rng(0), parts_of("categorical") * 3
    for _ in range(50):  # scaled once more, one in seven would change
        mixture = MixturePolicy(parts, rng.random(len(parts)).tolist())
        assert mixture.copy().weights == mixture.weights
    twin, before = mixture.copy(), mixture.snapshot()
    identical(twin.snapshot(), before)
    for part in twin.components:
        part.parameters += 1.0
    twin.weights[0] = 0.5
    identical(mixture.snapshot(), before)


def test_numbers_far_apart_stay_finite() -> None:
    terms = [np.array([-1e4, 0.0, -np.inf]), np.array([-2e4, -1e4, -3.0])]
    close(log_sum_exp(np, terms), [-1e4, 0.0, -3.0])
    close(log_sum_exp(xp_torch, list(map(torch.as_tensor, terms))), [-1e4, 0.0, -3.0])
    with np.errstate(divide="ignore"):
        assert log_sum_exp(np, [np.array([-np.inf])] * 2)[0] == -np.inf


def test_refusals() -> None:
    parts = parts_of("multi_categorical", 2)
    wrong = [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]]
    for components, weights in (([], None), *((parts, weights) for weights in wrong)):
        with pytest.raises(ValueError, match="one positive weight per component"):
            MixturePolicy(components, weights)
    mixture, batch = MixturePolicy(parts), make_batch(parts[0])
    with pytest.raises(ValueError, match="no parameters of the family"):
        mixture.predict(batch.observation.reshape(-1, 3))
    with pytest.raises(ValueError, match="cannot be estimated on old actions"):
        mixture.kl(batch, reverse=True)
    for call in (
        lambda: mixture.gradient_buffer,
        lambda: mixture.gradient(batch, np.zeros_like),
        lambda: mixture.fisher_product(batch),
        lambda: mixture.optimizer(1e-5),
    ):
        with pytest.raises(TypeError, match="a mixture of policies has no gradient"):
            call()
    assert isinstance(mixture.distribution, MultiCategorical)
