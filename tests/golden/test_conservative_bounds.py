"""Bounds of conservative policy iteration on problems that are solved exactly.

Expectations are sums over all states and actions: Abar = sum_s d(s) sum_a pi'(a|s) A(s, a) with d
the normalised (discounted) distribution of states under pi, and eps = max_s |sum_a pi' A|.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from batches import START
from closeness import close
from tabular import MDP, Solution, random_mdp, softmax, solve, solve_horizon, table_of, table_policy

from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.conservative import conservative_step
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalised import KLPenalty, penalty_coefficient
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import RATIO
from redline.algorithms.core.types import Batch
from redline.algorithms.core.updates import FirstOrder

STATES, ACTIONS = 4, 3
SEEDS = range(30)
DISCOUNTS = (0.5, 0.9, 0.99)


class Pair(NamedTuple):
    """A problem, a random pi and another pi'."""

    mdp: MDP
    old: Any
    new: Any


def pair(seed: int, greedy: float) -> Pair:
    """pi' is random where `greedy` is 0, and nearly argmax A at gamma 0.9 where it is large."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, STATES, ACTIONS)
    old = rng.normal(0.0, 1.5, (STATES, ACTIONS))
    advantage = solve(mdp, softmax(old), 0.9).advantage
    return Pair(mdp, old, greedy * advantage + rng.normal(0.0, 1.0, (STATES, ACTIONS)))


def mixed(problem: Pair, alpha: float) -> Any:
    """The mixture's table, as the policy has it."""
    mixture = MixturePolicy([table_policy(problem.old)])
    return table_of(mixture.with_component(table_policy(problem.new), alpha), STATES)


@pytest.mark.parametrize("greedy", [0.0, 20.0])
@pytest.mark.parametrize("gamma", DISCOUNTS)
def test_the_mixture_improves_by_the_kakade_langford_bound(gamma: float, greedy: float) -> None:
    steps = []
    for seed in SEEDS:
        problem = pair(seed, greedy)
        old = solve(problem.mdp, softmax(problem.old), gamma)
        expected = (softmax(problem.new) * old.advantage).sum(axis=1)
        gain, eps = float(old.visits @ expected), float(np.abs(expected).max())
        best = conservative_step(gain, eps, gamma)
        for alpha in {best, 0.1, 0.5, 1.0} - {0.0}:
            improvement = solve(problem.mdp, mixed(problem, alpha), gamma).value - old.value
            loss = 2.0 * alpha * gamma * eps / (1.0 - gamma * (1.0 - alpha))
            assert improvement >= alpha * (gain - loss) / (1.0 - gamma) - 1e-10
            # The simpler bound, which alpha* maximises.
            loss = 2.0 * alpha * gamma * eps / (1.0 - gamma)
            assert improvement >= alpha * (gain - loss) / (1.0 - gamma) - 1e-10
        if 0.0 < best < 1.0:
            at_best = solve(problem.mdp, mixed(problem, best), gamma).value - old.value
            assert at_best >= best * gain / 2.0 / (1.0 - gamma) - 1e-10 > 0.0
        steps.append(best)
    assert np.mean(np.array(steps) > 0.0) >= (0.9 if greedy else 0.2)


@pytest.mark.parametrize("steps", [2, 5, 20])
def test_the_mixture_improves_by_the_bound_of_a_finite_horizon(steps: int) -> None:
    for seed in SEEDS:
        problem = pair(seed, 20.0)
        old = solve_horizon(problem.mdp, softmax(problem.old), steps)
        expected = (softmax(problem.new) * old.advantage).sum(axis=-1)
        gain, eps = float((old.visits * expected).sum()) / steps, float(np.abs(expected).max())
        best = conservative_step(gain, eps, 1.0, steps)
        for alpha in {best, 0.1, 1.0} - {0.0}:
            new = solve_horizon(problem.mdp, mixed(problem, alpha), steps)
            bound = steps * alpha * (gain - alpha * eps * (steps - 1))
            assert new.value - old.value >= bound - 1e-10


@pytest.mark.parametrize(("gamma", "steps"), [(0.9, None), (1.0, 20)])
def test_the_step_maximises_the_bound(gamma: float, steps: int | None) -> None:
    gain, eps = 0.02, 0.7
    slope = 2.0 * gamma * eps / (1.0 - gamma) if steps is None else eps * (steps - 1)
    grid = np.linspace(0.0, 1.0, 200_001)
    best = grid[np.argmax(grid * (gain - grid * slope))]
    assert abs(conservative_step(gain, eps, gamma, steps) - best) <= 1e-5


