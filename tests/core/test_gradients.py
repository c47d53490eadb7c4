"""The policy's analytic gradient is autograd's of the textbook objective on the same network."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, algorithm, make_batch, make_policy, objective_of
from closeness import close, identical
from torch import Tensor
from torch_reference import XP, Reference, leaf, network_outputs, reference

from redline.algorithms import registry
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Estimator, Penalties
from redline.algorithms.core.types import Batch, KLTerm
from redline.envs.policies import MLPCritic, MLPPolicy

NAMES = registry.names()
ACTIVATIONS = ("tanh", "relu")
SPACES = tuple(DISTRIBUTIONS)


def textbook_penalty(estimator: Estimator, *, log_prob: Tensor, anchor: Tensor) -> Tensor:
    d = log_prob - anchor
    return {"k1": d, "k2": 0.5 * d**2, "k3": torch.exp(-d) - 1.0 + d}[estimator]


def textbook(policy: MLPPolicy, batch: Batch, objective: Objective, flat: Tensor) -> Tensor:
    """Surrogate + entropy bonus - KL to the reference policy, as one number on torch."""
    mask = torch.as_tensor(batch.mask)
    old_log_prob = torch.as_tensor(batch.old_log_prob)
    pi = reference(policy, flat, batch.observation)
    log_prob = pi.log_prob(torch.as_tensor(batch.action))
    per_element = objective.surrogate.objective(
        XP,
        log_prob=log_prob,
        old_log_prob=old_log_prob,
        advantage=torch.as_tensor(batch.advantage),
        mask=mask,
        bounds=objective.bounds,
    )
    penalties = objective.penalties
    if penalties.kl:
        anchor = torch.as_tensor(batch.anchor_log_prob)
        estimate = textbook_penalty(penalties.estimator, log_prob=log_prob, anchor=anchor)
        per_element = per_element - penalties.kl * torch.where(mask, estimate, 0.0)
    per_element = per_element + penalties.entropy * pi.entropy()
    coefficient = objective.coefficient(policy, batch)
    return torch.sum(torch.as_tensor(coefficient) * per_element)


def autograd(policy: MLPPolicy, batch: Batch, objective: Objective) -> Tensor:
    flat = leaf(policy.parameters)
    (gradient,) = torch.autograd.grad(textbook(policy, batch, objective, flat), flat)
    return gradient


def analytic(policy: MLPPolicy, batch: Batch, objective: Objective) -> Any:
    policy.gradient_buffer[:] = np.nan  # what is left over from before must not count
    objective.gradient(policy, batch)
    return policy.gradient_buffer.copy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_every_recipe(name: str, space: str, activation: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], activation)
    batch = make_batch(policy)
    objective = objective_of(algorithm(name))
    close(analytic(policy, batch, objective), autograd(policy, batch, objective), atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("space", SPACES)
def test_the_gradient_with_both_penalties(
    space: str, activation: str, estimator: Estimator
) -> None:
    policy = make_policy(DISTRIBUTIONS[space], activation, seed=2)
    batch = make_batch(policy, seed=3)
    objective = objective_of(algorithm("ppo"), Penalties(0.3, 0.7, estimator))
    actual = analytic(policy, batch, objective)
    close(actual, autograd(policy, batch, objective), atol=1e-12)
    plain = analytic(policy, batch, objective_of(algorithm("ppo"), Penalties()))
    assert np.abs(actual - plain).max() > 0.01


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("space", SPACES)
def test_the_exact_kl_term(space: str, activation: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], activation, seed=4)
    batch = make_batch(policy, seed=5)
    factor = np.where(batch.mask, np.random.default_rng(6).uniform(0.1, 1.0, batch.mask.shape), 0)
    seen = []

    def coefficient(kl: Any) -> Any:
        seen.append(kl)
        return factor

    policy.gradient(batch, np.zeros_like, kl=KLTerm(coefficient))
    flat = leaf(policy.parameters)
    new = reference(policy, flat, batch.observation)
    # The frozen pi_old, rebuilt from its parameters.
    raw, log_std, *_ = (*(torch.tensor(part) for part in batch.reference), None)
    kl = Reference(policy.distribution, raw, log_std).kl_to(new)
    (gradient,) = torch.autograd.grad(-torch.sum(torch.as_tensor(factor) * kl), flat)
    close(policy.gradient_buffer, gradient, atol=1e-12)
    close(seen[0], kl, atol=1e-13)
    close(policy.kl(batch), kl, atol=1e-13)


@pytest.mark.parametrize("space", SPACES)
def test_evaluate_is_the_reference_policys(space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=7)
    batch = make_batch(policy, seed=8)
    evaluation = policy.evaluate(batch)
    pi = reference(policy, leaf(policy.parameters), batch.observation)
    close(evaluation.log_prob, pi.log_prob(torch.as_tensor(batch.action)), rtol=1e-11)
    close(evaluation.entropy, pi.entropy().expand(batch.mask.shape), rtol=1e-11)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", NAMES)
def test_padding_is_inert_in_the_gradient(name: str, space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=9)
    batch = make_batch(policy, seed=10)
    objective = objective_of(algorithm(name), Penalties(0.1, 0.2, "k2"))
    assert batch.anchor_log_prob is not None

    def fill(array: Any, value: float) -> Any:
        mask = batch.mask.reshape(batch.mask.shape + (1,) * (array.ndim - 2))
        return np.where(mask, array, np.asarray(value, array.dtype))

    dirty = Batch(
        observation=fill(batch.observation, 1e6),
        action=fill(batch.action, 1e6 if space == "gaussian" else 0),
        old_log_prob=fill(batch.old_log_prob, 1e6),
        advantage=fill(batch.advantage, 1e6),
        mask=batch.mask,
        reference=tuple(fill(part, 1e6) for part in batch.reference),
        anchor_log_prob=fill(batch.anchor_log_prob, -np.inf),
    )
    expected = analytic(policy, batch, objective)
    close(analytic(policy, dirty, objective), expected, rtol=1e-9, atol=1e-12)
    log_prob = policy.evaluate(dirty).log_prob
    clean_value = objective.value(policy, batch, policy.evaluate(batch).log_prob)
    close(objective.value(policy, dirty, log_prob), clean_value)


@pytest.mark.parametrize("space", SPACES)
def test_a_flat_batch_has_the_gradient_of_its_rows(space: str) -> None:
    policy = make_policy(DISTRIBUTIONS[space], seed=11)
    batch = make_batch(policy, seed=12)
    mask = batch.mask
    flat = Batch(
        batch.observation[mask],
        batch.action[mask],
        batch.old_log_prob[mask],
        batch.advantage[mask],
        mask[mask],
    )
    objective = objective_of(algorithm("ppo"))
    close(analytic(policy, flat, objective), analytic(policy, batch, objective), atol=1e-14)


def test_the_value_is_the_sum_of_the_textbook_objective() -> None:
    policy = make_policy(DISTRIBUTIONS["categorical"], seed=13)
    batch = make_batch(policy, seed=14)
    objective = objective_of(algorithm("trpo"), Penalties())
    expected = textbook(policy, batch, objective, leaf(policy.parameters))
    close(objective.value(policy, batch, policy.evaluate(batch).log_prob), expected)


def test_acting_between_forward_and_backward_changes_nothing() -> None:
    policy = make_policy(DISTRIBUTIONS["gaussian"], seed=15)
    batch = make_batch(policy, seed=16)
    objective = objective_of(algorithm("ppo"))
    expected = analytic(policy, batch, objective)

    def act(*_: Any) -> None:
        policy.act(batch.observation[:2].reshape(-1, 3), np.random.default_rng(0))
        policy.evaluate(batch)

    objective.gradient(policy, batch, record=act)
    identical(policy.gradient_buffer, expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_critics_gradient(activation: Any) -> None:
    rng = np.random.default_rng(17)
    critic = MLPCritic(3, (7, 5), activation, rng, dtype=np.float64)
    critic.parameters += rng.normal(0.0, 0.3, critic.parameters.shape)
    observation, returns = rng.normal(size=(30, 3)), rng.normal(size=30)
    mask = rng.random(30) < 0.6
    garbage = np.where(mask, returns, 1e6)
    mean = critic.gradient(observation, garbage, mask)
    flat = leaf(critic.parameters)
    value = network_outputs(critic.network, flat, observation)[0][:, 0]
    error = torch.mean((value - torch.as_tensor(returns))[torch.as_tensor(mask)] ** 2)
    (gradient,) = torch.autograd.grad(-error, flat)
    close(mean, error)
    close(critic.gradient_buffer, gradient, atol=1e-12)
    close(critic.values(observation, mask), value)
