"""Demonstrations to imitate: from a file, or made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redline.llm_track.arithmetic import Addition, direct, question, worked


class DemonstrationError(ValueError):
    """A file that holds no demonstrations, in one sentence."""


class Demonstration(NamedTuple):
    """A prompt and a completion to imitate."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Habits:
    """Demonstrations of addition in two habits.

    Attributes:
        task: Which sums.
        worked_share: Part of the demonstrations that show the work; the others answer at once.
    """

    task: Addition = Addition()
    worked_share: float = 0.3

    def batches(self, rng: np.random.Generator, size: int) -> Iterator[list[Demonstration]]:
        """Endless batches of new training problems."""
        while True:
            problems = self.task.training(rng, size)
            shows_work = rng.random(size) < self.worked_share
            yield [
                Demonstration(f"{question(p)}=", worked(p) if shows else direct(p))
                for p, shows in zip(problems, shows_work, strict=True)
            ]


def read_jsonl(
    path: Path, prompt: str = "prompt", completion: str = "answer"
) -> list[Demonstration]:
    """Demonstrations from a file with one JSON object a line.

    Args:
        path: The file.
        prompt: Column that holds what the model reads.
        completion: Column that holds what it shall answer.

    Raises:
        DemonstrationError: The file cannot be read, is empty, or a line lacks a column or holds
            something else than text in it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DemonstrationError(f"{path} cannot be read: it is not UTF-8 text") from error
    except OSError as error:
        raise DemonstrationError(f"{path} cannot be read: {error.strerror or error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = _row(line, f"{path}, line {number}")
            found.append(Demonstration(*(row.text(column) for column in (prompt, completion))))
    if not found:
        raise DemonstrationError(f"{path} is empty: it holds no demonstrations")
    return found


@dataclass(frozen=True)
class _Row:
    """One object of a file, and where it stands there."""

    entries: dict[str, Any]
    place: str

    def text(self, column: str) -> str:
        if column not in self.entries:
            raise DemonstrationError(
                f"{self.place} has no column {column!r}; it has {', '.join(self.entries) or 'none'}"
            )
        value = self.entries[column]
        if not isinstance(value, str):
            raise DemonstrationError(f"{self.place}: {column} must be text, got {value!r}"[:200])
        return value


def _row(line: str, place: str) -> _Row:
    try:
        entries = json.loads(line)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict):
        raise DemonstrationError(f"{place} must be one JSON object, got {line[:60]!r}")
    return _Row(entries, place)


def shuffled(
    demonstrations: Sequence[Demonstration], rng: np.random.Generator, size: int
) -> Iterator[list[Demonstration]]:
    """Endless batches; every demonstration once before any comes again."""
    queue: list[int] = []
    while True:
        while len(queue) < size:
            queue += rng.permutation(len(demonstrations)).tolist()
        chosen, queue = queue[:size], queue[size:]
        yield [demonstrations[i] for i in chosen]
