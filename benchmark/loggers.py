"""Metric files: the JSON-lines files are the source of truth, TensorBoard a view of them."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from redline.benchmark.summaries import Buckets, histogram_value, image_value, layout_value

# Enough for any curve on a screen; every point stays in metrics.jsonl.
_TENSORBOARD_POINTS = 200


def finite(value: Any) -> Any:
    """A value as JSON can hold it: nan and infinity become None, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


class JsonLines:
    """Appends one JSON object per line, each flushed at once; nan and infinity become null."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        self._file.write(json.dumps(finite(row), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON-lines file, up to the first line that is cut short or damaged."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(row, dict):
                return
            yield row


class TensorBoard:
    """Scalars as TensorBoard events, all of one update in one record, written at once.

    The usual writers are too slow here: torch's makes a record per scalar, and TensorBoard's own
    hands records to a thread, which fights with the training loop for the interpreter lock.
    Either costs more than a tenth of a CartPole run.

    Args:
        folder: Where the event file goes.
        total: Steps of the whole run, to thin out long ones.
        name: An event file that is there already and is written on; None: a new one.

    Attributes:
        path: The event file.
        next: Step from which on the next point is written.
    """

    def __init__(self, folder: Path, total: int, name: str | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        fresh = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / (name or fresh)
        self._writer = RecordWriter(self.path.open("ab"))
        if name is None:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            self._values(0, [layout_value()])
        self._every = total / _TENSORBOARD_POINTS
        self.next = 0.0

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def _values(self, step: int, values: Sequence[Any]) -> None:
        summary = self._summary(value=values)
        self._write(self._event(wall_time=time.time(), step=step, summary=summary))

    def due(self, step: int) -> bool:
        """The last point is not very near."""
        return step >= self.next

    def histograms(self, step: int, found: Mapping[str, Buckets]) -> None:
        """Write histograms."""
        self._values(step, [histogram_value(tag, each) for tag, each in found.items()])

    def image(self, step: int, tag: str, png: bytes, width: int, height: int) -> None:
        """Write a picture."""
        self._values(step, [image_value(tag, png, width, height)])

    def scalars(self, step: int, values: Mapping[str, Any], always: bool = False) -> None:
        """Write the finite numbers of `values`, unless the last point is very near."""
        if not (always or self.due(step)):
            return
        if not always:
            self.next = step + self._every
        points = [
            self._summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if "/" in tag and isinstance(value, float) and math.isfinite(value)
        ]
        self._values(step, points)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
