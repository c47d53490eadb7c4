"""Causal language models in miniature, and the plain forward pass that sampling must agree with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from redline.algorithms.core.types import Batch, Evaluation
from redline.llm_track.characters import character_tokenizer
from redline.llm_track.models import LanguageModel, wrap

VOCABULARY = len(character_tokenizer())


def micro_llama(seed: int = 0, context: int = 96) -> Any:
    """Two layers of width 32 with random weights of some size, so that choices are not uniform."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=2,
        max_position_embeddings=context,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        **sizes,
    )
    return _seeded(LlamaForCausalLM, config, seed)


def micro_gpt2(seed: int = 0, context: int = 96) -> Any:
    """The same with learned absolute positions: padding that shifts them changes the output."""
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=context,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return _seeded(GPT2LMHeadModel, config, seed)


def _seeded(kind: Any, config: Any, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).eval()


MICRO = {"llama": micro_llama, "gpt2": micro_gpt2}


def micro_language_model(seed: int = 0, context: int = 96) -> LanguageModel:
    """A micro Llama with the character tokenizer."""
    return wrap("micro", micro_llama(seed, context), character_tokenizer())


@torch.no_grad()
def next_log_probs(model: Any, tokens: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """[V] after a row of real tokens: no padding, no cache, no batch."""
    logits = model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0, -1]
    return torch.log_softmax(logits.float() / temperature, dim=-1)


@dataclass
class PlainPolicy:
    """What a sampler needs of a policy, by the plain forward pass of one row after the other."""

    model: Any
    temperature: float = 1.0

    def asarray(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value)

    def remember(self, observation: Any, mask: Any, states: torch.Tensor) -> None:
        pass

    def evaluate(self, batch: Batch) -> Evaluation:
        log_prob = torch.zeros(batch.mask.shape)
        for i, row in enumerate(batch.observation):
            real = row[:, 0][row[:, 1].bool()].tolist()
            length = int(batch.mask[i].sum())
            for t in range(length):
                before = real[: len(real) - length + t]
                log_probs = next_log_probs(self.model, before, self.temperature)
                log_prob[i, t] = log_probs[batch.action[i, t]]
        return Evaluation(log_prob, -log_prob, ())


def uniform_rows(rng: np.random.Generator, lengths: Sequence[int]) -> list[list[int]]:
    """Rows of random tokens that are neither padding nor the end."""
    return [rng.integers(2, VOCABULARY, size=length).tolist() for length in lengths]
