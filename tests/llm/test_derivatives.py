"""The derivatives of a language model's policy are autograd's of the textbook formulas."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from batches import AGGREGATES
from closeness import close
from double import (
    PAD,
    HeadCritic,
    LMPolicy,
    TinyLM,
    collect,
    lm_batch,
    lm_policy,
    textbook_elements,
)
from small import small
from torch.func import functional_call, hessian

from redline.algorithms import registry
from redline.algorithms.core.curvature import dense_matrix
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, KLTerm, Progress

NAMES = registry.names()
START = Progress(0, 1_000_000)


def log_softmax(policy: LMPolicy, batch: Batch, flat: Any) -> Any:
    """log pi [B, T, V] at other parameters, by nothing of the policy's own."""
    named, start = {}, 0
    for name, parameter in policy.module.named_parameters():
        named[name] = flat[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    keep = batch.action.shape[1]
    logits = functional_call(policy.module, named, (batch.observation,), {"keep": keep})
    return logits.log_softmax(-1)


def aggregate_by_hand(kind: str, mask: Any) -> Any:
    rows, lengths = len(mask), mask.sum(axis=1, keepdims=True)
    each = {
        "token_mean": 1.0 / mask.sum(),
        "group_sum": 4.0 / (rows * lengths),
        "seq_mean": 1.0 / (rows * lengths),
        "seq_sum": 1.0 / rows,
        "fixed_length": 1.0 / (rows * 10),
    }[kind]
    return mask * each


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_that_of_the_textbook_objective(name: str, aggregate: str) -> None:
    policy = lm_policy(dtype=torch.float64)
    batch = lm_batch(policy, collect(policy))
    algorithm = small(name)
    bounds = algorithm.clip.bounds(START) if algorithm.clip else None
    objective = Objective(
        algorithm.surrogate, AGGREGATES[aggregate], Penalties(0.3, 0.7, "k3"), bounds, False
    )
    objective.gradient(policy, batch)
    flat = policy.snapshot().requires_grad_(True)
    per_element = textbook_elements(algorithm, batch, log_softmax(policy, batch, flat))
    coefficient = torch.as_tensor(aggregate_by_hand(aggregate, batch.mask.numpy()))
    (expected,) = torch.autograd.grad((coefficient * per_element).sum(), flat)
    assert expected.abs().max() > 1e-3
    close(policy.gradient_buffer, expected, rtol=1e-10, atol=1e-12)


def test_the_exact_kl_and_its_gradient() -> None:
    policy = lm_policy(dtype=torch.float64)
    batch = lm_batch(policy, collect(policy))
    flat = policy.snapshot().requires_grad_(True)
    new, old = log_softmax(policy, batch, flat), batch.reference[0]
    kl = (old.exp() * (old - new)).sum(-1)
    close(policy.kl(batch)[batch.mask], kl[batch.mask], rtol=1e-9)
    assert policy.kl(batch)[batch.mask].min() > 0.0

    share = batch.mask / batch.mask.sum()
    policy.gradient(batch, torch.zeros_like, kl=KLTerm(lambda divergence: share))
    (expected,) = torch.autograd.grad(-(share * kl).sum(), flat)
    close(policy.gradient_buffer, expected, rtol=1e-10, atol=1e-12)


def test_the_fisher_product_is_the_hessian_of_the_mean_kl() -> None:
    module = TinyLM(vocabulary=6, width=4, heads=2, layers=1, room=16).double()
    policy = LMPolicy(module, Categorical(6))
    rollout = collect(policy)
    tensors = [policy.asarray(x) for x in (rollout.observation, rollout.action)]
    zeros = policy.asarray(np.zeros(rollout.mask.shape))
    batch = Batch(*tensors, zeros, zeros, policy.asarray(rollout.mask))
    old = policy.evaluate(batch).params[0]

    def mean_kl(flat: Any) -> Any:
        kl = (old.exp() * (old - log_softmax(policy, batch, flat))).sum(-1)
        return (kl * batch.mask).sum() / batch.mask.sum()

    expected = hessian(mean_kl)(policy.parameters)
    actual = dense_matrix(policy.fisher_product(batch), policy.parameters)
    assert expected.abs().max() > 0.01
    close(actual, expected, rtol=1e-9, atol=1e-12)


def test_padding_is_inert() -> None:
    policy = lm_policy(dtype=torch.float64)
    critic = HeadCritic(policy)
    rollout = collect(policy, groups=3)
    batch = lm_batch(policy, rollout)
    mask = batch.mask
    noise = torch.randint(2, 20, mask.shape, generator=torch.Generator().manual_seed(0))
    tokens = batch.observation.clone()
    tokens[:, -mask.shape[1] :] = torch.where(mask, batch.action, noise)

    def fill(tensor: Any) -> Any:
        spread = mask.reshape(mask.shape + (1,) * (tensor.ndim - 2))
        return torch.where(spread, tensor, torch.full_like(tensor, 10**6))

    dirty = Batch(
        tokens,
        *map(fill, (batch.action, batch.old_log_prob, batch.advantage)),
        mask,
        tuple(map(fill, batch.reference)),
        fill(batch.anchor_log_prob),
    )
    objective = Objective(
        small("ppo").surrogate, AGGREGATES["seq_mean"], Penalties(0.1, 0.2), (0.8, 1.2), True
    )
    results = []
    for one in (batch, dirty):
        prepared = objective.prepare(one)
        objective.gradient(policy, prepared)
        evaluation = policy.evaluate(one)
        per_element = (evaluation.log_prob, evaluation.entropy, policy.kl(one))
        value = critic.values(one.observation, mask)[mask]
        critic.gradient(one.observation, one.advantage, mask)
        results.append(
            (
                policy.gradient_buffer.clone(),
                policy.fisher_product(one)(torch.ones_like(policy.parameters)),
                *(part[mask] for part in per_element),
                value,
                critic.gradient_buffer.clone(),
            )
        )
    for clean, filled in zip(*results, strict=True):
        close(filled, clean, rtol=1e-11, atol=1e-13)

    wider = torch.nn.functional.pad(batch.observation, (3, 0), value=PAD)
    moved = dataclasses.replace(batch, observation=wider)
    close(policy.evaluate(moved).log_prob[mask], results[0][2], rtol=1e-11)
