"""Gradients and steps of whole policies on random batches."""

import itertools
from typing import Any

import numpy as np
import pytest
from batches import (
    AGGREGATES,
    DISTRIBUTIONS,
    START,
    algorithm,
    make_batch,
    make_policy,
    objective_of,
)
from closeness import close
from hypothesis import given
from hypothesis import strategies as st

from redline.algorithms.core.aggregation import denominators
from redline.algorithms.core.natural import TrustRegion
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.core.types import Batch
from redline.envs.policies import MLPPolicy

spaces = pytest.mark.parametrize("space", DISTRIBUTIONS)
seeds = st.integers(0, 2**16)
BOUNDS = (0.8, 1.28)


def random_batch(space: str, seed: int, by: float = 0.2) -> tuple[MLPPolicy, Batch]:
    rng = np.random.default_rng(seed)
    policy = make_policy(DISTRIBUTIONS[space], seed=seed)
    shape = (int(rng.integers(1, 7)), int(rng.integers(1, 7)))
    batch = make_batch(policy, shape, seed=seed + 1, by=by)
    batch.mask[0, 0] = True
    return policy, batch


def gradient(policy: MLPPolicy, batch: Batch, kind: str, counts: Any) -> Any:
    """Of the clipped objective and an entropy bonus, with the denominators `counts`."""
    like, mask = batch.old_log_prob, batch.mask
    coefficient = AGGREGATES[kind].coefficient(np, mask=mask, like=like, counts=counts)

    def weigh(log_prob: Any) -> Any:
        weights = CLIPPED_RATIO.weights(
            np,
            log_prob=log_prob,
            old_log_prob=batch.old_log_prob,
            advantage=batch.advantage,
            mask=mask,
            bounds=BOUNDS,
        )
        return coefficient * weights.w

    policy.gradient(batch, weigh, entropy=0.1 * coefficient)
    return policy.gradient_buffer.copy()


@spaces
@given(seeds, st.sampled_from(sorted(AGGREGATES)), st.lists(st.integers(0, 6), max_size=3))
def test_gradients_of_micro_batches_add_up(
    space: str, seed: int, kind: str, cuts: list[int]
) -> None:
    policy, batch = random_batch(space, seed)
    counts = denominators(np, batch.mask)
    whole = gradient(policy, batch, kind, counts)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(batch)), len(batch)]
    parts = [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]
    total = sum(gradient(policy, batch.take(part), kind, counts) for part in parts)
    close(total, whole, rtol=1e-9, atol=1e-12)


@spaces
@given(seeds, st.randoms())
def test_rows_may_come_in_any_order(space: str, seed: int, random: Any) -> None:
    policy, batch = random_batch(space, seed)
    order = list(range(len(batch)))
    random.shuffle(order)
    objective = objective_of(algorithm("grpo"), Penalties(0.1, 0.2))
    objective.gradient(policy, batch)
    expected = policy.gradient_buffer.copy()
    objective.gradient(policy, batch.take(np.array(order)))
    close(policy.gradient_buffer, expected, rtol=1e-9, atol=1e-12)


@spaces
@given(seeds, st.sampled_from([1e-4, 0.01, 0.3]))
def test_no_trust_region_step_crosses_its_limit(space: str, seed: int, delta: float) -> None:
    policy, batch = random_batch(space, seed, by=0.0)
    objective, rng = objective_of(algorithm("trpo"), Penalties()), np.random.default_rng(0)
    value = objective.value(policy, batch, policy.evaluate(batch).log_prob)
    start = policy.snapshot()
    _, metrics = TrustRegion(delta).update({}, policy, batch, objective, START, rng)
    kl = policy.kl(batch)
    assert (kl >= -1e-15).all() and kl[batch.mask].mean() <= delta
    gain = objective.value(policy, batch, policy.evaluate(batch).log_prob) - value
    assert gain > 0.0 if metrics["train/step_accepted"] else (policy.parameters == start).all()


@spaces
@given(seeds, st.floats(0.0, 2.0))
def test_kl_is_0_at_equality_and_never_negative(space: str, seed: int, by: float) -> None:
    policy, batch = random_batch(space, seed, by=by)
    assert (policy.kl(batch) >= -1e-15).all()
    same = policy.evaluate(batch)
    assert not policy.distribution.kl(np, same.params, same.params).any()
