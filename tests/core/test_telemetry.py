"""Reported numbers, each worked by hand on a few elements."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import algorithm, make_batch, make_policy, make_rollout, objective_of
from closeness import close

from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.surrogates import Weights
from redline.algorithms.core.telemetry import (
    Recorder,
    after_update,
    approx_kl,
    explained_variance,
    group_spread,
    sampling_gap,
)
from redline.algorithms.core.types import Batch, Evaluation

LIBRARIES = {"numpy": np.asarray, "torch": torch.as_tensor}
libraries = pytest.mark.parametrize("library", LIBRARIES)


def record(recorder: Recorder, library: str, *, log_ratio: Any, keep: Any, advantage: Any) -> None:
    """One pass over flat elements."""
    to = LIBRARIES[library]
    log_ratio, keep, advantage = map(np.asarray, (log_ratio, keep, advantage))
    old = np.full(log_ratio.shape, -1.0)
    batch = Batch(to(old), to(old), to(old), to(advantage), to(old < 0.0))
    weights = Weights(to(old), to(keep), to(old))
    recorder.record(batch, weights, to(old + log_ratio))


@libraries
def test_shares_are_pooled_over_the_passes(library: str) -> None:
    # 2 of 10 and 3 of 5: 5 / 15, where the mean of the shares is 0.4 (huggingface/trl#6380).
    recorder = Recorder()
    keep = np.ones(10, dtype=bool)
    keep[[3, 7]] = False
    advantage = np.where(np.arange(10) == 3, -1.0, 1.0)
    record(recorder, library, log_ratio=np.full(10, 0.1), keep=keep, advantage=advantage)
    keep = np.array([False, True, False, False, True])
    record(recorder, library, log_ratio=np.full(5, 0.3), keep=keep, advantage=np.ones(5))
    recorder.grad_norm += [1.0, 2.0]
    metrics = recorder.metrics()
    close(metrics["train/clip_fraction"], 1.0 / 3.0)
    close(metrics["train/clip_fraction_low"], 1.0 / 15.0)
    close(metrics["train/clip_fraction_high"], 4.0 / 15.0)
    k3 = [np.exp(x) - 1.0 - x for x in (0.1, 0.3)]
    close(metrics["train/approx_kl"], (10.0 * k3[0] + 5.0 * k3[1]) / 15.0, rtol=1e-9)
    assert metrics["train/grad_norm"] == 1.5


@libraries
def test_padding_is_not_recorded(library: str) -> None:
    to = LIBRARIES[library]
    mask = np.array([[True, True, False], [True, False, False]])
    garbage = np.where(mask, 0.0, 1e6)
    batch = Batch(to(garbage), to(garbage), to(garbage), to(1.0 + garbage), to(mask))
    keep = np.array([[True, False, False], [True, False, False]])
    recorder = Recorder()
    recorder.record(batch, Weights(to(garbage), to(keep), to(garbage)), to(-garbage))
    metrics = recorder.metrics()
    close(metrics["train/clip_fraction"], 1.0 / 3.0)
    assert metrics["train/approx_kl"] == 0.0


@libraries
def test_rows_that_were_not_read_count_in_the_shares(library: str) -> None:
    # Row 0 was read: 1 of its 2 elements is clipped, which is 1 of the step's 3.
    to = LIBRARIES[library]
    mask = np.array([[True, True, False], [True, False, False]])
    old = np.where(mask, -1.0, 1e6)
    batch = Batch(to(old), to(old), to(old), to(np.array([[1.0], [0.0]]) + 0.0 * old), to(mask))
    read = batch.take(slice(0, 1))
    keep = np.array([[True, False, False]])
    recorder = Recorder()
    recorder.record(read, Weights(read.mask, to(keep), read.mask), to(old[:1] + 0.2), of=batch)
    metrics = recorder.metrics()
    close(metrics["train/clip_fraction"], 1.0 / 3.0)
    close(metrics["train/approx_kl"], np.exp(0.2) - 1.2, rtol=1e-6)


@libraries
def test_approx_kl(library: str) -> None:
    close(approx_kl(LIBRARIES[library](np.array([0.1, 0.3]))), 0.0275149, rtol=2e-6)
    close(approx_kl(LIBRARIES[library](np.array([-0.1, -0.3]))), 0.0228278, rtol=2e-6)
    assert approx_kl(np.zeros(0)) == 0.0


@libraries
def test_what_the_learner_and_the_sampler_disagree_on(library: str) -> None:
    to = LIBRARIES[library]
    mask = np.array([[True, True, True], [True, False, False]])
    log_prob = np.log(np.array([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]))
    reported = np.log(np.array([[0.5, 0.6, 0.65], [0.4, 0.1, 0.1]]))
    # Ratios 1, 0.83, 0.77 and 1.25 (the other two are padding): two of four lie outside.
    assert sampling_gap(to(log_prob), to(reported), mask) == {"rollout/outside_band": 0.5}


def test_the_spread_within_groups_by_hand() -> None:
    reward = np.array([[0.0, 1.0], [3.0, 9.0], [2.0, 0.0], [2.0, 0.0]])
    mask = np.array([[True, True], [True, False], [True, True], [True, True]])
    rollout = make_rollout(reward, mask, group_of_episode=np.array([0, 0, 1, 1]))
    # Paid 1 and 3 in the first group (std 1), 2 and 2 in the second.
    assert group_spread(rollout) == {"rollout/group_std": 0.5, "rollout/group_mixed": 0.5}


@libraries
def test_after_an_update(library: str) -> None:
    to = LIBRARIES[library]
    mask = np.array([[True, True, True], [True, False, False]])
    ratio = np.array([[0.5, 1.0, 1.5], [4.0, 1e6, 1e6]])
    advantage = np.array([[1.0, -1.0, 2.0], [0.0, 1e6, 1e6]])
    kl = np.array([[0.1, 0.0, 0.2], [0.5, 1e6, 1e6]])
    entropy = np.array([[1.0, 1.0, 2.0], [2.0, 1e6, 1e6]])
    old = np.full(mask.shape, -1.0)
    family = (to(old),)  # what it holds is of no account here
    batch = Batch(to(old), to(old), to(old), to(advantage), to(mask), family)
    evaluation = Evaluation(to(old + np.log(ratio)), to(entropy), family)
    expected = {
        "train/kl": 0.2,
        "train/kl_max": 0.5,
        "train/outside_band": 0.75,  # 0.5, 1.5 and 4
        "train/ratio_mean": 1.75,
        "train/ratio_std": np.sqrt(1.8125),  # (1.25^2 + 0.75^2 + 0.25^2 + 2.25^2) / 4
        "train/ratio_max": 4.0,
        "train/expected_gain": 0.625,  # (0.5 - 1 + 3 + 0) / 4
        "train/advantage_mean": 0.5,
        "train/advantage_std": np.sqrt(1.25),
        "train/advantage_negative": 0.25,
        "train/effective_sample_size": 49.0 / 78.0,  # 7^2 / (4 (0.25 + 1 + 2.25 + 16))
        "train/entropy": 1.5,
        "train/ratio_p1": 0.515,  # 0.03 of the way from 0.5 to 1
        "train/ratio_p5": 0.575,
        "train/ratio_p50": 1.25,
        "train/ratio_p90": 3.25,  # 0.7 of the way from 1.5 to 4
        "train/ratio_p95": 3.625,
        "train/ratio_p99": 3.925,
    }
    actual = after_update(batch, evaluation, to(kl))
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        close(actual[key], value, rtol=1e-9)


def test_advantages_are_those_of_the_whole_batch_where_a_part_is_looked_at() -> None:
    zeros, ratio = np.zeros(4), np.array([1.5, 1.0, 1.0, 1.0])
    advantage = np.array([2.0, 0.0, -1.0, -3.0])
    whole = Batch(zeros, zeros, zeros, advantage, zeros == 0.0)
    part, rows = whole.take(slice(None, None, 2)), slice(None, None, 2)
    evaluation = Evaluation(np.log(ratio)[rows], zeros[rows], ())
    found = after_update(part, evaluation, zeros[rows], whole)
    assert (found["train/advantage_mean"], found["train/advantage_negative"]) == (-0.5, 0.5)
    close(found["train/advantage_std"], advantage.std())
    # E[A] = -0.5 over all, E[(r - 1) A] = (0.5 * 2 + 0) / 2 over the part.
    close(found["train/expected_gain"], 0.0, atol=1e-12)
    assert found["train/ratio_mean"] == 1.25


@pytest.mark.parametrize("name", ["ppo", "gspo", "reinforce"])
def test_the_objective_of_a_batch_from_some_of_its_rows(name: str) -> None:
    policy = make_policy(Categorical(4))
    batch, objective = make_batch(policy, (8, 5)), objective_of(algorithm(name))
    log_prob, rows = policy.evaluate(batch).log_prob, slice(None, None, 2)
    everything = objective.value(policy, batch, log_prob)
    assert objective.value_from(policy, batch, slice(None), log_prob) == everything
    # The rows that are not looked at stay as they were.
    still = np.where(np.arange(8)[:, None] % 2 == 0, log_prob, batch.old_log_prob)
    some = batch.with_advantage(np.where(batch.mask, batch.advantage, 0.0))
    half = objective.value_from(policy, some, rows, log_prob[rows])
    at_start = objective.value(policy, some, batch.old_log_prob)
    share = (half - at_start) / (objective.value(policy, some, still) - at_start)
    counts = batch.mask.sum(), batch.mask[rows].sum()
    expected = {"ppo": counts[0] / counts[1], "gspo": 2.0, "reinforce": counts[0] / counts[1]}
    close(share, expected[name], rtol=1e-6)


def test_quantiles_are_numpys() -> None:
    log_ratio = np.random.default_rng(0).normal(size=37)
    zeros = np.zeros(37)
    batch = Batch(zeros, zeros, zeros, zeros, zeros == 0.0)
    metrics = after_update(batch, Evaluation(log_ratio, zeros, ()), zeros)
    for q in (1, 5, 50, 90, 95, 99):
        close(metrics[f"train/ratio_p{q}"], np.percentile(np.exp(log_ratio), q))


def test_an_enormous_ratio_still_gives_numbers() -> None:
    zeros, log_ratio = np.zeros(2), np.array([900.0, -900.0])
    batch = Batch(zeros, zeros, zeros, zeros, zeros == 0.0)
    metrics = after_update(batch, Evaluation(log_ratio, zeros, ()), zeros)
    assert np.isfinite(list(metrics.values())).all() and metrics["train/ratio_max"] > 1e100
    recorder = Recorder()
    recorder.record(batch, Weights(zeros, zeros == 0.0, zeros), log_ratio)
    assert recorder.metrics()["train/approx_kl"] > 1e100
    assert np.isfinite(list(recorder.metrics().values())).all()


def test_explained_variance() -> None:
    returns = np.array([[1.0, 2.0, 3.0, 1e6]])
    mask = np.array([[True, True, True, False]])
    for value, expected in (
        ([1.0, 2.0, 3.0], 1.0),
        ([9.0, 10.0, 11.0], 1.0),  # a constant offset is no variance
        ([2.0, 2.0, 2.0], 0.0),
        ([1.5, 2.0, 2.5], 0.75),
        ([3.0, 2.0, 1.0], -3.0),
    ):
        actual = explained_variance(value=np.array([[*value, 0.0]]), returns=returns, mask=mask)
        close(actual, expected, atol=1e-15)
    constant = np.where(mask, 5.0, returns)
    assert np.isnan(explained_variance(value=returns, returns=constant, mask=mask))
