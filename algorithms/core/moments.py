"""Mean and variance of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.algorithms.core.types import Array


class RunningMoments:
    """Mean and population variance of a stream, merged exactly (Chan et al. 1979).

    Args:
        shape: Shape of one sample.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 0

    def update(self, batch: Array) -> None:
        """Add samples [N, *shape]."""
        n = len(batch)
        if n == 0:
            return
        batch = np.asarray(batch, dtype=np.float64)
        mean, variance = batch.mean(axis=0), batch.var(axis=0)
        if self.count == 0:
            self.mean, self.variance, self.count = mean, variance, n
            return
        total = self.count + n
        delta = mean - self.mean
        squares = self.variance * self.count + variance * n + delta**2 * self.count * n / total
        self.mean = self.mean + delta * n / total
        self.variance, self.count = squares / total, total

    def state_dict(self) -> dict[str, Any]:
        """Mean, variance, count."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.mean, self.variance = np.asarray(state["mean"]), np.asarray(state["variance"])
        self.count = int(state["count"])
