"""The policy on a causal language model: padding, sampling, precision, frozen parts, copies."""

from typing import Any

import numpy as np
import pytest
import torch
from closeness import close, identical
from micro import MODELS, exact, gpt2, llama, micro_batch, objective_of, sibling

from redline.algorithms.core.closeup import tied_paths
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch
from redline.llm_track.policy import CausalLMPolicy

_REST = ("action", "old_log_prob", "advantage", "mask")


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


def test_the_gradient_of_a_tied_matrix_is_split_by_path() -> None:
    tied, free = (CausalLMPolicy(llama(torch.float64, tied=one)) for one in (True, False))
    with torch.no_grad():
        for name, tensor in tied.trunk.named_parameters():
            free.trunk.get_parameter(name).copy_(tensor)
        free.output.weight.copy_(tied.output.weight)
    batch, objective = micro_batch(tied), objective_of("grpo", Penalties())
    found = tied_paths(tied, batch, objective)
    objective.gradient(free, objective.prepare(batch))
    norms = {
        name: float(np.linalg.norm(np.concatenate([free.gradient_buffer[at] for at in places])))
        for name, places in free.layers.items()
    }
    assert found["train/grad_norm_embedding_path"] == pytest.approx(norms["embedding"], rel=1e-9)
    assert found["train/grad_norm_head_path"] == pytest.approx(norms["head"], rel=1e-9)
    assert tied_paths(free, batch, objective) == {}


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
