"""Metric files: the JSON-lines files are the source of truth, TensorBoard a view of them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

# Enough for any curve on a screen; every point stays in metrics.jsonl.
_TENSORBOARD_POINTS = 500


class JsonLines:
    """Appends one JSON object per line, each flushed at once; nan and infinity become null."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        clean = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        self._file.write(json.dumps(clean) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON-lines file; a last line that was cut short is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                return


class TensorBoard:
    """Scalars as TensorBoard events, all of one update in one record.

    torch's SummaryWriter writes a record per scalar, which at 40 scalars an update would take a
    fifth of a CartPole run.

    Args:
        folder: Where the event file goes.
        total: Steps of the whole run, to thin out long ones.
    """

    def __init__(self, folder: Path, total: int) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))
        self._every = total / _TENSORBOARD_POINTS
        self._next = 0.0

    def scalars(self, step: int, values: Mapping[str, Any], always: bool = False) -> None:
        """Write the finite numbers of `values`, unless the last point is very near."""
        if step < self._next and not always:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not always:
            self._next = step + self._every
        points = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if "/" in tag and isinstance(value, float) and math.isfinite(value)
        ]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=points))
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is pending."""
        self._writer.close()
