"""Micro language models made by transformers, with batches and rollouts for policies on them.

Token 0 is padding and 1 is the end of a sequence, as in `double`.
"""

from dataclasses import replace
from typing import Any

import batches
import numpy as np
import torch
from double import PAD, PromptSampler, lm_batch
from small import small
from torch import nn
from torch.func import functional_call
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.flat import views
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.types import Batch, Need, Rollout
from redline.llm_track.policy import CausalLMPolicy

NO_SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


class ExactNorm(nn.Module):
    """Llama's norm in the precision of its input; the original computes in float32."""

    def __init__(self, norm: LlamaRMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x: Any) -> Any:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def llama(
    dtype: torch.dtype = torch.float32, *, vocabulary: int = 20, tied: bool = False, **sizes: int
) -> Any:
    """Rotary positions and fewer key heads than query heads."""
    chosen = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
    } | sizes
    config = LlamaConfig(vocab_size=vocabulary, tie_word_embeddings=tied, **NO_SPECIAL, **chosen)
    model = _random(LlamaForCausalLM, config).to(dtype)
    if dtype == torch.float64:
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, LlamaRMSNorm):
                    setattr(module, name, ExactNorm(child))
    return model


def gpt2(dtype: torch.dtype = torch.float32, *, vocabulary: int = 20, **sizes: int) -> Any:
    """Learned positions, LayerNorm, dropout in its configuration, tied embeddings."""
    chosen = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64} | sizes
    config = GPT2Config(vocab_size=vocabulary, **NO_SPECIAL, **chosen)
    return _random(GPT2LMHeadModel, config).to(dtype)


def _random(kind: Any, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind(config)
        # transformers draws initial weights so small that all tokens are about equally likely.
        for parameter in model.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


MODELS = {"llama": llama, "gpt2": gpt2}


# How the same policy may be computed: whole, in micro-batches and chunks, with a lazy pi_old.
WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "parts": {"rows": 2, "chunk": 3},
    "one by one": {"rows": 1, "chunk": 1},
    "lazy": {"rows": 4, "chunk": 5, "full": False},
}


def exact(kind: str = "llama", way: str = "whole", **settings: Any) -> CausalLMPolicy:
    """A policy in float64, computed in one of the ways above."""
    chosen = {"temperature": 0.7} | WAYS[way] | settings
    return CausalLMPolicy(MODELS[kind](torch.float64), **chosen)


def objective_of(name: str, penalties: Penalties) -> Objective:
    """The small recipe's objective, a mean over tokens, with other penalties."""
    return replace(batches.objective_of(small(name), penalties), aggregate=Aggregate())


class _Observing:
    """A policy that is shown bare tokens: padding is what comes before a row's first token."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.distribution = policy, policy.distribution

    def act(self, tokens: Any, rng: Any) -> Any:
        real = np.cumsum(tokens != PAD, axis=1) > 0
        return self.policy.act(np.stack([tokens, real], axis=-1), rng)


class MicroSampler(PromptSampler):
    """`PromptSampler` for policies that observe tokens with their attention mask."""

    def complete(self, policy: Any, tokens: Any) -> Any:
        return super().complete(_Observing(policy), tokens)

    def collect(self, policy: Any, need: Need) -> Rollout:
        rollout = super().collect(policy, need)
        tokens = rollout.observation
        prompt = tokens[:, : -rollout.mask.shape[1]] != PAD
        real = np.concatenate([prompt, rollout.mask], axis=1)
        return replace(rollout, observation=np.stack([tokens, real], axis=-1))


def micro_rollout(policy: Any, seed: int = 1, groups: int = 2, group_size: int = 3) -> Rollout:
    """A rollout in which some completions end early."""
    sampler = MicroSampler(np.random.default_rng(seed))
    while True:
        rollout = sampler.collect(policy, Need(groups=groups, group_size=group_size))
        if not rollout.mask.all():
            return rollout


def micro_batch(policy: Any, seed: int = 1, **sizes: int) -> Batch:
    """A rollout with random advantages; pi_old and the reference are random steps away."""
    return lm_batch(policy, micro_rollout(policy, seed, **sizes), seed + 1)


def sibling(policy: CausalLMPolicy, **settings: Any) -> CausalLMPolicy:
    """A copy with other settings."""
    twin = policy.copy()
    for name, value in settings.items():
        setattr(twin, name, value)
    return twin


def row_by_row(policy: CausalLMPolicy, batch: Batch, flat: Any) -> Any:
    """log pi [B, T, V] at other parameters: each row alone, without padding, by the whole model."""
    named = dict(zip(policy.names, views(flat, policy.tensors), strict=True))
    last = batch.mask.shape[1]
    rows = []
    for observation, mask in zip(batch.observation, batch.mask, strict=True):
        tokens, real = observation[:, 0], observation[:, 1].bool()
        inputs = {"input_ids": tokens[real][None]}
        logits = functional_call(policy.model, named, (), inputs).logits[0] / policy.temperature
        # A completion is padded on the right only, so its real tokens are its first ones.
        prompt, count = int(real[:-last].sum()), int(mask.sum())
        log_p = logits[prompt - 1 : prompt - 1 + count].log_softmax(-1)
        rows.append(nn.functional.pad(log_p, (0, 0, 0, last - count)))
    return torch.stack(rows)
