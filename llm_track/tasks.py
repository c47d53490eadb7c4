"""Language tasks by name: `llm:arithmetic`, and reasoning-gym's generators as `llm:rg:NAME`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from redline.llm_track.arithmetic import Addition, Operands, question
from redline.llm_track.generators import Generator, generator_names
from redline.llm_track.prompts import render
from redline.llm_track.split import TaskError

ARITHMETIC = "llm:arithmetic"
REASONING_GYM = "llm:rg:"


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
    """A source of problems; training and held-out ones never overlap."""

    name: str

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
    """

    digits: int = 3
    operands: int = 2
    prompt: str | None = None
    generator: Mapping[str, int | float | str | bool] = field(default_factory=dict)


class Arithmetic:
    """Sums, asked as `482+769=`."""

    name = ARITHMETIC

    def __init__(self, settings: TaskSettings) -> None:
        self.addition = Addition(settings.digits, settings.operands)
        self._template = settings.prompt or "equals"
        render(self._template, "")  # a wrong name is told now

    def training(self, rng: np.random.Generator, count: int) -> list[Problem]:
        return [self._problem(operands) for operands in self.addition.training(rng, count)]

    def held_out(self, count: int) -> list[Problem]:
        return [self._problem(operands) for operands in self.addition.held_out(count)]

    def _problem(self, operands: Operands) -> Problem:
        gold = str(sum(operands))
        return Problem(render(self._template, question(operands)), gold, gold.__eq__)


class ReasoningGym:
    """Problems of one reasoning-gym generator, verified by its own rule applied to the answer."""

    def __init__(self, name: str, settings: TaskSettings) -> None:
        self.name = REASONING_GYM + name
        self._generator = Generator(name, settings.generator)
        self._template = settings.prompt or "steps"
        render(self._template, "")  # a wrong name is told now

    def training(self, rng: np.random.Generator, count: int) -> list[Problem]:
        return [self._problem(*found) for found in self._generator.training(rng, count)]

    def held_out(self, count: int) -> list[Problem]:
        return [self._problem(*found) for found in self._generator.held_out(count)]

    def _problem(self, asked: str, gold: str, right: Callable[[str], bool]) -> Problem:
        return Problem(render(self._template, asked), gold, right)


def language_task(name: str, settings: TaskSettings | None = None) -> LanguageTask:
    """Look a task up by name.

    Raises:
        TaskError: There is no such task, or a setting does not fit it.
    """
    settings = settings or TaskSettings()
    try:
        if name == ARITHMETIC:
            return Arithmetic(settings)
        if name.startswith(REASONING_GYM):
            return ReasoningGym(name.removeprefix(REASONING_GYM), settings)
    except ValueError as error:
        raise TaskError(f"task {name!r}: {error}") from error
    near = difflib.get_close_matches(name, [ARITHMETIC, REASONING_GYM], n=1, cutoff=0.5)
    hint = f"; nearest: {near[0]}" if near else ""
    raise TaskError(f"unknown task {name!r}: language tasks are {ARITHMETIC} and llm:rg:NAME{hint}")


def language_task_names() -> list[str]:
    """Every task that can be run here; reasoning-gym's only where it is installed."""
    return [ARITHMETIC, *(REASONING_GYM + name for name in generator_names())]
