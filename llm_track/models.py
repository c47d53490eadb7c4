"""Causal language models and their tokenizers: one that ships, or any that transformers loads."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GradientCheckpointingLayer,
    LlamaConfig,
    LlamaForCausalLM,
)

from redline.llm_track.characters import character_tokenizer
from redline.llm_track.pretrained import ModelError, first_line, pretrained, without_bars
from redline.llm_track.text import TextTokenizer

TINY = "tiny"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_TIED = "lm_head.weight"  # the embedding itself


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model and how text becomes tokens.

    Attributes:
        name: As it was asked for.
        model: A transformers causal LM on its device, in evaluation mode.
        tokenizer: Its tokenizer.
        context: Most tokens of prompt and completion together.
    """

    name: str
    model: Any
    tokenizer: TextTokenizer
    context: int


def load_model(name: str = TINY, dtype: str = "float32", device: str = "cpu") -> LanguageModel:
    """The model that ships, or one that transformers loads.

    Args:
        name: "tiny", or what `pretrained` takes.
        dtype: A key of `DTYPES`.
        device: As torch names it.

    Raises:
        ModelError: There is no such model, dtype or device.
    """
    kind, place = _dtype(dtype), _device(device)
    if name == TINY:
        model: Any = tiny_model(seed=0)
        with as_file(files("redline.llm_track") / "assets" / "tiny.safetensors") as path:
            load_weights(model, path)
        tokenizer: Any = character_tokenizer()
    else:
        model, tokenizer = pretrained(name, AutoModelForCausalLM)
    return wrap(name, model.to(dtype=kind, device=place), tokenizer)


def wrap(name: str, model: Any, tokenizer: Any) -> LanguageModel:
    """A model and a transformers tokenizer as the track uses them.

    Raises:
        ModelError: The tokenizer has no end of sequence.
    """
    if tokenizer.eos_token_id is None:
        raise ModelError(f"model {name!r}: its tokenizer names no end-of-sequence token")
    context = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    return LanguageModel(name, model.eval(), TextTokenizer(tokenizer), int(context))


def tiny_model(seed: int) -> LlamaForCausalLM:
    """A Llama of 0.66 million parameters with random weights: 3 layers of width 128.

    One token per character, see `characters`.
    """
    tokenizer = character_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def load_weights(model: nn.Module, path: Path) -> None:
    """Weights of a model with tied embeddings, as `save_model` writes them."""
    weights = load_file(path)
    model.load_state_dict(weights | {_TIED: weights["model.embed_tokens.weight"]})


def save_model(language_model: LanguageModel, folder: Path) -> None:
    """Write a folder that `load_model` reads: settings, weights and tokenizer.

    Raises:
        OSError: It cannot be written.
    """
    with without_bars():
        try:
            language_model.model.save_pretrained(folder)
            language_model.tokenizer.tokenizer.save_pretrained(folder)
        except SafetensorError as error:  # hides what the system said
            raise OSError(f"cannot write {folder}: {first_line(error)}") from error


def checkpoint_layers(model: nn.Module) -> None:
    """Recompute activations in the backward pass instead of keeping them.

    Call it after whatever puts the model into evaluation mode. transformers recomputes only in
    layers that are in training mode, so that flag is set on them alone: what they hold (dropout)
    stays in evaluation mode.

    Raises:
        ModelError: The model has no layers that can do so.
    """
    layers = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(f"{type(model).__name__} cannot recompute activations")
    model.activation_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    for layer in layers:
        layer.training = True


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ModelError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"device {name!r} cannot be used: {first_line(error)}") from error
    return device
