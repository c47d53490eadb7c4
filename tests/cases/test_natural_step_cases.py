"""Natural steps as public reports describe them going wrong: rll/rllab#24, thu-ml/tianshou#1287."""

from typing import Any

import numpy as np
import pytest
from batches import DISTRIBUTIONS, START, algorithm, make_batch, make_policy, objective_of
from closeness import close, identical

from redline.algorithms import registry
from redline.algorithms.core.curvature import Trial, backtrack
from redline.algorithms.core.natural import FisherSolve, NaturalGradient
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, Evaluation

NAMES = registry.names()


class Quadratic:
    """Two parameters with F = diag(1, 4) and the gradient (2, 4)."""

    xp = np
    per_element = True

    def __init__(self) -> None:
        self.parameters = np.zeros(2)
        self.gradient_buffer = np.zeros(2)

    def asarray(self, value: Any) -> Any:
        return value

    def gradient(self, batch: Batch, weigh: Any, entropy: Any = None, kl: Any = None) -> None:
        weigh(batch.old_log_prob)
        self.gradient_buffer[:] = (2.0, 4.0)

    def fisher_product(self, batch: Batch) -> Any:
        return lambda v: np.array([1.0, 4.0]) * v


def quadratic_step(solver: Any, damping: float) -> tuple[Any, float]:
    policy: Any = Quadratic()
    ones = np.ones((1, 1))
    batch = Batch(ones, ones, ones, ones, ones > 0)
    rule = NaturalGradient(0.01, fisher=FisherSolve(solver, damping=damping))
    _, metrics = rule.update({}, policy, batch, objective_of(algorithm("npg")), START, np.random)  # type: ignore
    return policy.parameters, metrics["train/step_size"]


@pytest.mark.parametrize("solver", ["cg", "dense"])
def test_case_12a_the_step(solver: Any) -> None:
    # F^-1 g = (2, 1); g'F^-1 g = 8; sqrt(0.02 / 8) = 0.05.
    step, scale = quadratic_step(solver, damping=0.0)
    close(scale, 0.05)
    close(step, np.array([0.1, 0.05]))
    close(0.5 * (step[0] ** 2 + 4.0 * step[1] ** 2), 0.01)
    close(np.array([2.0, 4.0]) @ step, 0.4)


@pytest.mark.parametrize("solver", ["cg", "dense"])
def test_case_12a_damping_inside_f_everywhere(solver: Any) -> None:
    step, scale = quadratic_step(solver, damping=0.1)
    close(scale, 0.0515067, rtol=1e-6)
    close(step, np.array([0.0936486, 0.0502504]), rtol=1e-6)
    close(step / scale, np.array([1.818182, 0.975610]), rtol=1e-6)


@pytest.mark.parametrize("space", DISTRIBUTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_case_12b_a_zero_gradient_moves_nothing(name: str, space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space])
    batch = make_batch(policy, by=0.0)
    batch = batch.with_advantage(np.zeros_like(batch.advantage))
    method = algorithm(name)
    start = policy.snapshot()
    objective = objective_of(method, Penalties())
    moved, state = method.update.bind(policy)
    rng = np.random.default_rng(0)
    result, metrics = method.update.update(state, moved, batch, objective, START, rng)
    identical(result.parameters, start)
    assert np.isfinite(list(metrics.values())).all()
    assert policy.kl(batch).max() == 0.0
    assert metrics.get("train/step_accepted", 0.0) == 0.0


def test_case_12c_the_candidate_within_the_limit() -> None:
    # fraction -> gain, KL
    table = {
        1.0: Trial(0.3, 0.04),
        0.5: Trial(0.2, 0.012),
        0.25: Trial(-0.01, 0.004),
        0.125: Trial(0.03, 0.001),
    }
    assert backtrack(table.__getitem__, table, 0.01) == (0.125, table[0.125])
    assert backtrack(table.__getitem__, table, 0.012) == (0.5, table[0.5])
    assert backtrack(table.__getitem__, list(table)[:3], 0.01) is None


@pytest.mark.parametrize("name", NAMES)
def test_case_12d_the_free_log_std_belongs_to_the_parameters(name: str) -> None:
    policy = make_policy(DISTRIBUTIONS["gaussian"])
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(8, 25, 3))
    action = policy.act(observation.reshape(-1, 3), rng).reshape(8, 25, 2)
    mask = np.ones((8, 25), dtype=bool)
    batch = Batch(observation, action, mask * 0.0, mask * 0.0, mask)
    evaluation: Evaluation = policy.evaluate(batch)
    mean, log_std = evaluation.params
    far = (np.abs(action - mean) > 2.0 * np.exp(log_std)).any(axis=-1)
    assert far.any() and not far.all()
    batch = Batch(observation, action, evaluation.log_prob, far * 1.0, mask, evaluation.params)
    method = algorithm(name)
    objective = objective_of(method, Penalties())
    before = policy.parameters[-2:].copy()
    moved, state = method.update.bind(policy)
    result, _ = method.update.update(state, moved, batch, objective, START, rng)
    assert (result.parameters[-2:] > before).all()
