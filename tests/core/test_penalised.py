"""Penalties on the divergence from pi_old: PPO's adaptive one, and CPI's."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, START, algorithm, make_batch, make_policy, objective_of
from closeness import close, identical
from small import small
from torch_reference import Reference, reference

from redline.algorithms.core.learner import Learner
from redline.algorithms.core.penalised import AdaptiveKL, KLPenalty, penalty_coefficient
from redline.algorithms.core.penalties import OldPolicyPenalty, Penalties
from redline.algorithms.core.types import Batch, Metrics, Need
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.cpi_penalty import CPIPenalty
from redline.algorithms.ppo_kl import PPOKL
from redline.envs.policies import MLPCritic, MLPPolicy

STEPS = FirstOrder(lr=0.01, epochs=5)
OBJECTIVE = objective_of(algorithm("ppo_kl"), Penalties())
SPACES = ("categorical", "multi_categorical", "gaussian")
spaces = pytest.mark.parametrize("space", SPACES)
overs = pytest.mark.parametrize("over", ["mean", "max"])
directions = pytest.mark.parametrize("reverse", [False, True])


@pytest.mark.parametrize(
    ("eps", "gamma", "horizon", "coefficient"),
    [
        (1.0, 0.99, None, 396.0),
        (2.5, 0.99, None, 990.0),
        (1.0, 0.9, None, 36.0),
        (1.0, 0.0, None, 0.0),
        (1.0, 0.99, 10, 396.0),  # the horizon counts without a discount only
        (1.0, 1.0, 500, 998.0),  # 2 eps (T - 1)
        (1.0, 1.0, 1, 0.0),
    ],
)
def test_the_theoretical_coefficient(
    eps: float, gamma: float, horizon: int | None, coefficient: float
) -> None:
    close(penalty_coefficient(eps, gamma, horizon), coefficient, rtol=1e-12)


def divergence_by_torch(policy: MLPPolicy, flat: Any, batch: Batch, reverse: bool) -> Any:
    """Per element, from torch.distributions."""
    new = reference(policy, flat, batch.observation)
    output, log_std, *_ = (*map(torch.tensor, batch.reference), None)
    old = Reference(policy.distribution, output, log_std)
    return new.kl_to(old) if reverse else old.kl_to(new)


@overs
@directions
@spaces
def test_the_gradient_of_the_penalty(space: str, reverse: bool, over: Any) -> None:
    policy = make_policy(DISTRIBUTIONS[space])
    batch = make_batch(policy)
    penalty = OldPolicyPenalty(0.7, over, reverse)
    policy.gradient(batch, np.zeros_like, kl=penalty.term(np, batch.mask))
    flat = torch.tensor(policy.parameters).requires_grad_(True)
    each = divergence_by_torch(policy, flat, batch, reverse)[torch.tensor(batch.mask)]
    total = 0.7 * (each.max() if over == "max" else each.mean())
    (expected,) = torch.autograd.grad(-total, flat)
    close(policy.gradient_buffer, expected, rtol=1e-9, atol=1e-12)
    divergence = policy.kl(batch, reverse=reverse)
    value = penalty.value(np, divergence=divergence, mask=batch.mask)
    close(value, total.detach(), rtol=1e-9)


def test_what_is_masked_is_no_part_of_the_penalty() -> None:
    divergence, mask = np.array([[1.0, 9.0, 3.0]]), np.array([[True, False, True]])
    for over, share in (("mean", [[0.5, 0.0, 0.5]]), ("max", [[0.0, 0.0, 1.0]])):
        penalty = OldPolicyPenalty(2.0, over)  # type: ignore[arg-type]
        close(penalty.share(np, divergence=divergence, mask=mask), share)
        wanted = {"mean": 4.0, "max": 6.0}[over]
        for hidden in (9.0, np.nan, np.inf):
            divergence[0, 1] = hidden
            assert penalty.value(np, divergence=divergence, mask=mask) == wanted


class Probe:
    """In the place of Adam: notes the gradient, and moves nothing."""

    def __init__(self, policy: MLPPolicy) -> None:
        self.policy, self.seen = policy, []

    def step(self, lr: float) -> None:
        self.seen.append(self.policy.gradient_buffer.copy())


@spaces
def test_the_adaptive_rule_follows_the_gradient_of_its_objective(space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space])
    batch = make_batch(policy, shape=(30,))
    rule = AdaptiveKL(replace(STEPS, epochs=1), initial=3.0)
    probe = Probe(policy)
    state = rule.bind(policy)[1] | {"optimizer": probe}
    rule.update(state, policy, batch, OBJECTIVE, START, np.random.default_rng(0))
    flat = torch.tensor(policy.parameters).requires_grad_(True)
    log_prob = reference(policy, flat, batch.observation).log_prob(torch.tensor(batch.action))
    ratio = torch.exp(log_prob - torch.tensor(batch.old_log_prob))
    kl = divergence_by_torch(policy, flat, batch, False)
    (expected,) = torch.autograd.grad(
        (ratio * torch.tensor(batch.advantage)).mean() - 3.0 * kl.mean(), flat
    )
    close(probe.seen[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("divergence", "factor"),
    [
        (0.0, 0.5),
        (0.03 / 1.5 * (1.0 - 1e-9), 0.5),
        (0.03 / 1.5, 1.0),
        (0.03, 1.0),
        (1.5 * 0.03, 1.0),
        (1.5 * 0.03 * (1.0 + 1e-9), 2.0),
        (10.0, 2.0),
        (float("nan"), 2.0),
        (float("inf"), 2.0),
    ],
)
def test_beta_is_halved_kept_or_doubled(divergence: float, factor: float) -> None:
    rule = AdaptiveKL(STEPS, target=0.03)
    for beta in (0.1, 1.0, 40.0):
        assert rule.adapted(beta, divergence) == factor * beta


def test_beta_stays_a_number_that_can_come_back() -> None:
    rule, beta = AdaptiveKL(STEPS, target=0.01), 1.0
    for divergence, limit in ((0.0, 1e-6), (1.0, 1e6), (0.0, 1e-6)):
        for _ in range(2000):
            beta = rule.adapted(beta, divergence)
        assert beta == limit


def play(learner: Learner, seed: int) -> Metrics:
    """An update on random experience."""
    from sampling import sampler

    rollout = sampler("CartPole-v1", n=4, seed=seed).collect(learner.policy, Need(steps=16))
    return learner.update(rollout, START)


def learner_of(name: str, **settings: Any) -> Learner:
    rng = np.random.default_rng(0)
    distribution = DISTRIBUTIONS["categorical"]
    policy = MLPPolicy(4, replace(distribution, n=2), (8,), "tanh", rng)  # type: ignore[type-var]
    critic = MLPCritic(4, (8,), "tanh", rng)
    return Learner(small(name, lr=0.01, **settings), policy, critic, rng)


def test_the_beta_in_the_metrics_is_the_one_in_force() -> None:
    learner = learner_of("ppo_kl", kl_target=0.004, kl_coef_init=2.0)
    rule, beta, seen = learner.algorithm.update, 2.0, set()
    assert isinstance(rule, AdaptiveKL)
    for seed in range(8):
        metrics = play(learner, seed)
        assert metrics["train/kl_coef"] == beta
        beta = rule.adapted(beta, metrics["train/kl"])
        seen.add(beta)
    assert len(seen) > 2


def test_beta_survives_a_checkpoint() -> None:
    learner, other = (learner_of("ppo_kl", kl_target=1e-5) for _ in range(2))
    for seed in range(3):
        play(learner, seed)
    other.load_state_dict(learner.state_dict())
    assert learner.state["kl_coef"].value != 1.0
    results = [play(one, 9)["train/kl_coef"] for one in (learner, other)]
    assert results[0] == results[1] != 1.0


def penalised(rule: KLPenalty, policy: MLPPolicy, batch: Batch, coefficient: float) -> float:
    """E[r A] - C KL by torch; pi_old's own is E[A] where the batch is on policy."""
    flat = torch.tensor(policy.parameters)
    log_prob = reference(policy, flat, batch.observation).log_prob(torch.tensor(batch.action))
    gain = torch.exp(log_prob - torch.tensor(batch.old_log_prob)) * torch.tensor(batch.advantage)
    kl = divergence_by_torch(policy, flat, batch, rule.reverse)
    return float(gain.mean() - coefficient * (kl.max() if rule.over == "max" else kl.mean()))


