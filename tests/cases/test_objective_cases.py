"""Objectives and their minibatches as public reports describe them going wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import AGGREGATES, DISTRIBUTIONS, START, algorithm, make_policy, objective_of
from closeness import close, identical

from redline.algorithms.core.aggregation import denominators
from redline.algorithms.core.penalties import kl_estimate, kl_weight
from redline.algorithms.core.surrogates import CLIPPED_RATIO, SCORE_FUNCTION
from redline.algorithms.core.telemetry import approx_kl
from redline.algorithms.core.types import Batch
from redline.algorithms.core.updates import FirstOrder
from redline.envs.policies import MLPPolicy

BOUNDS = (0.8, 1.2)


def clipped(*, old_log_prob: Any, log_prob: Any, advantage: Any) -> tuple[Any, Any, Any]:
    """Objective, weight and ratio of PPO's surrogate."""
    arrays = {
        "log_prob": np.array(log_prob),
        "old_log_prob": np.array(old_log_prob),
        "advantage": np.array(advantage),
        "mask": np.ones(np.shape(log_prob), dtype=bool),
    }
    weights = CLIPPED_RATIO.weights(np, **arrays, bounds=BOUNDS)
    return CLIPPED_RATIO.objective(np, **arrays, bounds=BOUNDS), weights.w, weights.ratio


def test_case_7_shapes_that_would_broadcast_are_refused() -> None:
    # RITCHIEHuang/DeepRL_Algorithms#13: (2 - 1.1) / 2, not the mean of a 2 x 2 table.
    inputs = {"old_log_prob": [0.0, 0.0], "log_prob": np.log([1.0, 1.1])}
    objective, _, _ = clipped(**inputs, advantage=[2.0, -1.0])
    close(objective.mean(), 0.45)
    with pytest.raises(ValueError, match=r"one shape, got log_prob \(2,\), .*advantage \(2, 1\)"):
        clipped(**inputs, advantage=[[2.0], [-1.0]])


def test_case_26_the_old_log_prob_stays_where_it_was() -> None:
    # huggingface/trl#3120: e^0.3 = 1.349859.
    ratio = 1.349859
    for advantage, objective, weight in ((1.0, 1.2, 0.0), (-1.0, -ratio, -ratio)):
        actual = clipped(old_log_prob=[-1.0], log_prob=[-0.7], advantage=[advantage])
        for part, expected in zip(actual, (objective, weight, ratio), strict=True):
            close(part, np.array([expected]), rtol=1e-6)
    _, _, first = clipped(old_log_prob=[-1.0], log_prob=[-1.0], advantage=[1.0])
    assert first[0] == 1.0


def test_case_26_the_ratio_of_a_second_pass_is_not_1() -> None:
    policy, batch = small()
    ratios: list[Any] = []
    objective = objective_of(algorithm("ppo"))
    for _ in range(2):
        objective.gradient(policy, batch, lambda _, weights, __: ratios.append(weights.ratio))
        policy.parameters[:] = policy.parameters + 0.01 * policy.gradient_buffer
    identical(ratios[0], np.ones(5))
    assert (ratios[1] != 1.0).all()


def test_case_27_k3_and_its_direction() -> None:
    # huggingface/trl#2854.
    inputs = {
        "log_prob": np.array([-1.5, -1.0, -0.3]),
        "anchor_log_prob": np.array([-1, -1.5, -0.3]),
    }
    close(kl_estimate(np, "k3", **inputs), np.array([0.148721, 0.106531, 0.0]), rtol=5e-6)
    close(kl_weight(np, "k3", **inputs), np.array([-0.648721, 0.393469, 0.0]), rtol=2e-6)


# Sequence A holds 1 token with loss 4, B holds 3 with loss 1; padding holds 100.
LOSS = np.array([[4.0, 100.0, 100.0], [1.0, 1.0, 1.0]])
VALID = np.array([[True, False, False], [True, True, True]])


@pytest.mark.parametrize(
    ("kind", "expected"), [("token_mean", 1.75), ("seq_mean", 2.5), ("seq_sum", 3.5)]
)
def test_case_23_micro_batches_add_up(kind: str, expected: float) -> None:
    # huggingface/trl#2995; the mean of micro-batch means would give 2.5 for the token mean.
    counts = denominators(np, VALID)
    whole = np.sum(AGGREGATES[kind].coefficient(np, mask=VALID, like=LOSS, counts=counts) * LOSS)
    parts = [
        np.sum(AGGREGATES[kind].coefficient(np, mask=mask, like=loss, counts=counts) * loss)
        for mask, loss in ((VALID[:1], LOSS[:1]), (VALID[1:], LOSS[1:]))
    ]
    close(whole, expected)
    close(sum(parts), expected)


