"""The gradient of a causal language model's policy, whole and in parts, against autograd."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from closeness import close
from double import textbook_elements
from micro import WAYS, exact, llama, micro_batch, objective_of, row_by_row, sibling
from small import small

from redline.algorithms import registry
from redline.algorithms.core.penalised import sensitive_kl
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, KLTerm
from redline.llm_track.policy import CausalLMPolicy

NAMES = registry.names()


@pytest.mark.parametrize(
    ("kind", "way"), [*(("llama", way) for way in WAYS), ("gpt2", "whole"), ("gpt2", "parts")]
)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_that_of_the_textbook_objective(name: str, kind: str, way: str) -> None:
    policy = exact(kind, way)
    batch = micro_batch(policy)
    objective_of(name, Penalties(0.3, 0.7, "k3")).gradient(policy, batch)
    flat = policy.snapshot().requires_grad_(True)
    per_element = textbook_elements(small(name), batch, row_by_row(policy, batch, flat))
    mean = torch.where(batch.mask, per_element, 0.0).sum() / batch.mask.sum()
    expected = torch.autograd.grad(mean, flat)[0]
    assert expected.abs().max() > 1e-2
    close(policy.gradient_buffer, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_exact_kl_and_its_gradient(way: str, reverse: bool) -> None:
    policy = exact(way=way)
    batch = micro_batch(policy)
    old_log_p = _log_p_of_pi_old(batch)
    flat = policy.snapshot().requires_grad_(True)
    new = row_by_row(policy, batch, flat)
    first, second = (new, old_log_p) if reverse else (old_log_p, new)
    kl = (first.exp() * (first - second)).sum(-1)
    found = policy.kl(batch, reverse=reverse)
    close(found[batch.mask], kl[batch.mask], rtol=1e-9)
    assert found[batch.mask].min() > 0.0 and (found[~batch.mask] == 0.0).all()
    evaluation = policy.evaluate(batch)
    close(sensitive_kl(policy, batch, evaluation, reverse)[batch.mask], kl[batch.mask], rtol=1e-9)

    # The largest divergence of all is found over the whole batch, not in a micro-batch.
    at = int(kl.where(batch.mask, torch.tensor(-1.0)).argmax())
    share = (batch.mask / batch.mask.sum()).double()
    share.view(-1)[at] += 1.0

    def coefficient(divergence: Any) -> Any:
        assert int(divergence.argmax()) == at
        return share

    policy.gradient(batch, torch.zeros_like, kl=KLTerm(coefficient, reverse))
    (expected,) = torch.autograd.grad(-(share * kl).sum(), flat)
    close(policy.gradient_buffer, expected, rtol=1e-9, atol=1e-11)


def _log_p_of_pi_old(batch: Batch) -> Any:
    held = batch.reference[0]
    return held if torch.is_tensor(held) else held.dense()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("way", ["parts", "one by one", "lazy"])
def test_parts_add_up_to_the_whole(way: str, dtype: torch.dtype) -> None:
    whole = CausalLMPolicy(llama(dtype))
    parts = sibling(whole, **WAYS[way])
    batch = micro_batch(whole, groups=4, group_size=4)
    objective = objective_of("grpo", Penalties(0.0, 0.0))
    results = []
    for policy in (whole, parts):
        objective.gradient(policy, batch)
        evaluation = policy.evaluate(batch)
        results.append((policy.gradient_buffer, evaluation.log_prob, evaluation.entropy))
    tolerance = 1e-10 if dtype == torch.float64 else 2e-6
    for one, other in zip(*results, strict=True):
        close(other, one, rtol=tolerance, atol=tolerance * float(one.abs().max()))


@pytest.mark.parametrize(("rows", "passes"), [(None, 2), (1, 2 + 2)])
def test_rows_without_advantage_are_skipped(
    rows: int | None, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = exact(rows=rows)
    batch = micro_batch(policy, groups=4, group_size=2)
    advantage = batch.advantage.clone()
    advantage[:6] = 0.0
    batch = batch.with_advantage(advantage)
    objective = objective_of("grpo", Penalties(0.0, 0.0))
    learned, seen_rows, states = [], [], policy.states

    def spy(part: Any, values: Any = None) -> Any:
        seen_rows.append(len(part.tokens))
        if torch.is_grad_enabled():
            learned.extend(part.elements[0].tolist())
        return states(part, values)

    monkeypatch.setattr(policy, "states", spy)
    seen: list[Any] = []
    objective.gradient(policy, batch, lambda read, weights, log_prob: seen.append(log_prob))
    # The two rows that are left.
    assert set(learned) == {0, 1} and sum(seen_rows) == passes
    close(seen[0], policy.evaluate(batch).log_prob[6:], rtol=1e-9)

    flat = policy.snapshot().requires_grad_(True)
    log_p = row_by_row(policy, batch, flat).gather(-1, batch.action[..., None])[..., 0]
    bare = objective.surrogate.objective(
        policy.xp,
        log_prob=log_p,
        old_log_prob=batch.old_log_prob,
        advantage=advantage,
        mask=batch.mask,
        bounds=objective.bounds,
    )
    total = torch.where(batch.mask, bare, 0.0).sum() / batch.mask.sum()
    close(policy.gradient_buffer, torch.autograd.grad(total, flat)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("penalties", [Penalties(0.0, 0.3), Penalties(0.3, 0.0)])
def test_rows_without_advantage_count_where_something_else_depends_on_them(
    penalties: Penalties,
) -> None:
    policy = exact()
    batch = micro_batch(policy).with_advantage(torch.zeros(6, 8).double())
    batch = replace(batch, anchor_log_prob=batch.old_log_prob - 0.1)
    read: list[int] = []

    def record(part: Any, weights: Any, log_prob: Any) -> None:
        read.append(len(part))

    objective_of("grpo", penalties).gradient(policy, batch, record)
    assert policy.gradient_buffer.abs().max() > 1e-4
    objective_of("grpo", Penalties(0.0, 0.0)).gradient(policy, batch, record)
    assert (policy.gradient_buffer == 0.0).all() and read == [6, 1]


def test_only_the_head_may_learn() -> None:
    model = llama(torch.float64)
    model.model.requires_grad_(False)
    policy = CausalLMPolicy(model)
    batch = micro_batch(policy)
    policy.gradient(batch, torch.ones_like)
    flat = policy.snapshot().requires_grad_(True)
    log_p = row_by_row(policy, batch, flat)
    chosen = log_p.gather(-1, batch.action[..., None])[..., 0]
    expected = torch.autograd.grad(chosen[batch.mask].sum(), flat)[0]
    close(policy.gradient_buffer, expected, rtol=1e-10, atol=1e-12)


def test_layers_of_a_language_model_and_their_gradients() -> None:
    from redline.llm_track.models import load_model
    from redline.llm_track.policy import CausalLMPolicy

    policy = CausalLMPolicy(load_model("tiny").model)
    layers = policy.layers
    covered = sorted(i for parts in layers.values() for p in parts for i in range(p.start, p.stop))
    assert covered == list(range(len(policy.parameters)))
    blocks = policy.model.config.num_hidden_layers
    # The output layer of this model is its embedding.
    assert set(layers) == {"embedding", "norm", *(f"block_{i}" for i in range(blocks))}
