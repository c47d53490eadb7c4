"""Language tasks by name: sums, reasoning-gym's generators, and questions from data sets."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from redline.llm_track.arithmetic import Addition, Operands, question
from redline.llm_track.generators import Generator, generator_names
from redline.llm_track.problems import LanguageTask, Problem, TaskSettings
from redline.llm_track.prompts import render
from redline.llm_track.questions import DATA_SETS, FILE, Questions
from redline.llm_track.split import TaskError

ARITHMETIC = "llm:arithmetic"
REASONING_GYM = "llm:rg:"
_FILES = (".jsonl", ".parquet")


class Arithmetic:
    """Sums, asked as `482+769=`."""

    name = ARITHMETIC
    unreadable = 0
    left_out: Mapping[str, str] = MappingProxyType({})

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

    unreadable = 0
    left_out: Mapping[str, str] = MappingProxyType({})

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
        if name in DATA_SETS:
            return Questions(name, DATA_SETS[name], settings)
        if name.endswith(_FILES):
            file = name.removeprefix("llm:")
            return Questions(name, FILE, replace(settings, data=file))
    except ValueError as error:
        raise TaskError(f"task {name!r}: {error}") from error
    known = [ARITHMETIC, REASONING_GYM, *DATA_SETS]
    begun = [one for one in known if one.startswith(name)]
    near = begun or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; nearest: {near[0]}" if near else ""
    raise TaskError(
        f"unknown task {name!r}: language tasks are {ARITHMETIC}, {', '.join(DATA_SETS)}, "
        f"llm:rg:NAME and llm:FILE.jsonl{hint}"
    )


def language_task_names() -> list[str]:
    """Every task that can be run here; reasoning-gym's only where it is installed."""
    return [ARITHMETIC, *DATA_SETS, *(REASONING_GYM + name for name in generator_names())]
