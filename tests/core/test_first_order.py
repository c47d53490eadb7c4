"""Minibatches, learning rate, gradient clip and early stop of the first-order rule."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, START, algorithm, make_batch, make_policy, objective_of
from closeness import close, identical

from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, Metrics, Progress
from redline.algorithms.core.updates import FirstOrder, require_finite
from redline.envs.policies import MLPPolicy

OBJECTIVE = objective_of(algorithm("ppo"), Penalties())


class Spy:
    """An optimiser that notes its gradients and takes plain steps along them."""

    def __init__(self, policy: MLPPolicy) -> None:
        self.policy = policy
        self.gradients: list[Any] = []
        self.rates: list[float] = []

    def step(self, lr: float) -> None:
        gradient = self.policy.gradient_buffer.copy()
        self.gradients.append(gradient)
        self.rates.append(lr)
        self.policy.parameters += lr * gradient


def update(
    rule: FirstOrder,
    policy: MLPPolicy,
    batch: Batch,
    progress: Progress = START,
) -> tuple[Spy, Metrics]:
    spy, rng = Spy(policy), np.random.default_rng(0)
    _, metrics = rule.update({"optimizer": spy}, policy, batch, OBJECTIVE, progress, rng)
    return spy, metrics


def flat(seed: int = 0, by: float = 0.2) -> tuple[MLPPolicy, Batch]:
    policy = make_policy(DISTRIBUTIONS["categorical"], seed=seed)
    return policy, make_batch(policy, shape=(23,), seed=seed + 1, by=by)


@pytest.mark.parametrize(("size", "steps"), [(None, 1), (23, 1), (99, 1), (10, 3), (1, 23)])
def test_every_epoch_takes_every_minibatch(size: int | None, steps: int) -> None:
    policy, batch = flat()
    spy, metrics = update(FirstOrder(0.01, epochs=3, minibatch_size=size), policy, batch)
    assert metrics["train/n_updates"] == len(spy.rates) == 3 * steps
    assert metrics["train/stopped_early"] == 0.0
    norms = [np.linalg.norm(gradient) for gradient in spy.gradients]
    close(metrics["train/grad_norm"], np.mean(norms))


def test_the_denominators_are_those_of_the_minibatch() -> None:
    policy, batch = flat()
    spy, _ = update(FirstOrder(0.0, minibatch_size=10), policy, batch)
    OBJECTIVE.gradient(policy, batch)
    sizes = np.array([10, 10, 3])[:, None] / 23.0
    close((np.array(spy.gradients) * sizes).sum(axis=0), policy.gradient_buffer, atol=1e-15)


@pytest.mark.parametrize(("decay", "expected"), [(False, 0.4), (True, 0.3)])
def test_the_learning_rate(decay: bool, expected: float) -> None:
    policy, batch = flat()
    rule = FirstOrder(0.4, lr_decay=decay, epochs=2)
    spy, metrics = update(rule, policy, batch, Progress(25, 100))
    close(spy.rates, [expected, expected])
    close(metrics["train/learning_rate"], expected)


@pytest.mark.parametrize("limit", [1e-3, 0.05, 1e6, None])
def test_the_gradient_is_clipped_by_its_norm(limit: float | None) -> None:
    policy, batch = flat()
    OBJECTIVE.gradient(policy, batch)
    whole = torch.tensor(policy.gradient_buffer)
    norm = float(whole.norm())
    spy, metrics = update(FirstOrder(0.0, max_grad_norm=limit), policy, batch)
    expected = torch.nn.Parameter(torch.zeros_like(whole))
    expected.grad = whole.clone()
    torch.nn.utils.clip_grad_norm_(expected, np.inf if limit is None else limit)
    close(spy.gradients[0], expected.grad)
    close(metrics["train/grad_norm"], norm)  # the norm before the clip


def test_a_gradient_that_is_not_finite_stops_before_the_step() -> None:
    policy, batch = flat()
    advantage = batch.advantage.copy()
    advantage[15] = np.nan
    order = np.random.default_rng(0).permutation(23)
    first = int(np.flatnonzero(order == 15)[0]) // 10
    spy, start = Spy(policy), policy.snapshot()
    rule = FirstOrder(0.01, minibatch_size=10)
    with pytest.raises(FloatingPointError, match="update was not applied"):
        rule.update(
            {"optimizer": spy},
            policy,
            batch.with_advantage(advantage),
            OBJECTIVE,
            Progress(0, 1),
            np.random.default_rng(0),
        )
    # Steps before the one at fault were sound; nothing of that one has reached the parameters.
    assert len(spy.rates) == first
    expected = start + 0.01 * np.sum(spy.gradients, axis=0) if first else start
    close(policy.parameters, expected, rtol=1e-12)
    assert np.isfinite(policy.parameters).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_message_names_what_is_not_finite(value: float) -> None:
    with pytest.raises(FloatingPointError, match="the gradient norm is"):
        require_finite("the gradient norm", value)
    require_finite("the gradient norm", 0.0)


class Counted(MLPPolicy):
    """Counts its passes."""

    passes = 0

    def gradient(self, *arguments: Any, **named: Any) -> None:
        self.passes += 1
        super().gradient(*arguments, **named)


@pytest.mark.parametrize("size", [None, 10])
def test_target_kl_ends_all_passes_before_the_step_that_crosses_it(size: int | None) -> None:
    policy, batch = flat(by=0.0)
    policy.__class__ = Counted
    rule = FirstOrder(0.2, epochs=50, minibatch_size=size, target_kl=1e-3)
    spy, metrics = update(rule, policy, batch)
    steps = len(spy.rates)
    assert metrics["train/stopped_early"] == 1.0 and metrics["train/n_updates"] == steps
    assert isinstance(policy, Counted) and policy.passes == steps + 1 and 1 < steps < 50
    if size is None:  # the policy is where the pass that stopped found it
        x = policy.evaluate(batch).log_prob - batch.old_log_prob
        assert np.mean(np.expm1(x) - x) > 1.5e-3


def test_padding_does_not_stop_a_pass() -> None:
    policy = make_policy(DISTRIBUTIONS["categorical"])
    batch = make_batch(policy, by=0.0)
    dirty = Batch(
        batch.observation,
        batch.action,
        np.where(batch.mask, batch.old_log_prob, -50.0),
        batch.advantage,
        batch.mask,
    )
    _, metrics = update(FirstOrder(0.01, target_kl=1e-3), policy, dirty)
    assert metrics["train/stopped_early"] == 0.0
    assert metrics["train/approx_kl"] == 0.0


def test_the_order_of_minibatches_comes_from_the_generator() -> None:
    results = []
    for seed in (0, 0, 1):
        policy, batch = flat()
        rule = FirstOrder(0.1, epochs=2, minibatch_size=5)
        rng = np.random.default_rng(seed)
        rule.update(rule.bind(policy)[1], policy, batch, OBJECTIVE, Progress(0, 1), rng)
        results.append(policy.snapshot())
    identical(results[0], results[1])
    assert (results[0] != results[2]).any()
