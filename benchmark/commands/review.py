"""`redline review`: grade completions without knowing what they were paid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse
from redline.benchmark.words import counted

_DESCRIPTION = (
    "Grade completions of a run blind, one after the other; then see how the grades go together "
    "with rewards. Answers are y (right), n (wrong), a number from 0 to 1, s (skip) or q (quit)."
)
_ASK = "right? [y/n/0..1/s/q] "
_WORDS = {"y": 1.0, "n": 0.0}


@dataclass(frozen=True)
class ReviewConfig:
    """Settings of `redline review`.

    Attributes:
        run: Folder of a run on a language task.
        grader: Who grades; several people may, one after the other.
        limit: Samples to ask for; 0: only join what is graded.
        json: Print the result as one JSON object.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    grader: str = "me"
    limit: int = 20
    json: bool = False


def main(arguments: Sequence[str]) -> int:
    """Ask, and print what the grades say."""
    config = parse(ReviewConfig, arguments, prog="redline review", description=_DESCRIPTION)
    if config.run is None:
        raise BadInput("say which run: redline review RUN")
    if config.limit < 0:
        raise BadInput(f"--limit must be at least 0, got {config.limit}")
    from redline.benchmark.grading import Grades, joined, open_samples

    waiting = open_samples(config.run, config.grader)[: config.limit]
    if waiting:
        with closing(Grades(config.run, config.grader)) as grades:
            _ask(waiting, grades)
    found = joined(config.run)
    print(json.dumps(found, indent=1) if config.json else _told(found))
    return 0


def _ask(waiting: Sequence[dict[str, Any]], grades: Any) -> None:
    for number, sample in enumerate(waiting, 1):
        print(f"\n[{number}/{len(waiting)}] {sample['prompt']}\n{sample['completion']}")
        grade = _grade()
        if grade is None:
            return
        if grade >= 0.0:
            grades.add(sample, grade)


def _grade() -> float | None:
    """A grade; below 0 to skip, None to quit."""
    while True:
        try:
            said = input(_ASK).strip().lower()
        except EOFError:
            return None
        if said == "q":
            return None
        if said == "s":
            return -1.0
        if said in _WORDS:
            return _WORDS[said]
        try:
            grade = float(said)
        except ValueError:
            grade = -1.0
        if 0.0 <= grade <= 1.0:
            return grade
        print("answer y, n, a number from 0 to 1, s (skip) or q (quit)")


def _told(found: dict[str, Any]) -> str:
    samples, graders = counted(found["graded"], "sample"), counted(found["graders"], "grader")
    lines = [f"{samples} graded by {graders}"]
    for name, meaning in (
        ("agreement", "agreement of two graders"),
        ("kappa", "agreement beyond chance (Cohen's kappa)"),
        ("correlation", "correlation of grade and reward"),
        ("correlation_verdict", "correlation of grade and the verifier's verdict"),
        ("correlation_ratio", "correlation of grade and mean ratio"),
    ):
        value = found[name]
        lines.append(f"{meaning}: {'n/a' if value is None else f'{value:.2f}'}")
    return "\n".join(lines)
