"""Distillation of a mixture into one policy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from batches import DISTRIBUTIONS, make_policy, mixture_start
from closeness import close
from torch_reference import reference

from redline.algorithms.core.conservative import Distillation, _towards
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.types import Batch

spaces = pytest.mark.parametrize("space", DISTRIBUTIONS)


@spaces
def test_distillation_comes_closer_to_the_mixture(space: str) -> None:
    policy, batch = mixture_start(space)
    mixture = policy.with_component(make_policy(DISTRIBUTIONS[space], seed=5), 0.4)
    # Actions of the mixture, so that the estimate is one of KL(mixture||student).
    action = mixture.act(batch.observation, np.random.default_rng(6))
    batch = replace(batch, action=action)
    batch = replace(batch, old_log_prob=mixture.evaluate(batch).log_prob, reference=())
    found = []
    for epochs in (0, 5, 60):
        distil = Distillation(lr=0.01, epochs=epochs, minibatch_size=256)
        student, metrics = distil(mixture, batch, np.random.default_rng(7))
        assert len(student.components) == 1 and student.weights == [1.0]
        (value,) = metrics.values()
        found.append(value)
    name = "train/distillation_kl" + ("" if mixture.exact else "_sampled")
    assert set(metrics) == {name}
    assert found[2] < found[1] < found[0] and found[2] < 0.3 * found[0]
    assert mixture.heaviest is policy.components[0]
    if mixture.exact:
        new = np.exp(student.evaluate(batch).params[0])
        old = np.exp(mixture.evaluate(batch).params[0])
        close(found[2], (old * np.log(old / new)).sum(axis=-1).mean(), rtol=1e-7)


@pytest.mark.parametrize(("space", "by"), [("multi_categorical", 0.8), ("gaussian", 0.15)])
def test_the_distance_is_estimated_under_the_mixture(space: str, by: float) -> None:
    # The actions at hand are pi_old's; under the mixture a mean of log(mixture/student) is wanted.
    old = make_policy(DISTRIBUTIONS[space], seed=0)
    other = old.copy()
    other.parameters += np.random.default_rng(2).normal(0.0, by, other.parameters.shape)
    observation = np.tile(np.random.default_rng(0).normal(size=3), (50_000, 1))
    mask, zeros = np.ones(len(observation), dtype=bool), np.zeros(len(observation))
    mixture, rng = MixturePolicy([old, other], [0.5, 0.5]), np.random.default_rng(1)

    def actions_of(policy: Any) -> Batch:
        batch = Batch(observation, policy.act(observation, rng), zeros, zeros, mask)
        return replace(batch, old_log_prob=policy.evaluate(batch).log_prob)

    same = Distillation(epochs=0)  # the student is `old` as it is
    (reported,) = same(mixture, actions_of(old), rng)[1].values()
    own = actions_of(mixture)
    plain = own.old_log_prob - old.evaluate(own).log_prob
    assert plain.mean() > 0.01
    assert abs(reported - plain.mean()) < 5.0 * plain.std() / np.sqrt(len(plain))


@spaces
def test_the_gradient_of_distillation_is_that_of_the_divergences(space: str) -> None:
    policy, batch = mixture_start(space, rows=30)
    mixture = policy.with_component(make_policy(DISTRIBUTIONS[space], seed=5), 0.4)
    student = make_policy(DISTRIBUTIONS[space], seed=8)
    _towards(student, mixture, batch)
    flat = torch.tensor(student.parameters).requires_grad_(True)
    new = reference(student, flat, batch.observation)
    total = 0.0
    for weight, part in zip(mixture.weights, mixture.components, strict=True):
        old = reference(part, torch.tensor(part.parameters), batch.observation)
        total = total + weight * old.kl_to(new).mean()
    (expected,) = torch.autograd.grad(-total, flat)
    close(student.gradient_buffer, expected, rtol=1e-9, atol=1e-12)
