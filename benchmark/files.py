"""Files that several processes may want: held by one of them, and replaced in one step."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from redline.benchmark.errors import BadInput

_LOCK = ".lock"


class Busy(OSError):
    """Another process, or another part of this one, holds the folder."""


class Hold:
    """A folder that is held until `release`, or until the process ends, however it does.

    Raises:
        Busy: It is held already.
        OSError: It cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._file: TextIO = (folder / _LOCK).open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise Busy(f"another process is writing to {folder}") from error
        except OSError:
            self._file.close()
            raise

    def release(self) -> None:
        """Let go. Said outright: a child process may have inherited the open file."""
        if not self._file.closed:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write the new content of `path`; a reader sees the old file or the new one.

    A block that fails leaves the old file as it was and no other behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_temporary(folder: Path, name: str) -> None:
    """What processes left that were ended while they replaced a file."""
    for path in folder.glob(f".{name}.*tmp"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def written_at_the_end(folder: Path) -> Iterator[Path]:
    """Where to write files that shall lie in `folder` once all of them are whole.

    Raises:
        BadInput: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = TemporaryDirectory(prefix=".", suffix=".tmp", dir=folder)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror or error}") from error
    with temporary as name:
        yield Path(name)
        for path in sorted(Path(name).iterdir()):
            path.replace(folder / path.name)
