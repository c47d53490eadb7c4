"""One of two processes that hold half of a policy each: what they do is what one alone does.

Run with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ACCELERATE_USE_FSDP and FSDP_VERSION in the
environment; ends with an AssertionError where something differs.
"""

from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from language import micro_language_model
from micro import MODELS, micro_batch

from redline.algorithms.core.closeup import CloseUp
from redline.algorithms.core.spread import gradient_norm
from redline.algorithms.core.types import Batch
from redline.llm_track.critic import HeadCritic
from redline.llm_track.generation import Generation, SamplingSettings
from redline.llm_track.lora import add_adapters
from redline.llm_track.models import checkpoint_layers
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.ranks import ALONE, Ranks, RanksError, join
from redline.llm_track.sharding import ShardedLMPolicy


def pair(
    kind: str, ranks: Ranks, frozen: str = "", dtype: Any = torch.float64, **settings: Any
) -> tuple[CausalLMPolicy, ShardedLMPolicy]:
    """The same policy alone and together with the other process."""
    models = [MODELS[kind](dtype) for _ in range(2)]
    for model in models:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not frozen or frozen not in name)
    alone = CausalLMPolicy(models[0], 0.7, **settings)
    return alone, ShardedLMPolicy(models[1], 0.7, ranks=ranks, **settings)


def same_gradient(ranks: Ranks) -> None:
    """In the precision that trains, which is summed in another way."""
    alone, shared = pair("llama", ranks, frozen="embed_tokens", dtype=torch.float32)
    batch = micro_batch(alone, groups=1)
    for policy in (alone, shared):
        policy.gradient(batch, lambda log_prob: (log_prob - log_prob.mean()) / log_prob.numel())
    close(shared.whole(shared.gradient_buffer), alone.gradient_buffer, rtol=0.0, atol=1e-6)


def same_steps(kind: str, ranks: Ranks, groups: int, **settings: Any) -> None:
    """Scores, gradients, norms and parameters over three steps of Adam, one of them undone."""
    alone, shared = pair(kind, ranks, **settings)
    assert len(shared.parameters) < 0.6 * len(alone.parameters)
    assert shared.size == alone.size
    batch = micro_batch(alone, groups=groups)
    adams = [policy.optimizer(1e-5) for policy in (alone, shared)]
    same_state(alone, shared, adams)
    for step in range(3):
        for one, other in zip(derived(alone, batch), derived(shared, batch), strict=True):
            close(other, one, rtol=1e-9, atol=1e-11)
        close(shared.whole(shared.gradient_buffer), alone.gradient_buffer, rtol=1e-9, atol=1e-11)
        before = shared.snapshot()
        for adam in adams:
            adam.step(0.01)
        assert not torch.equal(shared.snapshot(), before)
        if step == 1:
            alone.restore(before)
            shared.restore(before)
            assert torch.equal(shared.snapshot(), before)
    same_state(alone, shared, adams)
    again = shared.optimizer(1e-5)
    again.load_state_dict(adams[0].state_dict())
    assert torch.equal(again.state_dict()["mean"], adams[0].state_dict()["mean"])


def derived(policy: CausalLMPolicy, batch: Batch) -> list[Any]:
    evaluated = policy.evaluate(batch)
    # The weights look at all rows, as a standardised advantage or a clip by quantiles would.
    policy.gradient(batch, lambda log_prob: log_prob - log_prob.mean())
    watch = CloseUp()
    watch.gradient(policy)
    return [
        evaluated.log_prob,
        evaluated.entropy,
        policy.kl(batch, evaluated),
        torch.tensor(gradient_norm(policy)),
        torch.tensor(watch._norms[0]),
        policy.hidden(batch.observation, batch.mask),
    ]


def same_state(alone: CausalLMPolicy, shared: ShardedLMPolicy, adams: list[Any]) -> None:
    """What a checkpoint holds."""
    close(shared.snapshot(), alone.snapshot(), rtol=1e-8, atol=1e-10)
    one, other = (adam.state_dict() for adam in adams)
    assert one["steps"] == other["steps"]
    for name in ("mean", "square"):
        close(other[name], one[name], rtol=1e-8, atol=1e-12)


def same_values(alone: CausalLMPolicy, shared: CausalLMPolicy) -> None:
    """The value head sees the states of all rows."""
    batch = micro_batch(alone, groups=1)
    critics = [HeadCritic(policy, 4, np.random.default_rng(0)) for policy in (alone, shared)]
    for critic in critics:
        critic.module[-1].weight.data.fill_(0.3)
    one, other = (critic.values(batch.observation, batch.mask) for critic in critics)
    assert np.abs(one).max() > 0.0
    close(other, one, rtol=1e-6, atol=1e-6)


def same_completions(ranks: Ranks, prompts: list[str]) -> None:
    """Whoever decodes a prompt, and however long the other process takes."""
    found = []
    for together in (ALONE, ranks):
        made = micro_language_model()
        policy: Any = made
        if together.in_step:
            policy = ShardedLMPolicy(made.model, ranks=together)
        generation = Generation(made, SamplingSettings(max_completion=12), together)
        rows, rng = generation.prompts(prompts), np.random.default_rng(3)
        found.append(generation.complete(policy, rows, 3, rng))
    alone, shared = found
    for name in ("tokens", "mask", "ended"):
        one, other = getattr(alone, name), getattr(shared, name)
        assert one.dtype == other.dtype and np.array_equal(one, other), name
    close(shared.log_prob, alone.log_prob, rtol=1e-5, atol=1e-6)


def refuses_what_needs_all(ranks: Ranks) -> None:
    alone, shared = pair("llama", ranks)
    with pytest.raises(RanksError, match="forward derivatives"):
        shared.fisher_product(micro_batch(alone, groups=1))
    with pytest.raises(RanksError, match="cannot be copied"):
        shared.copy()


def adapts(ranks: Ranks) -> None:
    """Adapters learn beside frozen layers."""
    models = [MODELS["llama"](torch.float64) for _ in range(2)]
    for model in models:
        add_adapters(model, 2, seed=0)
    alone, shared = CausalLMPolicy(models[0]), ShardedLMPolicy(models[1], ranks=ranks)
    batch = micro_batch(alone, groups=1)
    for one, other in zip(derived(alone, batch), derived(shared, batch), strict=True):
        close(other, one, rtol=1e-9, atol=1e-11)
    close(shared.whole(shared.gradient_buffer), alone.gradient_buffer, rtol=1e-9, atol=1e-11)
    assert alone.gradient_buffer.any()


def recomputes(ranks: Ranks) -> None:
    """Layers that recompute their activations in the backward pass."""
    alone, shared = pair("llama", ranks)
    checkpoint_layers(shared.model)
    batch = micro_batch(alone, groups=1)
    for one, other in zip(derived(alone, batch), derived(shared, batch), strict=True):
        close(other, one, rtol=1e-9, atol=1e-11)


def main() -> None:
    ranks = join("cpu")
    assert ranks.count == 2 and ranks.in_step
    same_steps("gpt2", ranks, groups=1)
    # As many rows as passes, an odd number of them, and a large vocabulary's way.
    same_steps("llama", ranks, groups=1, rows=1, chunk=2, full=False)
    same_gradient(ranks)
    same_values(*pair("llama", ranks))
    same_completions(ranks, ["1+2=", "31+4=", "5+600="])
    same_completions(ranks, ["1+2="])  # the second process has no prompt
    refuses_what_needs_all(ranks)
    recomputes(ranks)
    adapts(ranks)
    print("same", ranks.rank)


if __name__ == "__main__":
    main()
