"""What is derived from a run's metrics for looking at: TensorBoard events, and histograms."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

from redline.benchmark import heatmap
from redline.benchmark.loggers import JsonLines, TensorBoard, read_rows
from redline.benchmark.summaries import Arrays, buckets

HISTOGRAMS = "histograms.jsonl"
EVENTS = "events.out.tfevents.*"


class Views:
    """TensorBoard's file of a run, and histograms.jsonl beside it.

    Args:
        folder: Of the run.
        steps: Its budget, to thin out what is written.
        kept: Names of files that are written on; others are made.
    """

    def __init__(self, folder: Path, steps: int, kept: Collection[str]) -> None:
        events = next((name for name in kept if name.startswith(EVENTS.rstrip("*"))), None)
        self._folder = folder
        self._tensorboard = TensorBoard(folder, steps, events)
        self._histograms = JsonLines(folder / HISTOGRAMS) if HISTOGRAMS in kept else None

    @property
    def paths(self) -> list[Path]:
        """Of every file that is written."""
        found = [] if self._histograms is None else [self._histograms.path]
        return [self._tensorboard.path, *found]

    @property
    def next(self) -> float:
        """Step of the next point."""
        return self._tensorboard.next

    @next.setter
    def next(self, step: float) -> None:
        self._tensorboard.next = step

    def update(self, step: int, metrics: Mapping[str, float], arrays: Arrays | None) -> None:
        """Show an update, unless the last point is very near; histograms where there are arrays."""
        if arrays is not None and self._tensorboard.due(step):
            found = buckets(*arrays())
            if self._histograms is None:
                self._histograms = JsonLines(self._folder / HISTOGRAMS)
            row = {name: each.to_json() for name, each in found.items()}
            self._histograms.write({"step": step, **row})
            self._tensorboard.histograms(step, found)
        self._tensorboard.scalars(step, metrics)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show an evaluation, and the gradient norms of all layers so far where there are any."""
        self._tensorboard.scalars(step, metrics, always=True)
        layers, norms = heatmap.table(read_rows(self._folder / "metrics.jsonl"))
        if layers:
            self._tensorboard.image(step, "gradient norms", *heatmap.picture(layers, norms))

    def close(self) -> None:
        """Close the files."""
        with contextlib.ExitStack() as files:
            for file in (self._tensorboard, self._histograms):
                if file is not None:
                    files.callback(file.close)