@dataclasses.dataclass(frozen=True)
class Weighted(Aggregate):
    """Coefficient d(s) pi_old(a|s) for a batch that lists every state and action once."""

    share: Any = None

    def coefficient(self, xp: Any, *, mask: Any, like: Any, counts: Any) -> Any:
        return self.share


def every_pair(policy: Any, solution: Solution) -> tuple[Batch, Objective]:
    """All (s, a) as a batch, and E[r A] over them as the objective."""
    observation = np.repeat(np.eye(STATES), ACTIONS, axis=0)
    action = np.tile(np.arange(ACTIONS), STATES)
    advantage = solution.advantage.ravel()
    mask = np.ones(len(action), dtype=bool)
    evaluation = policy.evaluate(Batch(observation, action, advantage, advantage, mask))
    batch = Batch(observation, action, evaluation.log_prob, advantage, mask, evaluation.params)
    share = np.repeat(solution.visits, ACTIONS) * np.exp(evaluation.log_prob)
    objective = Objective(RATIO, Weighted(share=share), Penalties(), None, False)
    return batch, objective


def largest_kl(old: Any, new: Any) -> float:
    return float((old * np.log(old / new)).sum(axis=1).max())


@pytest.mark.parametrize("gamma", DISCOUNTS)
def test_every_update_of_the_penalty_keeps_to_the_trpo_bound(gamma: float) -> None:
    total, accepted = 0.0, []
    for seed in range(4):
        problem = pair(seed, 0.0)
        policy = table_policy(problem.old)
        rule = KLPenalty(FirstOrder(lr=0.01, epochs=20), gamma)
        state = rule.bind(policy)[1]
        for _ in range(15):
            before = table_of(policy, STATES)
            old = solve(problem.mdp, before, gamma)
            batch, objective = every_pair(policy, old)
            rng = np.random.default_rng(0)
            _, metrics = rule.update(state, policy, batch, objective, START, rng)
            after = table_of(policy, STATES)
            new = solve(problem.mdp, after, gamma)
            coefficient = 4.0 * np.abs(old.advantage).max() * gamma / (1.0 - gamma)
            gain = float(old.visits @ (after * old.advantage).sum(axis=1))
            bound = gain - coefficient * largest_kl(before, after)
            assert new.value - old.value >= bound / (1.0 - gamma) - 1e-10
            assert bound >= -1e-12  # the penalised objective never falls
            close(metrics["train/penalised_gain"], bound, rtol=1e-6, atol=1e-11)
            close(metrics["train/kl_coef"], coefficient, rtol=1e-9)
            accepted.append(metrics["train/step_accepted"])
            total += new.value - old.value
    assert np.mean(accepted) > 0.5 and total > 0.0


def worst_slack(coefficient: Any, gamma: float) -> float:
    """min over random pairs of the true improvement less the bound, per 1 / (1 - gamma)."""
    slack = []
    for seed in range(200):
        problem = pair(seed, 0.0)
        before, after = softmax(problem.old), softmax(problem.new)
        old = solve(problem.mdp, before, gamma)
        gain = float(old.visits @ (after * old.advantage).sum(axis=1))
        penalty = coefficient(float(np.abs(old.advantage).max())) * largest_kl(before, after)
        improvement = solve(problem.mdp, after, gamma).value - old.value
        slack.append((1.0 - gamma) * improvement - (gain - penalty))
    return min(slack)


@pytest.mark.parametrize("gamma", DISCOUNTS)
def test_the_penalty_is_what_makes_it_a_bound(gamma: float) -> None:
    assert worst_slack(lambda eps: 0.0, gamma) < -0.05
    assert worst_slack(lambda eps: penalty_coefficient(eps, gamma), gamma) >= -1e-10


def test_the_penalty_of_a_finite_horizon_is_a_bound() -> None:
    for steps in (2, 5, 20):
        for seed in SEEDS:
            problem = pair(seed, 0.0)
            before = softmax(problem.old)
            after = softmax(problem.old + 0.3 * problem.new)
            old = solve_horizon(problem.mdp, before, steps)
            gain = float((old.visits * (after * old.advantage).sum(axis=-1)).sum()) / steps
            eps = float(np.abs(old.advantage).max())
            penalty = penalty_coefficient(eps, 1.0, steps) * largest_kl(before, after)
            new = solve_horizon(problem.mdp, after, steps)
            assert new.value - old.value >= steps * (gain - penalty) - 1e-10
