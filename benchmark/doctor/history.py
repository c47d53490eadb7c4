"""A run's files as arrays, with the few questions that rules ask of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from redline.benchmark.errors import BadInput
from redline.benchmark.loggers import read_rows
from redline.benchmark.runs import read_run
from redline.benchmark.tracks import LANGUAGE, track_of

Series = npt.NDArray[np.float64]

# A mean over so many updates stands for an update: single ones are noisy.
_WIDTH = 5
# A language model that is right so often has nothing left to gain.
_SOLVED = 0.95


class Stretch(NamedTuple):
    """Updates `first` to `last`, both included."""

    first: int
    last: int

    @property
    def slice(self) -> slice:
        """To index a series with."""
        return slice(self.first, self.last + 1)


@dataclass(frozen=True)
class History:
    """What a run left.

    Attributes:
        record: run.json.
        metrics: Name -> value per update; nan where there was none.
        evals: Name -> value per evaluation.
        review: What `redline review` found; empty where nothing was graded.
    """

    record: Mapping[str, Any]
    metrics: Mapping[str, Series]
    evals: Mapping[str, Series] = field(default_factory=dict)
    review: Mapping[str, Any] = field(default_factory=dict)

    @property
    def updates(self) -> int:
        """How many."""
        return len(self.metrics.get("step", ()))

    @property
    def whole(self) -> Stretch:
        """All updates."""
        return Stretch(0, max(0, self.updates - 1))

    @property
    def on_language(self) -> bool:
        """The task is one of a language model."""
        return track_of(self.record["run"]["task"]) is LANGUAGE

    def recipe(self, name: str) -> Any:
        """A setting of the method; None where it has no such setting."""
        return self.record["recipe"].get(name)

    def series(self, name: str) -> Series | None:
        """A metric; None where the run has not got it."""
        values = self.metrics.get(name)
        return None if values is None or np.isnan(values).all() else values

    def smooth(self, name: str) -> Series | None:
        """A metric's running mean, centred; values that are missing do not count."""
        values = self.series(name)
        return None if values is None else running_mean(values)

    def lasting(self, condition: npt.NDArray[np.bool_], share: float) -> Stretch | None:
        """The longest row of updates that a condition holds for; None where it is too short."""
        edges = np.flatnonzero(np.diff(np.concatenate([[0], condition.astype(np.int8), [0]])))
        if not len(edges):
            return None
        first, end = edges[::2], edges[1::2]
        longest = int(np.argmax(end - first))
        found = Stretch(int(first[longest]), int(end[longest]) - 1)
        enough = max(2, round(share * self.updates))
        return found if found.last - found.first + 1 >= enough else None

    def burst(self, condition: npt.NDArray[np.bool_], least: int) -> Stretch | None:
        """From the first to the last update of a condition; None where they are too few."""
        at = np.flatnonzero(condition)
        return Stretch(int(at[0]), int(at[-1])) if len(at) >= least else None

    def between(self, at: Stretch) -> tuple[int, int]:
        """Steps of a stretch of updates."""
        step = self.metrics.get("step")
        return (
            (0, 0) if step is None or not len(step) else (int(step[at.first]), int(step[at.last]))
        )

    def stalled(self, gain: float) -> str | None:
        """A clause that says so where the evaluation has not grown; None where it has.

        It compares the mean of the last third of the evaluations with the one before training, of
        the policy that samples.
        """
        values = self.evals.get(track_of(self.record["run"]["task"]).untrained)
        if values is None or len(values) < 2:
            return None
        start, later = values[0], float(values[1:][-max(1, len(values) // 3) :].mean())
        if self.on_language and later >= _SOLVED:
            return None
        if not later - start <= gain * max(abs(start), 1e-9):
            return None
        return f"and the evaluation has stalled: {start:.4g} at the start, {later:.4g} at the end"


def running_mean(values: Series) -> Series:
    """Mean over up to five neighbours, without those that are nan."""
    known = np.isfinite(values)
    box = np.ones(min(_WIDTH, len(values)))
    total = np.convolve(np.where(known, values, 0.0), box, mode="same")
    count = np.convolve(known.astype(float), box, mode="same")
    with np.errstate(invalid="ignore"):
        mean: Series = np.where(count > 0, total / count, np.nan)
    return mean


def read(folder: Path) -> History:
    """The history of a run, as far as it is written.

    Raises:
        BadInput: There is no readable run.json.
    """
    record = read_run(folder)
    if record is None:
        raise BadInput(f"{folder} holds no run: there is no readable run.json")
    review: Any = {}
    with contextlib.suppress(OSError, ValueError):
        review = json.loads((folder / "review.json").read_text(encoding="utf-8"))
    return History(
        record,
        _table(folder / "metrics.jsonl"),
        _table(folder / "eval.jsonl"),
        review if isinstance(review, dict) else {},
    )


def _table(path: Path) -> dict[str, Series]:
    rows = list(read_rows(path))
    names = {name: None for row in rows for name in row}
    return {name: np.array([_number(row.get(name)) for row in rows]) for name in names}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
