"""What a language task is: problems to learn from and held-out ones, by its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Problem:
    """One question.

    Attributes:
        prompt: What the model reads.
        gold: An answer that is right.
        right: Whether an answer is right.
    """

    prompt: str
    gold: str
    right: Callable[[str], bool] = field(compare=False)


class LanguageTask(Protocol):
    """A source of problems; training and held-out ones never overlap.

    Attributes:
        name: Of the task.
        unreadable: Times that a question was passed over since its gold answer cannot be read.
    """

    name: str
    unreadable: int

    @property
    def left_out(self) -> Mapping[str, str]:
        """Where a question is that was passed over -> its gold answer."""

    def training(self, rng: np.random.Generator, count: int) -> list[Problem]:
        """`count` problems to learn from."""

    def held_out(self, count: int) -> list[Problem]:
        """The first `count` problems of the held-out set, the same at every call."""


@dataclass(frozen=True)
class TaskSettings:
    """Settings of every language task; each reads those that concern it.

    Attributes:
        digits: Of the numbers of llm:arithmetic.
        operands: Numbers in a sum of llm:arithmetic.
        prompt: Name of a template; None: the task's own.
        generator: Settings of a reasoning-gym generator, for example {"min_terms": 2}.
        data: File of questions; None: the hub, for tasks that come from there.
        held_out_data: File of the held-out ones; None: a part of `data`.
        question_column: Of the questions in these files; None: the task's own.
        answer_column: Of their answers.
    """

    digits: int = 3
    operands: int = 2
    prompt: str | None = None
    generator: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    data: str | None = None
    held_out_data: str | None = None
    question_column: str | None = None
    answer_column: str | None = None
