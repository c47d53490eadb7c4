"""Seconds and peak memory of the phases of an update."""

from __future__ import annotations

import time

from redline.algorithms.core.types import Metrics
from redline.benchmark.machine import peak_memory_mb, reset_peak_memory


class Phases:
    """Measures the phases of one update after another: collect, advantage, policy.

    Attributes:
        metrics: Of the phases that have ended: time/NAME in seconds, memory/NAME_mb in MiB.
    """

    def __init__(self) -> None:
        self.metrics: Metrics = {}
        self._began = 0.0

    def begin(self) -> None:
        """The first phase begins."""
        self.metrics = {}
        self._next()

    def end(self, name: str) -> None:
        """A phase has ended, and the next one begins."""
        self.metrics[f"time/{name}"] = time.perf_counter() - self._began
        self.metrics[f"memory/{name}_mb"] = peak_memory_mb()
        self._next()

    def _next(self) -> None:
        reset_peak_memory()
        self._began = time.perf_counter()

    @property
    def peak_mb(self) -> float:
        """The highest of the phases' peaks."""
        return max(value for name, value in self.metrics.items() if name.startswith("memory/"))
