"""The policy on a causal language model: derivatives, micro-batches, padding, temperature."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import AGGREGATES
from closeness import close, identical
from micro import MODELS, gpt2, llama, micro_batch, row_by_row, sibling
from small import small

from redline.algorithms import registry
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalised import sensitive_kl
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, KLTerm, Progress
from redline.llm_track.policy import CausalLMPolicy

NAMES = registry.names()
START = Progress(0, 1_000_000)

# How the same policy may be computed: whole, in micro-batches and chunks, with a lazy pi_old.
WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "parts": {"rows": 2, "chunk": 3},
    "one by one": {"rows": 1, "chunk": 1},
    "lazy": {"rows": 4, "chunk": 5, "full": False},
}


def exact(kind: str = "llama", way: str = "whole", **settings: Any) -> CausalLMPolicy:
    chosen = {"temperature": 0.7} | WAYS[way] | settings
    return CausalLMPolicy(MODELS[kind](torch.float64), **chosen)


def textbook(name: str, batch: Batch, log_p: Any) -> Any:
    """The mean over tokens of a recipe's objective with entropy 0.3 and k3 0.7."""
    algorithm = small(name)
    log_prob = log_p.gather(-1, batch.action[..., None])[..., 0]
    d = batch.anchor_log_prob - log_prob
    per_element = (
        algorithm.surrogate.objective(
            CausalLMPolicy.xp,
            log_prob=log_prob,
            old_log_prob=batch.old_log_prob,
            advantage=batch.advantage,
            mask=batch.mask,
            bounds=algorithm.clip.bounds(START) if algorithm.clip else None,
        )
        - 0.3 * (log_p.exp() * log_p).sum(-1)
        - 0.7 * (d.exp() - 1.0 - d)
    )
    return torch.where(batch.mask, per_element, 0.0).sum() / batch.mask.sum()


def objective_of(name: str, penalties: Penalties) -> Objective:
    algorithm = small(name)
    bounds = algorithm.clip.bounds(START) if algorithm.clip else None
    return Objective(algorithm.surrogate, AGGREGATES["token_mean"], penalties, bounds, False)


@pytest.mark.parametrize(
    ("kind", "way"), [*(("llama", way) for way in WAYS), ("gpt2", "whole"), ("gpt2", "parts")]
)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_that_of_the_textbook_objective(name: str, kind: str, way: str) -> None:
    policy = exact(kind, way)
    batch = micro_batch(policy)
    objective_of(name, Penalties(0.3, 0.7, "k3")).gradient(policy, batch)
    flat = policy.snapshot().requires_grad_(True)
    expected = torch.autograd.grad(textbook(name, batch, row_by_row(policy, batch, flat)), flat)[0]
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


@pytest.mark.parametrize(("rows", "passes"), [(None, 8), (1, 8 + 2)])
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
    objective.gradient(policy, batch, lambda weights, log_prob: seen.append(log_prob))
    assert set(learned) == {6, 7} and sum(seen_rows) == passes
    close(seen[0], policy.evaluate(batch).log_prob, rtol=1e-9)

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


def test_the_guess_which_rows_matter_changes_no_result() -> None:
    policy = exact()
    batch = micro_batch(policy).with_advantage(torch.zeros(6, 8).double())
    weight = torch.linspace(-1.0, 1.0, 48).view(6, 8).double()
    results = []
    for advantage in (batch.advantage, torch.ones_like(weight), (weight > 0.9).double()):
        policy.gradient(batch.with_advantage(advantage), lambda log_prob: weight)
        results.append(policy.gradient_buffer.clone())
    for other in results[1:]:
        close(other, results[0], rtol=1e-10, atol=1e-12)
    policy.gradient(batch, torch.zeros_like)
    assert (policy.gradient_buffer == 0.0).all() and results[0].abs().max() > 0.1


@pytest.mark.parametrize("kind", MODELS)
def test_padding_is_inert_wherever_it_lies(kind: str) -> None:
    policy = exact(kind)
    batch = micro_batch(policy, groups=3)
    mask, real = batch.mask, batch.observation[..., 1].bool()
    assert not real[:, 0].all()  # some prompts are padded
    dirty = batch.observation.clone()
    dirty[..., 0] = torch.where(real, dirty[..., 0], 10**6)
    wide = torch.zeros(len(mask), real.shape[1] + 3, 2, dtype=torch.int64)
    wide[:, 3:] = batch.observation
    # The last prompt token moves to the left, past a hole.
    holed = torch.cat([torch.zeros_like(wide[:, :1]), batch.observation], dim=1)
    start = real.shape[1] - mask.shape[1]
    holed[:, :start] = batch.observation[:, :start]
    holed[:, start] = 0
    action = torch.where(mask, batch.action, 10**6)
    expected = policy.evaluate(batch)
    for observation in (dirty, wide, holed):
        moved = Batch(
            observation, action, batch.old_log_prob, batch.advantage, mask, batch.reference
        )
        found = policy.evaluate(moved)
        close(found.log_prob, expected.log_prob, rtol=1e-11, atol=1e-13)
        close(policy.kl(moved), policy.kl(batch), rtol=1e-9, atol=1e-12)


