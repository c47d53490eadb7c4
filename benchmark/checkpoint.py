"""Checkpoints: written to a temporary file, then renamed; read without executing code."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from redline.benchmark.files import replacing

FORMAT = 1
NAME = "checkpoint.pt"


def _to_tensors(value: Any) -> Any:
    """numpy arrays as tensors: torch.load(weights_only=True) refuses the former."""
    import torch

    if isinstance(value, np.ndarray | np.generic):
        return torch.as_tensor(np.array(value))
    if isinstance(value, Mapping):
        return {key: _to_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_tensors(item) for item in value]
    return value


def to_numpy(value: Any) -> Any:
    """Tensors as numpy arrays, recursively; those of a type that numpy lacks stay."""
    import torch

    if isinstance(value, torch.Tensor):
        return value if value.dtype == torch.bfloat16 else value.numpy()
    if isinstance(value, Mapping):
        return {key: to_numpy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_numpy(item) for item in value]
    return value


def save(folder: Path, state: Mapping[str, Any]) -> None:
    """Write `folder`/checkpoint.pt; a reader sees the old file or the new one, never a part."""
    import torch

    # Through memory: torch hides a full disk behind an error of its own.
    content = io.BytesIO()
    torch.save(_to_tensors({"format": FORMAT, **state}), content)
    with replacing(folder / NAME) as temporary, temporary.open("wb") as file:
        file.write(content.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def load(folder: Path) -> dict[str, Any]:
    """The state that `save` wrote, arrays as numpy.

    Raises:
        FileNotFoundError: No checkpoint there.
        ValueError: Written by a newer version of Redline, or something else altogether.
    """
    import torch

    state = to_numpy(torch.load(folder / NAME, map_location="cpu", weights_only=True))
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise ValueError(f"{folder / NAME} is no checkpoint of Redline")
    if state["format"] > FORMAT:
        raise ValueError(
            f"{folder / NAME} has format {state['format']}, this version reads {FORMAT}"
        )
    return state
