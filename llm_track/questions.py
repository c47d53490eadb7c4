"""Questions from data sets: GSM8K and MATH from the hub, and any file."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from redline.llm_track.problems import Problem, TaskSettings
from redline.llm_track.prompts import render
from redline.llm_track.records import (
    Columns,
    Record,
    Split,
    identity,
    read_file,
    read_hub,
    without,
)
from redline.llm_track.split import TaskError, is_held_out
from redline.llm_track.verifier import Verdict, judge, readable

_log = logging.getLogger(__name__)

_QUESTIONS = Columns("question", "answer")


@dataclass(frozen=True)
class DataSet:
    """Where the questions of a task come from when no file is given, and how they are asked.

    Attributes:
        prompt: Template.
        columns: Of files.
        training: On the hub; None: there is nothing on the hub.
        held_out: On the hub.
    """

    prompt: str
    columns: Columns = _QUESTIONS
    training: Split | None = None
    held_out: Split | None = None


_SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
DATA_SETS = {
    "llm:gsm8k": DataSet(
        "hashes",
        training=Split("openai/gsm8k", ("main",), "train", _QUESTIONS),
        held_out=Split("openai/gsm8k", ("main",), "test", _QUESTIONS),
    ),
    "llm:math": DataSet(
        "boxed",
        Columns("problem", "answer"),
        Split("EleutherAI/hendrycks_math", _SUBJECTS, "train", Columns("problem", "solution")),
        Split("HuggingFaceH4/MATH-500", ("default",), "test", Columns("problem", "answer")),
    ),
}


FILE = DataSet("steps")


class Questions:
    """Questions of a data set; answers are verified by `redline.llm_track.verifier`.

    A question whose gold answer cannot be read is never asked; it is named in the log and counted.

    Args:
        name: Of the task.
        source: Of the data set.
        settings: Of the task.

    Raises:
        TaskError: No data, or none that can be read.
    """

    def __init__(self, name: str, source: DataSet, settings: TaskSettings) -> None:
        self.name = name
        self._template = settings.prompt or source.prompt
        render(self._template, "")  # a wrong name is told now
        self._training, self._held_out = _read(source, settings)
        self.unreadable = 0
        self.left_out: dict[str, str] = {}

    def training(self, rng: np.random.Generator, count: int) -> list[Problem]:
        found: list[Problem] = []
        while len(found) < count:
            # A problem comes again within a rollout only where there are too few of them.
            order = rng.permutation(len(self._training)).tolist()
            asked = self._readable(self._training[i] for i in order)
            found += islice(asked, count - len(found))
            if not found:
                raise TaskError(f"no training answer of {self.name} can be read")
        return found

    def held_out(self, count: int) -> list[Problem]:
        found = list(islice(self._readable(self._held_out), count))
        if len(found) < count:
            raise TaskError(
                f"there are only {len(found)} held-out problems, so eval_problems must be at most "
                f"{len(found)}, got {count}"
            )
        return found

    def _readable(self, records: Iterable[Record]) -> Iterator[Problem]:
        for record in records:
            if readable(record.gold):
                yield self._problem(record)
                continue
            self.unreadable += 1
            if record.place not in self.left_out:
                self.left_out[record.place] = record.gold
                _log.warning(
                    "%s is left out: its answer %.60r cannot be read", record.place, record.gold
                )

    def _problem(self, record: Record) -> Problem:
        prompt = render(self._template, record.question)
        return Problem(prompt, record.gold, partial(_is_right, record.gold))


def _is_right(gold: str, answer: str) -> bool:
    return judge(answer, gold) is Verdict.RIGHT


def _read(source: DataSet, settings: TaskSettings) -> tuple[list[Record], list[Record]]:
    """Records to learn from and held-out ones; no question is among both."""
    columns = Columns(
        settings.question_column or source.columns.question,
        settings.answer_column or source.columns.answer,
    )
    if settings.data is None:
        if settings.held_out_data is not None:
            raise TaskError("held_out_data needs data, the file to learn from")
        if source.training is None or source.held_out is None:
            raise TaskError("needs data, a .jsonl or .parquet file of questions")
        held_out = read_hub(source.held_out)
        return without(read_hub(source.training), held_out), held_out
    records = read_file(Path(settings.data), columns)
    if settings.held_out_data is not None:
        held_out = read_file(Path(settings.held_out_data), columns)
    else:
        held_out = [record for record in records if is_held_out(identity(record.question))]
    training = without(records, held_out)
    if not training or not held_out:
        raise TaskError(
            f"{settings.data} has too few questions ({len(records)}) to hold one in ten out: give "
            "more, or a file with held_out_data"
        )
    return training, held_out
