"""Natural gradient and trust region: what a step satisfies, what a refused one leaves behind."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from batches import (
    DISTRIBUTIONS,
    START,
    algorithm,
    make_batch,
    make_policy,
    objective_of,
)
from closeness import close, identical
from torch_reference import reference

from redline.algorithms.core.curvature import dense_matrix
from redline.algorithms.core.natural import FisherSolve, NaturalGradient, TrustRegion
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import RATIO, Elements, Surrogate
from redline.algorithms.core.types import Batch, Metrics, Progress
from redline.envs.policies import MLPPolicy

SPACES = tuple(DISTRIBUTIONS)
EXACT = FisherSolve(cg_iterations=400, damping=1e-4)
SEEDS = range(4)
OBJECTIVE = objective_of(algorithm("trpo"), Penalties())
Rule = NaturalGradient | TrustRegion


def update(
    rule: Rule,
    policy: MLPPolicy,
    batch: Batch,
    objective: Objective = OBJECTIVE,
    progress: Progress = START,
) -> Metrics:
    """One update; the rule must hand back the policy that it was given."""
    rng = np.random.default_rng(0)
    result, metrics = rule.update(rule.bind(policy)[1], policy, batch, objective, progress, rng)
    assert result is policy
    return metrics


def step_of(
    rule: Rule, space: str = "gaussian", seed: int = 0, **settings: Any
) -> tuple[Any, MLPPolicy, Batch, Metrics]:
    """The change of the parameters by one update, on policy."""
    policy = make_policy(DISTRIBUTIONS[space], seed=seed)
    batch = make_batch(policy, seed=seed + 1, by=0.0)
    start = policy.snapshot()
    metrics = update(rule, policy, batch, **settings)
    step = policy.parameters - start
    policy.restore(start)
    return step, policy, batch, metrics


def gain(policy: MLPPolicy, batch: Batch, step: Any) -> float:
    """Mean of (r - 1) A over the valid elements."""
    start = policy.snapshot()
    policy.restore(start + step)
    ratio = np.exp(policy.evaluate(batch).log_prob - batch.old_log_prob)
    policy.restore(start)
    return float(((ratio - 1.0) * batch.advantage)[batch.mask].mean())


def true_kl(policy: MLPPolicy, batch: Batch, step: Any) -> float:
    """Mean KL(old||new) over the valid elements, by torch."""
    observation = batch.observation[batch.mask]
    old = reference(policy, torch.tensor(policy.parameters), observation)
    new = reference(policy, torch.tensor(policy.parameters + step), observation)
    return float(old.kl_to(new).mean())


@pytest.mark.parametrize("solver", ["cg", "dense"])
@pytest.mark.parametrize("damping", [1e-3, 0.1])
@pytest.mark.parametrize("space", SPACES)
def test_a_natural_step_has_quadratic_kl_delta(space: str, damping: float, solver: Any) -> None:
    rule = NaturalGradient(0.02, fisher=FisherSolve(solver, 400, damping))
    step, policy, batch, metrics = step_of(rule, space)
    fisher = dense_matrix(policy.fisher_product(batch), policy.parameters)
    damped = fisher + damping * np.eye(len(step))
    close(0.5 * step @ damped @ step, 0.02, rtol=1e-9)
    OBJECTIVE.gradient(policy, batch)
    residual = damped @ (step / metrics["train/step_size"]) - policy.gradient_buffer
    # Conjugate gradient stops at a relative residual of 1e-5.
    limit = 1e-12 if solver == "dense" else 1e-5
    assert np.linalg.norm(residual) <= limit * np.linalg.norm(policy.gradient_buffer)
    assert metrics["train/step_accepted"] == 1.0


def test_a_fixed_step_is_a_multiple_of_the_natural_direction() -> None:
    rule = NaturalGradient(step_size=0.05, fisher=FisherSolve("dense", damping=0.1))
    step, policy, batch, metrics = step_of(rule)
    fisher = dense_matrix(policy.fisher_product(batch), policy.parameters)
    OBJECTIVE.gradient(policy, batch)
    direction = np.linalg.solve(fisher + 0.1 * np.eye(len(step)), policy.gradient_buffer)
    close(step, 0.05 * direction, rtol=1e-9, atol=1e-12)
    assert metrics["train/step_size"] == 0.05


@pytest.mark.parametrize("space", SPACES)
def test_the_dense_solver_is_cg_with_many_iterations(space: str) -> None:
    steps = [
        step_of(TrustRegion(fisher=replace(EXACT, solver=solver)), space)[0]
        for solver in ("cg", "dense")
    ]
    assert np.linalg.norm(steps[0] - steps[1]) <= 1e-3 * np.linalg.norm(steps[1])


def test_delta_may_fall_over_the_run() -> None:
    rule = NaturalGradient(0.02, delta_decay=True, fisher=EXACT)
    whole, _, _, _ = step_of(rule)
    late, _, _, _ = step_of(rule, progress=Progress(75, 100))
    close(late, 0.5 * whole, rtol=1e-9)  # sqrt(1/4)
    for spent in (rule, TrustRegion(delta_decay=True)):
        none, _, _, metrics = step_of(spent, progress=Progress(100, 100))
        assert not none.any() and metrics["train/step_accepted"] == 0.0


@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.5])
@pytest.mark.parametrize("space", SPACES)
def test_the_true_kl_of_a_trust_region_step_is_within_delta(space: str, delta: float) -> None:
    accepted = 0.0
    for seed in SEEDS:
        for fisher in (FisherSolve(), EXACT):
            step, policy, batch, metrics = step_of(TrustRegion(delta, fisher=fisher), space, seed)
            accepted += metrics["train/step_accepted"]
            assert step.any() == metrics["train/step_accepted"]
            assert true_kl(policy, batch, step) <= delta * (1.0 + 1e-9)
    assert accepted >= len(SEEDS)


@pytest.mark.parametrize("space", SPACES)
def test_a_trust_region_step_gains_what_it_reports(space: str) -> None:
    step, policy, batch, metrics = step_of(TrustRegion(0.05), space, seed=20)
    close(metrics["train/surrogate_gain"], gain(policy, batch, step), rtol=1e-9)
    assert metrics["train/surrogate_gain"] > 0.0
    fraction = metrics["train/line_search_fraction"]
    close(fraction, 0.8 ** round(np.log(fraction) / np.log(0.8)))


@pytest.mark.parametrize("space", SPACES)
def test_the_gain_on_a_stale_rollout_is_over_the_policy_as_it_is(space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=21)
    stale = make_batch(policy, seed=22, by=0.3)
    batch = replace(stale, reference=policy.evaluate(stale).params)
    before = OBJECTIVE.value(policy, batch, policy.evaluate(batch).log_prob)
    metrics = update(TrustRegion(), policy, batch)
    after = OBJECTIVE.value(policy, batch, policy.evaluate(batch).log_prob)
    close(metrics["train/surrogate_gain"], after - before, rtol=1e-9)


@pytest.mark.parametrize("space", SPACES)
def test_a_step_that_the_limit_forbids_is_shortened(space: str) -> None:
    fractions = []
    for seed in SEEDS:
        rule = TrustRegion(0.05, fisher=EXACT)
        step, policy, batch, metrics = step_of(rule, space, seed)
        fraction = metrics["train/line_search_fraction"]
        if fraction < 1.0:  # the candidate before crossed the line, or gained nothing
            longer = step / 0.8
            assert true_kl(policy, batch, longer) > 0.05 or gain(policy, batch, longer) <= 0.0
        fractions.append(fraction)
    assert min(fractions) < 1.0


def falling_weight(xp: Any, e: Elements) -> Any:
    return -e.ratio * e.advantage, e.mask


def nan_objective(xp: Any, e: Elements) -> Any:
    return e.ratio * xp.nan


ADVERSARIES = {
    "downhill": Surrogate("downhill", falling_weight, RATIO.objective_of),
    "nan value": Surrogate("nan value", RATIO.weight_of, nan_objective),
}


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("space", SPACES)
def test_a_failed_line_search_leaves_every_bit(space: str, adversary: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=30)
    batch = make_batch(policy, seed=31, by=0.0)
    start = policy.snapshot()
    objective = replace(OBJECTIVE, surrogate=ADVERSARIES[adversary])
    metrics = update(TrustRegion(), policy, batch, objective)
    identical(policy.parameters, start)
    assert metrics["train/step_accepted"] == 0.0 and metrics["train/step_size"] == 0.0


def test_no_candidate_at_all_leaves_every_bit() -> None:
    step, _, _, metrics = step_of(TrustRegion(max_backtracks=0))
    identical(step, np.zeros_like(step))
    assert metrics["train/step_accepted"] == 0.0


@pytest.mark.parametrize("rule", [NaturalGradient(), NaturalGradient(step_size=1.0), TrustRegion()])
@pytest.mark.parametrize("space", SPACES)
def test_a_gradient_that_is_not_finite_stops_before_the_step(space: str, rule: Rule) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=32)
    batch = make_batch(policy, seed=33, by=0.0)
    batch.advantage[0, np.argmax(batch.mask[0])] = np.nan
    start = policy.snapshot()
    with pytest.raises(FloatingPointError, match="gradient norm is nan"):
        update(rule, policy, batch)
    identical(policy.parameters, start)


class BrokenFisher(MLPPolicy):
    """A policy whose Fisher products are not numbers."""

    def fisher_product(self, batch: Batch) -> Any:
        return lambda v: v * np.nan


@pytest.mark.parametrize("rule", [NaturalGradient(), NaturalGradient(step_size=1.0), TrustRegion()])
def test_a_fisher_product_that_is_not_finite_gives_no_step(rule: Rule) -> None:
    rng = np.random.default_rng(34)
    policy = BrokenFisher(3, DISTRIBUTIONS["gaussian"], (4,), "tanh", rng, dtype=np.float64)
    batch = make_batch(policy, seed=35, by=0.0)
    start = policy.snapshot()
    metrics = update(rule, policy, batch)
    identical(policy.parameters, start)
    assert metrics["train/step_accepted"] == 0.0


def test_the_fisher_matrix_may_be_estimated_on_some_rows() -> None:
    policy = make_policy(DISTRIBUTIONS["gaussian"], seed=36)
    batch = make_batch(policy, shape=(40,), seed=37, by=0.0)
    OBJECTIVE.gradient(policy, batch)
    gradient = policy.gradient_buffer.copy()
    seen = []
    whole = policy.fisher_product
    policy.fisher_product = lambda part: seen.append(len(part)) or whole(part)  # type: ignore
    for rows in (7, 40, 99, None):
        FisherSolve(fisher_rows=rows).solve(policy, batch, gradient, np.random.default_rng(0))
    assert seen == [7, 40, 40, 40]


def test_the_whole_batch_decides_on_the_kl_when_the_fisher_matrix_does_not_see_it() -> None:
    for seed in SEEDS:
        rule = TrustRegion(0.01, fisher=FisherSolve(fisher_rows=2))
        step, policy, batch, _ = step_of(rule, "gaussian", seed)
        assert true_kl(policy, batch, step) <= 0.01 * (1.0 + 1e-9)


def test_the_surrogate_of_the_trust_region_is_the_plain_ratio() -> None:
    assert algorithm("trpo").surrogate is RATIO and algorithm("npg").surrogate is RATIO
