"""Causal language models and their tokenizers: one that ships, or any that transformers loads."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub.constants import ENDPOINT
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GradientCheckpointingLayer,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.utils import logging as transformers_logging

from redline.llm_track.characters import character_tokenizer
from redline.llm_track.text import TextTokenizer

TINY = "tiny"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_TIED = "lm_head.weight"  # the embedding itself
_HOW = (
    "give 'tiny', a local folder that holds config.json, the weights and the tokenizer, or, where "
    "there is a network, a hub id such as HuggingFaceTB/SmolLM2-135M"
)


class ModelError(ValueError):
    """A model that cannot be had or used, in one sentence."""


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
    """The model that ships, one from a folder, or one from the Hugging Face hub.

    Args:
        name: "tiny", a folder that `save_pretrained` wrote, or a hub id.
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
        model, tokenizer = _pretrained(name)
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
    with _without_bars():
        try:
            language_model.model.save_pretrained(folder)
            language_model.tokenizer.tokenizer.save_pretrained(folder)
        except SafetensorError as error:  # hides what the system said
            raise OSError(f"cannot write {folder}: {_first_line(error)}") from error


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


def _pretrained(name: str) -> tuple[Any, Any]:
    """Model and tokenizer from a folder, from the hub's cache, or from the hub."""
    # A hub id is NAME or OWNER/NAME: anything else was meant as a folder.
    means_a_folder = name.startswith(("/", ".", "~")) or name.count("/") > 1
    if means_a_folder and not Path(name).is_dir():
        raise ModelError(f"model {name!r}: there is no such folder; {_HOW}")
    with _without_bars():
        try:
            try:
                return _load(name, local=True)
            except OSError:
                if Path(name).is_dir():
                    raise
                _require_hub()
                return _load(name, local=False)
        except Exception as error:  # the hub's, the network's and the files' errors share no base
            raise ModelError(
                f"model {name!r} cannot be loaded ({_first_line(error)}); {_HOW}"
            ) from error


@contextmanager
def _without_bars() -> Iterator[None]:
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _load(name: str, local: bool) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, local_files_only=local)
    return model, tokenizer


def _require_hub() -> None:
    """Fail at once where the client would try again for most of a minute.

    Raises:
        OSError: There is no network.
    """
    if "https" in getproxies():
        return  # names are then not looked up here
    address = urlsplit(ENDPOINT)
    with socket.create_connection((address.hostname, address.port or 443), timeout=10):
        pass


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ModelError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"device {name!r} cannot be used: {_first_line(error)}") from error
    return device
