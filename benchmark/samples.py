"""Completions for a blind look: texts in one file, and what the run made of them in another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redline.algorithms.core.arrays import host
from redline.algorithms.core.learner import Seen
from redline.algorithms.core.surrogates import MAX_LOG_RATIO
from redline.algorithms.core.types import Rollout
from redline.benchmark.loggers import JsonLines, read_rows

SAMPLES, KEY = "review.jsonl", "review_key.jsonl"
# What `redline review` writes.
GRADES, REVIEW = "grades.jsonl", "review.json"
REVIEW_FILES = (SAMPLES, KEY, GRADES, REVIEW)

# Completions that are kept of a round.
COUNT = 20


class Sample(NamedTuple):
    """One completion.

    Attributes:
        shown: prompt and completion, which is all that a grader sees.
        hidden: verdict (of the verifier), reward, and mean and largest ratio of its tokens.
    """

    shown: Mapping[str, Any]
    hidden: Mapping[str, Any]


def chosen(seen: Seen) -> list[int]:
    """Rows of a rollout that are kept: evenly spread, whatever they were paid."""
    rows = range(len(seen.batch))[seen.rows]
    return [rows[place] for place in _places(len(rows))]


def _places(rows: int) -> list[int]:
    at = np.unique(np.linspace(0, rows - 1, min(COUNT, rows)).round().astype(int))
    return [int(place) for place in at]


def samples(rollout: Rollout, seen: Seen, texts: Sequence[tuple[str, str]]) -> list[Sample]:
    """The chosen rows of a rollout with the update that learned from them.

    Args:
        rollout: A row is a completion.
        seen: Of that update.
        texts: Prompt and completion of the chosen rows.
    """
    batch = seen.looked_at
    mask = host(batch.mask)
    log_ratio = host(seen.log_prob - batch.old_log_prob).astype(np.float64)
    ratio = np.exp(np.minimum(log_ratio, MAX_LOG_RATIO))
    found = []
    places = _places(len(mask))
    for place, row, (prompt, completion) in zip(places, chosen(seen), texts, strict=True):
        mine = ratio[place][mask[place]]
        verdict = None if rollout.outcome is None else float(rollout.outcome[row])
        hidden = {
            "verdict": verdict,
            "reward": float(rollout.episode_return[row]),
            "ratio_mean": float(mine.mean()),
            "ratio_max": float(mine.max()),
        }
        found.append(Sample({"prompt": prompt, "completion": completion}, hidden))
    return found


class SampleFiles:
    """review.jsonl and review_key.jsonl of a run, joined by a number that tells nothing.

    Args:
        folder: Of the run.
        kept: Names of files that are written on.
    """

    def __init__(self, folder: Path, kept: Collection[str]) -> None:
        self._folder = folder
        self._count = 0
        self._files: tuple[JsonLines, JsonLines] | None = None
        if SAMPLES in kept:
            self._count = sum(1 for _ in read_rows(folder / SAMPLES))
            self._open()

    def _open(self) -> tuple[JsonLines, JsonLines]:
        self._files = JsonLines(self._folder / SAMPLES), JsonLines(self._folder / KEY)
        return self._files

    @property
    def paths(self) -> list[Path]:
        """Of what is written."""
        return [] if self._files is None else [file.path for file in self._files]

    def write(self, step: int, update: int, found: Sequence[Sample]) -> None:
        """Add the samples of an update."""
        shown, hidden = self._files or self._open()
        for sample in found:
            shown.write({"id": self._count, **sample.shown})
            hidden.write({"id": self._count, "step": step, "update": update, **sample.hidden})
            self._count += 1

    def close(self) -> None:
        """Close the files."""
        for file in self._files or ():
            file.close()