def test_a_mask_that_disagrees_with_the_tokens_is_refused() -> None:
    policy = exact()
    batch = micro_batch(policy)
    for broken in ("padding", "no prompt"):
        observation = batch.observation.clone()
        last = batch.mask.shape[1]
        part = slice(-last, None) if broken == "padding" else slice(0, -last)
        observation[0, part, 1] = 0
        changed = Batch(observation, *(getattr(batch, name) for name in _REST))
        with pytest.raises(ValueError, match="the mask disagrees with the observation, or a prom"):
            policy.evaluate(changed)


_REST = ("action", "old_log_prob", "advantage", "mask")


def test_dropout_is_off_and_the_ratio_is_1() -> None:
    model = gpt2().train()
    assert model.config.resid_pdrop > 0.0
    policy = CausalLMPolicy(model)
    batch = micro_batch(policy)
    seen: list[Any] = []
    policy.gradient(batch, lambda log_prob: seen.append(log_prob) or torch.ones_like(log_prob))
    identical(seen[0], policy.evaluate(batch).log_prob)


def test_act_draws_from_what_evaluate_scores() -> None:
    policy = exact()
    batch = micro_batch(policy)
    evaluation = policy.evaluate(batch)
    last = batch.mask.shape[1]
    for t in range(last):
        valid = batch.mask[:, t]
        seen = batch.observation[:, : batch.observation.shape[1] - last + t]
        log_p = policy.predict(seen.numpy())[0][valid.numpy()]
        close(log_p, evaluation.params[0][:, t][valid], rtol=1e-9)
    tokens = [policy.act(seen.numpy(), np.random.default_rng(k)) for k in range(400)]
    share = np.mean(np.array(tokens) == policy.act(seen.numpy(), None), axis=0)
    expected = np.exp(policy.predict(seen.numpy())[0].max(axis=-1))
    assert np.abs(share - expected).max() < 0.1


def test_bfloat16_is_scored_in_float32() -> None:
    wide = CausalLMPolicy(llama(torch.bfloat16).float())
    policy = CausalLMPolicy(llama(torch.bfloat16), rows=2)
    batch = micro_batch(wide)
    for way in (policy, sibling(policy, full=False)):
        evaluation = way.evaluate(batch)
        assert evaluation.log_prob.dtype == torch.float32
        exact_sum = evaluation.params[0] if way.full else evaluation.params[0].dense()
        mass = exact_sum.exp().sum(-1)[batch.mask]
        close(mass, torch.ones_like(mass), rtol=2e-6)
        objective_of("grpo", Penalties(0.1, 0.1)).gradient(way, batch)
        objective_of("grpo", Penalties(0.1, 0.1)).gradient(wide, batch)
        error = (way.gradient_buffer.float() - wide.gradient_buffer).norm()
        assert way.gradient_buffer.dtype == torch.bfloat16
        assert error < 0.05 * wide.gradient_buffer.norm()


def test_frozen_parameters_stay_out_of_the_flat_vector() -> None:
    model = llama(torch.float64, tied=True)
    whole = CausalLMPolicy(llama(torch.float64, tied=True))
    model.model.embed_tokens.weight.requires_grad_(False)
    policy = CausalLMPolicy(model, rows=2)
    assert policy.parameters.numel() == whole.parameters.numel() - 20 * 16
    batch = micro_batch(whole)
    for one in (whole, policy):
        one.gradient(batch, torch.ones_like)
    close(policy.gradient_buffer, whole.gradient_buffer[20 * 16 :], rtol=1e-10, atol=1e-12)
    assert model.model.embed_tokens.weight.grad is None


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


def test_a_copy_is_independent_and_large_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = exact(way="lazy")
    batch = micro_batch(policy)
    before = policy.evaluate(batch).log_prob
    twin = policy.copy()
    identical(twin.evaluate(batch).log_prob, before)
    assert (twin.rows, twin.chunk, twin.full, twin.temperature) == (4, 5, False, 0.7)
    twin.parameters += 0.1
    identical(policy.evaluate(batch).log_prob, before)
    assert (twin.evaluate(batch).log_prob != before)[batch.mask].all()
    monkeypatch.setattr("redline.llm_track.policy.MAX_COPY", 1000)
    with pytest.raises(ValueError, match="keeps several copies of the policy"):
        policy.copy()


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature of a policy that learns must be positive"):
        CausalLMPolicy(llama(), temperature=0.0)
    capped = llama()
    forward = capped.forward

    def soft_capped(**inputs: Any) -> Any:
        output = forward(**inputs)
        output.logits = 30.0 * torch.tanh(output.logits / 30.0)
        return output

    capped.forward = soft_capped
    with pytest.raises(ValueError, match="LlamaForCausalLM is not supported: its logits are not"):
        CausalLMPolicy(capped)
    with pytest.raises(ValueError, match="one precision and device, found none"):
        CausalLMPolicy(llama().requires_grad_(False))