@overs
@directions
@spaces
def test_the_penalised_objective_never_falls(space: str, reverse: bool, over: Any) -> None:
    accepted = []
    for seed in range(3):
        for coefficient in (None, 0.5):
            policy = make_policy(DISTRIBUTIONS[space], seed=seed)
            batch = make_batch(policy, shape=(40,), seed=seed + 1, by=0.0)
            steps = FirstOrder(lr=1e-3, epochs=3)
            rule = KLPenalty(steps, 0.99, None, coefficient, over, reverse)
            start, rng = policy.snapshot(), np.random.default_rng(0)
            _, metrics = rule.update(rule.bind(policy)[1], policy, batch, OBJECTIVE, START, rng)
            theoretical = 396.0 * np.abs(batch.advantage).max()
            in_force = theoretical if coefficient is None else coefficient
            close(metrics["train/kl_coef"], in_force, rtol=1e-9)
            close(metrics["train/kl_coef_theoretical"], theoretical, rtol=1e-9)
            rise = penalised(rule, policy, batch, in_force) - float(batch.advantage.mean())
            close(metrics["train/penalised_gain"], rise, rtol=1e-6, atol=1e-12)
            accepted.append(metrics["train/step_accepted"])
            assert rise > 0.0 if accepted[-1] else abs(rise) < 1e-12
            assert (policy.parameters != start).any() == accepted[-1]
    assert np.mean(accepted) >= 0.5


