"""Files that a measurement writes as it goes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from redline.benchmark.errors import BadInput
from redline.benchmark.files import replacing


def require_writable(paths: Mapping[str, Path | None]) -> None:
    """Make the folders of files, and refuse what could not be written after the work.

    Args:
        paths: Name of the flag -> the file, None where none was asked for.

    Raises:
        BadInput: The folder cannot be made or written, or the path is a folder.
    """
    for flag, path in paths.items():
        if path is None:
            continue
        folder = path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            said = error.strerror or error
            raise BadInput(f"{flag} {path}: cannot make the folder {folder}: {said}") from error
        if path.is_dir():
            raise BadInput(f"{flag} {path} is a folder; give the path of a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BadInput(f"{flag} {path}: cannot write to the folder {folder}")


def write_rows(path: Path | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSON list of rows; nothing where `path` is None.

    Raises:
        OSError: The file cannot be written.
    """
    write_text(path, json.dumps(list(rows), indent=1, allow_nan=False) + "\n")


def write_text(path: Path | None, text: str) -> None:
    """Replace a file in one step; nothing where `path` is None.

    Raises:
        OSError: The file cannot be written.
    """
    if path is None:
        return
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_repeats(repeats: int) -> None:
    """Refuse a number of repeats that measures nothing.

    Raises:
        BadInput: Below 1.
    """
    if repeats < 1:
        raise BadInput(f"--repeats must be at least 1, got {repeats}")


def spread(values: Sequence[float]) -> str:
    """Smallest and largest value in brackets."""
    return f"[{min(values):.2f}, {max(values):.2f}]"
