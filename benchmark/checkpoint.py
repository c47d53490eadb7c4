"""Checkpoints: written to a temporary file, then renamed; read without executing code.

The one before the last is kept while a run trains, for when the last turns out to be damaged.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from redline.benchmark.files import replacing

FORMAT = 1
NAME = "checkpoint.pt"
PREVIOUS = "checkpoint-previous.pt"

_log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A file that is no whole checkpoint for this version, in one sentence."""


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
    with _written(folder / NAME, {"format": FORMAT, **state}):
        if (folder / NAME).exists():
            (folder / NAME).replace(folder / PREVIOUS)


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Write any file of arrays, in one step."""
    with _written(path, state):
        pass


@contextlib.contextmanager
def _written(path: Path, state: Mapping[str, Any]) -> Iterator[None]:
    """A file that is there in full when the block begins, and under its name when it ends."""
    import torch

    # Through memory: torch hides a full disk behind an error of its own.
    content = io.BytesIO()
    torch.save(_to_tensors(state), content)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content.getbuffer())
        file.flush()
        os.fsync(file.fileno())
        yield


def present(folder: Path) -> bool:
    """There is a checkpoint, whatever is in it."""
    return any((folder / name).is_file() for name in (NAME, PREVIOUS))


def candidates(folder: Path) -> Iterator[dict[str, Any]]:
    """Readable checkpoints, the last first; a damaged one is named in a warning."""
    for name in (NAME, PREVIOUS):
        path = folder / name
        if not path.is_file():
            continue
        try:
            yield _read(path)
        except CheckpointError as error:
            _log.warning("%s", error)
        except Exception as error:  # whatever a damaged file does to the reader
            _log.warning("%s cannot be read (%s)", path, type(error).__name__)


def load(folder: Path) -> dict[str, Any]:
    """The state that `save` wrote, arrays as numpy.

    Raises:
        FileNotFoundError: No checkpoint there.
        CheckpointError: It is damaged, written by a newer version of Redline, or something else
            altogether.
        Exception: Whatever torch's reader makes of what is in it; no code of it is executed.
    """
    # Between the renames of `save` only the one before the last has its name.
    cut = not (folder / NAME).exists() and (folder / PREVIOUS).exists()
    return _read(folder / (PREVIOUS if cut else NAME))


def _read(path: Path) -> dict[str, Any]:
    import torch

    _require_whole(path)
    state = to_numpy(torch.load(path, map_location="cpu", weights_only=True))
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise CheckpointError(f"{path} is no checkpoint of Redline")
    if state["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {state['format']}, this version of Redline reads {FORMAT}"
        )
    return state


def _require_whole(path: Path) -> None:
    """Compare the content with its checksums, which torch's reader does not.

    Raises:
        CheckpointError: It is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{path} is empty or cut short, or no checkpoint") from error
    if broken is not None:
        raise CheckpointError(f"{path} is damaged: its content does not match its checksum")