@pytest.mark.parametrize(("kind", "expected"), [("token_mean", 0.5), ("seq_mean", 0.0)])
def test_case_23_the_loss_of_a_first_step_may_be_0(kind: str, expected: float) -> None:
    advantage = np.where(VALID, np.array([[1.0], [-1.0]]), 0.0)
    counts = denominators(np, VALID)
    coefficient = AGGREGATES[kind].coefficient(np, mask=VALID, like=LOSS, counts=counts)
    inputs = {"log_prob": -LOSS, "old_log_prob": -LOSS, "advantage": advantage, "mask": VALID}
    objective = CLIPPED_RATIO.objective(np, **inputs, bounds=BOUNDS)
    close(-np.sum(coefficient * objective), expected, atol=1e-15)
    w = SCORE_FUNCTION.weights(np, **inputs).w
    assert (coefficient * w)[VALID].all()


def small(difference: Any = 0.0) -> tuple[MLPPolicy, Batch]:
    """Five elements whose log-probabilities lie `difference` above the old ones."""
    policy = make_policy(DISTRIBUTIONS["categorical"])
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(5, 3))
    zeros = np.zeros(5)
    batch = Batch(observation, rng.integers(0, 4, 5), zeros, zeros, zeros == 0.0)
    log_prob = policy.evaluate(batch).log_prob
    advantage = np.array([2.0, 2.0, 2.0, 2.0, 7.0])
    return policy, Batch(observation, batch.action, log_prob - difference, advantage, batch.mask)


def test_case_11_the_estimate_that_stops_is_never_negative() -> None:
    # openai/spinningup#137: k1 would be -0.2.
    close(approx_kl(np.array([0.1, 0.3])), 0.0275149, rtol=2e-6)
    close(
        kl_estimate(np, "k1", log_prob=np.zeros(2), anchor_log_prob=np.array([0.1, 0.3])).mean(),
        -0.2,
    )


@pytest.mark.parametrize(("target_kl", "stops"), [(0.015, True), (0.019, False)])
def test_case_11_the_check_comes_before_the_step(target_kl: float, stops: bool) -> None:
    # 1.5 * 0.015 = 0.0225 < 0.0275 < 0.0285 = 1.5 * 0.019
    policy, batch = small(np.array([0.1, 0.3, 0.1, 0.3, 0.2]))
    batch = batch.take(slice(0, 4))
    start = policy.snapshot()
    rule = FirstOrder(1e-3, target_kl=target_kl)
    objective, rng = objective_of(algorithm("ppo")), np.random.default_rng(0)
    _, metrics = rule.update(rule.bind(policy)[1], policy, batch, objective, START, rng)
    assert metrics["train/stopped_early"] == stops
    assert metrics["train/n_updates"] == (not stops)
    assert (policy.parameters == start).all() == stops


class Watched(MLPPolicy):
    """A policy that notes the advantages of every minibatch."""

    def gradient(self, batch: Batch, *arguments: Any, **named: Any) -> None:
        self.seen.append(batch.advantage)
        super().gradient(batch, *arguments, **named)


def test_case_6_every_sample_is_seen_when_the_last_minibatch_has_one() -> None:
    # DLR-RM/stable-baselines3#325: five samples in minibatches of four.
    policy, batch = small()
    policy.__class__ = Watched
    policy.seen = []
    objective = replace(objective_of(algorithm("ppo")), standardise=True)
    rule, rng = FirstOrder(1e-3, epochs=8, minibatch_size=4), np.random.default_rng(0)
    rule.update(rule.bind(policy)[1], policy, batch, objective, START, rng)
    sizes = [len(part) for part in policy.seen]
    assert sizes == [4, 1] * 8
    # Alone, an advantage has no spread and is taken as it is; equal ones say nothing.
    assert {float(part[0]) for part in policy.seen[1::2]} == {2.0, 7.0}
    for four, alone in zip(policy.seen[::2], policy.seen[1::2], strict=True):
        assert not four.any() if alone[0] == 7.0 else four.any()
    assert np.isfinite(policy.parameters).all()
