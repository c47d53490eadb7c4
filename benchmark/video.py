"""Pictures to an mp4 file, by ffmpeg as the package imageio-ffmpeg brings it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from redline.algorithms.core.types import Array
from redline.benchmark.errors import BadInput
from redline.benchmark.files import replacing


def require_encoder() -> None:
    """Refuse, with the way to install it, where there is no encoder.

    Raises:
        BadInput: The package is missing.
    """
    if find_spec("imageio_ffmpeg") is None:
        raise BadInput(
            "a film needs imageio-ffmpeg, which is not installed; pip install 'redline-rl[video]'"
        )


def require_file(path: Path) -> None:
    """Refuse what cannot become a film, and make its folder.

    Raises:
        BadInput: Another kind of file, or nothing can be written there.
    """
    if path.suffix.lower() != ".mp4" or path.is_dir():
        raise BadInput(f"a film is a file that ends in .mp4, got {str(path)!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(_Checked), replacing(path) as temporary:
            temporary.touch()
            raise _Checked
    except OSError as error:
        raise BadInput(f"cannot write to {path}: {error.strerror or error}") from error


class _Checked(Exception):
    """The file could be written; nothing is to be left of it."""


@contextlib.contextmanager
def film(path: Path, fps: float) -> Iterator[Callable[[Array], None]]:
    """Where to send pictures [H, W, 3] uint8; the file appears once the block has ended well.

    Raises:
        OSError: The encoder could not write all of them.
    """
    with replacing(path) as temporary:
        encoder = _Encoder(temporary, fps)
        try:
            yield encoder.send
        finally:
            encoder.close()
        if encoder.written() != encoder.sent:
            raise OSError(f"the film in {path} could not be completed; is the disk full?")


class _Encoder:
    """ffmpeg, which starts with the first picture: only that tells the size."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._fps = path, fps
        self._process: Generator[Any, Any, None] | None = None
        self.sent = 0

    def send(self, picture: Array) -> None:
        import imageio_ffmpeg

        if self._process is None:
            height, width, _ = picture.shape
            self._process = imageio_ffmpeg.write_frames(
                str(self._path),
                (width, height),
                fps=self._fps,
                macro_block_size=2,  # the least that players take: even sizes
                ffmpeg_log_level="error",
                output_params=["-f", "mp4"],  # the temporary name does not tell
            )
            self._process.send(None)
        self._process.send(np.ascontiguousarray(picture))
        self.sent += 1

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def written(self) -> int:
        """Pictures in the file: ffmpeg's own exit status is not passed on."""
        import imageio_ffmpeg

        try:
            count: int = imageio_ffmpeg.count_frames_and_secs(str(self._path))[0]
        except RuntimeError:
            return 0
        return count
