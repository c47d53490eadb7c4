"""The columns of a rollout while it is being collected."""

from __future__ import annotations

import numpy as np

from redline.algorithms.core.types import Array, Bootstrap


class Record:
    """Columns of a rollout under construction."""

    def __init__(self) -> None:
        names = ("observation", "action", "reward", "mask", "terminated", "truncated")
        self._columns: dict[str, list[Array]] = {name: [] for name in names}
        self._stacked: dict[str, Array] = {}
        self._after: list[tuple[int, int, Array]] = []

    def add(self, *columns: Array) -> None:
        """One step of all rows, in the order of the names above."""
        for column, value in zip(self._columns.values(), columns, strict=True):
            column.append(value)

    def bootstrap(self, row: int, column: int, observation: Array) -> None:
        """The state that follows an element which ends without an end state."""
        self._after.append((row, column, observation))

    def stack(self, name: str) -> Array:
        """The column as [B, T, ...]."""
        if name not in self._stacked:
            self._stacked[name] = np.ascontiguousarray(np.array(self._columns[name]).swapaxes(0, 1))
        return self._stacked[name]

    def bootstraps(self, size: int) -> Bootstrap:
        """All of them, observations [K, size]."""
        rows, columns, observations = (
            zip(*self._after, strict=True) if self._after else ((), (), ())
        )
        stacked = np.array(observations, dtype=np.float32).reshape(len(rows), size)
        return Bootstrap(np.array(rows, dtype=int), np.array(columns, dtype=int), stacked)
