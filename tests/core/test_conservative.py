"""Conservative policy iteration, mixture form: the step, who judges, the search."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from batches import (
    DISTRIBUTIONS,
    START,
    algorithm,
    make_batch,
    make_policy,
    mixture_start,
    objective_of,
)
from closeness import close, identical

from redline.algorithms.core.conservative import (
    ConservativeMixture,
    Distillation,
    conservative_step,
)
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, Metrics
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.cpi import CPI
from redline.envs.policies import MLPPolicy

STEPS = FirstOrder(lr=0.02, epochs=10)
OBJECTIVE = objective_of(algorithm("cpi"), Penalties())
spaces = pytest.mark.parametrize("space", DISTRIBUTIONS)


@pytest.mark.parametrize(
    ("gain", "eps", "gamma", "horizon", "alpha"),
    [
        (0.1, 1.0, 0.9, None, 0.1 * 0.1 / 3.6),  # (1 - gamma) Abar / (4 gamma eps)
        (0.396, 1.0, 0.99, None, 0.001),
        (0.2, 0.1, 0.5, None, 0.5),
        (2.0, 0.1, 0.5, None, 1.0),  # 5 is capped
        (0.1, 1.0, 0.9, 5, 0.1 * 0.1 / 3.6),  # the horizon counts without a discount only
        (0.1, 1.0, 1.0, 51, 0.001),  # Abar / (2 eps (T - 1))
        (10.0, 1.0, 1.0, 3, 1.0),
        (1e-9, 1.0, 1.0, 1, 1.0),  # one step: nothing follows, so greed has no price
        (1e-9, 1.0, 0.0, None, 1.0),
        (1e-9, 0.0, 0.9, None, 1.0),
        (0.0, 1.0, 0.9, None, 0.0),
        (-0.3, 1.0, 0.9, None, 0.0),
        (float("nan"), 1.0, 0.9, None, 0.0),
    ],
)
def test_the_step(gain: float, eps: float, gamma: float, horizon: int | None, alpha: float) -> None:
    close(conservative_step(gain, eps, gamma, horizon), alpha, rtol=1e-12)


def updated(
    rule: ConservativeMixture,
    policy: MixturePolicy,
    batch: Batch,
    seed: int = 0,
) -> tuple[MixturePolicy, Metrics]:
    rng = np.random.default_rng(seed)
    result, metrics = rule.update(rule.bind(policy)[1], policy, batch, OBJECTIVE, START, rng)
    assert isinstance(result, MixturePolicy)
    return result, metrics


@spaces
def test_the_new_policy_is_the_mixture_that_the_metrics_describe(space: str) -> None:
    policy, batch = mixture_start(space)
    mixture, metrics = updated(ConservativeMixture(STEPS, 0.9), policy, batch)
    alpha = metrics["train/mixture_alpha"]
    assert 0.0 < alpha < 1.0 and metrics["train/step_accepted"] == 1.0
    gain, eps = metrics["train/policy_advantage"], np.abs(batch.advantage).max()
    close(alpha, 0.1 * gain / (3.6 * eps), rtol=1e-9)
    assert metrics["train/mixture_alpha_bound"] == alpha
    assert metrics["train/mixture_components"] == 2.0
    close(mixture.weights, [1.0 - alpha, alpha])
    assert mixture.components[0] is policy.components[0]
    new, old = (part.evaluate(batch).log_prob for part in reversed(mixture.components))
    expected = np.log((1.0 - alpha) * np.exp(old) + alpha * np.exp(new))
    close(mixture.evaluate(batch).log_prob, expected, rtol=1e-10)


class Spy(ConservativeMixture):
    """Notes which elements train and which judge."""

    seen: ClassVar[list[Batch]] = []

    def _split(self, batch: Batch, rng: np.random.Generator) -> tuple[Batch, Batch]:
        judging, training = super()._split(batch, rng)
        type(self).seen = [judging, training]
        return judging, training


def test_the_new_policy_is_judged_on_what_it_was_not_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, batch = mixture_start("gaussian", rows=100)
    trained, plain = [], MLPPolicy.gradient

    def spy(self: Any, part: Batch, *args: Any, **kwargs: Any) -> None:
        trained.extend(part.old_log_prob)
        plain(self, part, *args, **kwargs)

    monkeypatch.setattr(MLPPolicy, "gradient", spy)
    steps = replace(STEPS, minibatch_size=16)
    mixture, metrics = updated(Spy(steps, 0.9, holdout=0.3), policy, batch)
    judging, training = Spy.seen
    assert len(judging) == 30 and set(trained) == set(training.old_log_prob)
    assert not set(judging.old_log_prob) & set(trained)
    assert set(judging.old_log_prob) | set(trained) == set(batch.old_log_prob)
    ratio = np.exp(mixture.newest.evaluate(judging).log_prob - judging.old_log_prob)
    close(metrics["train/policy_advantage"], ((ratio - 1.0) * judging.advantage).mean(), rtol=1e-9)


def test_noise_is_no_advantage() -> None:
    gains, flattered = [], []
    for seed in range(20):
        policy = MixturePolicy([make_policy(DISTRIBUTIONS["categorical"], seed=seed)])
        batch = make_batch(policy.newest, shape=(60,), seed=seed + 1, by=0.0)
        mixture, metrics = updated(Spy(replace(STEPS, epochs=60), 0.9), policy, batch, seed)
        gains.append(metrics["train/policy_advantage"])
        if metrics["train/step_accepted"]:
            training = Spy.seen[1]
            ratio = np.exp(mixture.newest.evaluate(training).log_prob - training.old_log_prob)
            flattered.append(float(((ratio - 1.0) * training.advantage).mean()))
    assert np.mean(flattered) > 0.3
    assert abs(np.mean(gains)) < 3.0 * np.std(gains) / np.sqrt(len(gains))


@pytest.mark.parametrize("alpha", ["bound", "line_search"])
@spaces
def test_without_an_advantage_every_bit_stays(space: str, alpha: Any) -> None:
    policy, batch = mixture_start(space)
    policy = policy.with_component(policy.newest.copy(), 0.3)
    before = policy.snapshot()
    # Trained uphill on one half of the elements, judged on the other half with the sign turned.
    rule = Spy(STEPS, 0.9, alpha=alpha, holdout=0.5)
    updated(rule, policy, batch)
    judges = np.isin(batch.old_log_prob, Spy.seen[0].old_log_prob)
    turned = replace(batch, advantage=np.where(judges, -batch.advantage, batch.advantage))
    result, metrics = updated(rule, policy, turned)
    assert result is policy
    identical(result.snapshot(), before)
    assert metrics["train/policy_advantage"] < 0.0
    for name in ("step_accepted", "mixture_alpha", "mixture_alpha_bound"):
        assert metrics[f"train/{name}"] == 0.0
    assert metrics["train/mixture_components"] == 2.0


@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.3])
@spaces
def test_the_search_takes_the_largest_candidate_within_delta(space: str, delta: float) -> None:
    policy, batch = mixture_start(space)
    rule = ConservativeMixture(STEPS, 0.99, alpha="line_search", delta=delta)
    mixture, metrics = updated(rule, policy, batch)
    alpha = metrics["train/mixture_alpha"]
    assert mixture.kl(batch).mean() <= delta and metrics["train/step_accepted"] == 1.0
    surest = 1.0 - np.exp(-delta)
    larger = [x for x in (surest, *(0.8**k for k in range(100))) if x > alpha * (1.0 + 1e-9)]
    if larger:
        tried = policy.with_component(mixture.newest, min(larger))
        assert tried.kl(batch).mean() > delta
    else:
        assert alpha == 1.0


def test_the_search_may_take_the_new_policy_alone() -> None:
    policy, batch = mixture_start("categorical")
    rule = ConservativeMixture(STEPS, 0.99, alpha="line_search", delta=10.0)
    mixture, metrics = updated(rule, policy, batch)
    assert metrics["train/mixture_alpha"] == 1.0 and mixture.weights == [1.0]
    assert metrics["train/mixture_components"] == 1.0


def test_the_search_goes_on_where_an_estimate_passes_the_limit_of_the_exact_kl() -> None:
    # A new policy that is far more likely at the actions at hand than it can be on average.
    policy = MixturePolicy([make_policy(DISTRIBUTIONS["gaussian"])])
    rule = ConservativeMixture(STEPS, 0.9, alpha="line_search", delta=0.01)
    narrow = make_policy(DISTRIBUTIONS["gaussian"])
    narrow.parameters[-2:] = -5.0
    batch = make_batch(policy.newest, shape=(4,), by=0.0)
    batch = replace(batch, action=narrow.act(batch.observation, None))
    batch = replace(batch, old_log_prob=policy.evaluate(batch).log_prob)
    surest = 1.0 - np.exp(-0.01)
    assert policy.with_component(narrow, surest).kl(batch).mean() > 0.01
    alpha = rule._search(policy, narrow, batch, 1.0)
    assert 0.0 < alpha < surest
    assert policy.with_component(narrow, alpha).kl(batch).mean() <= 0.01


@spaces
def test_a_larger_mixture_is_distilled(space: str) -> None:
    policy, batch = mixture_start(space)
    rule = ConservativeMixture(
        STEPS, 0.9, alpha="line_search", max_components=3, distillation=Distillation(epochs=10)
    )
    components, logged = [], []
    for seed in range(6):
        batch = replace(batch, old_log_prob=policy.evaluate(batch).log_prob)
        batch = replace(batch, reference=policy.evaluate(batch).params)
        policy, metrics = updated(rule, policy, batch, seed)
        assert len(policy.components) == metrics["train/mixture_components"]
        components.append(len(policy.components))
        logged.append(any("distillation_kl" in name for name in metrics))
    assert max(components) == 3 and 1 in components
    assert [count == 1 for count in components] == logged


def test_refusals() -> None:
    for settings, message in (
        ({"gamma": 1.0}, "infinite at gamma 1; give --horizon"),
        ({"gamma": 1.0, "horizon": 0, "alpha": "line_search"}, "horizon must be at least 1"),
        ({"gamma": 1.0, "horizon": 0}, "horizon must be at least 1"),
        ({"holdout": 0.0}, "holdout must lie between 0 and 1"),
        ({"holdout": 1.0}, "holdout must lie between 0 and 1"),
        ({"max_components": 1}, "max_components must be at least 2"),
        ({"delta": 0.0}, "delta must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            CPI(**settings).build()  # type: ignore[arg-type]
    CPI(gamma=1.0, horizon=500).build()
    policy, batch = mixture_start("categorical")
    with pytest.raises(ValueError, match="two elements"):
        updated(ConservativeMixture(STEPS, 0.9), policy, batch.take(slice(0, 1)))
    updated(ConservativeMixture(STEPS, 0.9), policy, batch.take(slice(0, 2)))


def test_a_line_search_needs_no_horizon_and_then_logs_no_bound() -> None:
    policy, batch = mixture_start("categorical")
    for horizon, logged in ((None, False), (500, True)):
        rule = CPI(gamma=1.0, alpha="line_search", horizon=horizon).build().update
        _, metrics = updated(rule, policy, batch)
        assert ("train/mixture_alpha_bound" in metrics) == logged
        assert 0.0 < metrics["train/mixture_alpha"] <= 1.0
