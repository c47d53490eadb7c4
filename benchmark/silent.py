"""A run's folder for the processes that train along with the one that writes it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from redline.benchmark import ranks
from redline.benchmark.breaking import Trips
from redline.benchmark.samples import Sample
from redline.benchmark.summaries import Arrays
from redline.benchmark.writing import RunFolder

if TYPE_CHECKING:
    from redline.algorithms.core.breaker import Trip
    from redline.algorithms.core.learner import Learner


class SilentFolder(RunFolder):
    """The same folder for a process that trains along and writes nothing.

    Args:
        folder: Another process writes it.
    """

    writes = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last = {}
        self.trips = Trips()
        self.left_out = {}
        self.highest_mb = 0.0
        self._started = self._opened = time.time()
        self._elapsed, self._busy = 0.0, -time.process_time()
        self._views = None
        self.state = None

    def log(
        self, step: int, update: int, metrics: Mapping[str, float], arrays: Arrays | None = None
    ) -> None:
        """Nothing."""

    def log_eval(self, step: int, metrics: Mapping[str, float]) -> None:
        """Remember it."""
        self.last = metrics

    def log_samples(self, step: int, update: int, found: Sequence[Sample]) -> None:
        """Nothing."""

    def keep(self, learner: Learner, trip: Trip, step: int, update: int) -> None:
        """Nothing but a part in the snapshot of spread parameters."""
        if ranks.sharded():
            learner.policy.snapshot()


@contextlib.contextmanager
def silent(folder: Path) -> Iterator[RunFolder]:
    """A folder that is not written, for `writing` in its place."""
    yield SilentFolder(folder)
