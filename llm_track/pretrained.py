"""Models that others have trained: from a folder, a GGUF file, a package or the hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub.constants import ENDPOINT
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from redline.llm_track import gguf_files

_HOW = (
    "give 'tiny', 'smollm2-135m', a local folder that holds config.json, the weights and the "
    "tokenizer, a .gguf file, or, where there is a network, a hub id such as "
    "HuggingFaceTB/SmolLM2-135M"
)


class ModelError(ValueError):
    """A model that cannot be had or used, in one sentence."""


def pretrained(name: str, kind: Any) -> tuple[Any, Any]:
    """Model, in float32, and tokenizer.

    Args:
        name: A folder that `save_pretrained` wrote, a .gguf file or a folder that holds one,
            "smollm2-135m", or a hub id, whose files are looked for in the hub's cache first.
        kind: A class of transformers with `from_pretrained`, for example AutoModelForCausalLM.

    Raises:
        ModelError: There is no such model.
    """
    # A hub id is NAME or OWNER/NAME: anything else was meant as a folder.
    means_a_folder = name.startswith(("/", ".", "~")) or name.count("/") > 1
    if means_a_folder and not Path(name).exists():
        raise ModelError(f"model {name!r}: there is no such folder; {_HOW}")
    with without_bars():
        try:
            file = gguf_files.find(name)
            return _from_anywhere(name if file is None else str(gguf_files.converted(file)), kind)
        except gguf_files.GGUFError as error:
            raise ModelError(f"model {name!r}: {error}") from error
        except Exception as error:  # the hub's, the network's and the files' errors share no base
            raise ModelError(
                f"model {name!r} cannot be loaded ({first_line(error)}); {_HOW}"
            ) from error


@contextmanager
def without_bars() -> Iterator[None]:
    """Without the progress bars of transformers."""
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def first_line(error: Exception) -> str:
    """What of an error fits into a sentence."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _from_anywhere(name: str, kind: Any) -> tuple[Any, Any]:
    try:
        return _load(name, kind, local=True)
    except OSError:
        if Path(name).is_dir():
            raise
        _require_hub()
        return _load(name, kind, local=False)


def _load(name: str, kind: Any, local: bool) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    model = kind.from_pretrained(name, dtype=torch.float32, local_files_only=local)
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
