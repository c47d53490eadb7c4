"""What a rule gives, and the list of all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from redline.benchmark.doctor.history import History, Stretch
from redline.benchmark.doctor.thresholds import Thresholds

Severity = Literal["note", "warn"]


@dataclass(frozen=True)
class Finding:
    """One thing that is worth knowing about a run.

    Attributes:
        rule: Its name, such as "T57".
        severity: "note", or "warn" for what spoils a run.
        steps: First and last step that it holds for.
        evidence: The numbers.
        advice: What to do.
        source: Where the rule comes from.
    """

    rule: str
    severity: Severity
    steps: tuple[int, int]
    evidence: str
    advice: str
    source: str


class Symptom(NamedTuple):
    """What a rule saw; see `Finding`."""

    severity: Severity
    at: Stretch
    evidence: str
    advice: str


Check = Callable[[History, Thresholds], Symptom | None]


class Rule(NamedTuple):
    """A check with its name and its source."""

    name: str
    source: str
    check: Check


RULES: list[Rule] = []


def rule(name: str, source: str) -> Callable[[Check], Check]:
    """Add a check to the rules."""

    def add(check: Check) -> Check:
        RULES.append(Rule(name, source, check))
        return check

    return add


def apply(history: History, thresholds: Thresholds) -> Iterator[Finding]:
    """The findings of all rules; a note counts as a warning where the run has stalled."""
    stalled = history.stalled(thresholds.gain)
    for name, source, check in RULES:
        found = check(history, thresholds)
        if found is None:
            continue
        severity, at, evidence, advice = found
        if stalled and severity == "note":
            severity, evidence = "warn", f"{evidence}; {stalled}"
        yield Finding(name, severity, history.between(at), evidence, advice, source)