def test_a_step_that_gains_nothing_leaves_every_bit() -> None:
    policy = make_policy(DISTRIBUTIONS["categorical"])
    batch = make_batch(policy, shape=(40,), by=0.0)
    start, rule = policy.snapshot(), KLPenalty(replace(STEPS, lr=-0.01), 0.99)
    _, metrics = rule.update(
        rule.bind(policy)[1], policy, batch, OBJECTIVE, START, np.random.default_rng(0)
    )
    identical(policy.parameters, start)
    assert metrics["train/step_accepted"] == metrics["train/penalised_gain"] == 0.0


def test_the_theoretical_penalty_allows_steps_in_single_precision() -> None:
    # Its steps have a KL of 1e-9, which float32 probabilities show only when renormalised.
    rng = np.random.default_rng(0)
    distribution = make_policy(DISTRIBUTIONS["categorical"]).distribution
    policy = MLPPolicy(3, distribution, (16,), "tanh", rng)
    source = make_batch(make_policy(distribution), shape=(300,), by=0.0)
    fields = (source.observation, source.action, source.old_log_prob, source.advantage, source.mask)
    batch = Batch(*map(policy.asarray, fields))
    evaluation = policy.evaluate(batch)
    batch = replace(batch, old_log_prob=evaluation.log_prob, reference=evaluation.params)
    rule = KLPenalty(FirstOrder(lr=1e-3), 0.99)
    _, metrics = rule.update(rule.bind(policy)[1], policy, batch, OBJECTIVE, START, rng)
    assert metrics["train/step_accepted"] == 1.0 and metrics["train/kl_coef"] > 396.0
    assert 0.0 < metrics["train/penalised_gain"] < 1e-3


def test_refusals() -> None:
    for recipe, message in (
        (CPIPenalty(gamma=1.0), "infinite at gamma 1; give --horizon"),
        (CPIPenalty(gamma=1.0, penalty=3.0, horizon=0), "horizon must be at least 1"),
        (CPIPenalty(gamma=1.0, horizon=0), "horizon must be at least 1"),
        (CPIPenalty(penalty=-1.0), "penalty must be at least 0"),
        (PPOKL(kl_target=0.0), "kl_target must be positive"),
        (PPOKL(kl_coef_init=0.0), "kl_coef_init must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            recipe.build()


def test_a_given_penalty_needs_no_horizon_and_then_logs_no_theoretical_one() -> None:
    for horizon, logged in ((None, False), (500, True)):
        policy = make_policy(DISTRIBUTIONS["categorical"])
        batch = make_batch(policy, shape=(40,), by=0.0)
        rule = CPIPenalty(gamma=1.0, penalty=3.0, horizon=horizon).build().update
        state = rule.bind(policy)[1]
        _, metrics = rule.update(state, policy, batch, OBJECTIVE, START, np.random.default_rng(0))
        assert metrics["train/kl_coef"] == 3.0
        assert ("train/kl_coef_theoretical" in metrics) == logged
