"""`redline doctor`: what is wrong with a run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark.doctor.examine import examine, severe
from redline.benchmark.doctor.findings import Finding
from redline.benchmark.doctor.history import History, read
from redline.benchmark.doctor.thresholds import Thresholds
from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse
from redline.benchmark.runs import find_runs
from redline.benchmark.words import counted

_DESCRIPTION = (
    "Say what the metrics of a run, or of all runs below a folder, tell about it. Exit code 1 "
    "where there is a warning."
)

_MEANING = (
    "A note is worth knowing and no fault by itself; what a warning names spoils a run. "
    "`redline doctor --help` lists thresholds, docs/metrics.md what each number means."
)


@dataclass(frozen=True)
class DoctorConfig:
    """Settings of `redline doctor`.

    Attributes:
        folder: Of a run, or with runs below it.
        json: Print a list of objects instead: rule, severity, steps, evidence, advice, source, and
            the run where the folder is not one itself.
        limit: What the rules compare with.
    """

    folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|DIR")] = None
    json: bool = False
    limit: Thresholds = Thresholds()


def main(arguments: Sequence[str]) -> int:
    """Print findings; 1 where a warning is among them."""
    config = parse(DoctorConfig, arguments, prog="redline doctor", description=_DESCRIPTION)
    if config.folder is None:
        raise BadInput("say which run: redline doctor RUN, or a folder with runs below it")
    found = {}
    for path in _runs(config.folder):
        history = read(path)
        found[path] = examine(history, config.limit)
        if not config.json:
            _print(path, history, found[path], config.limit.updates)
    if config.json:
        _print_json(found, config.folder)
    elif any(found.values()):
        print(_MEANING)
    return 1 if any(map(severe, found.values())) else 0


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder of runs")
    found = [path for path, record in find_runs(folder) if record is not None]
    if not found:
        raise BadInput(f"{folder} holds no run: there is no readable run.json at or below it")
    return found


def _print(path: Path, history: History, findings: Sequence[Finding], least: int) -> None:
    warnings = sum(finding.severity == "warn" for finding in findings)
    said = f"{counted(warnings, 'warning')}, {counted(len(findings) - warnings, 'note')}"
    updates = counted(history.updates, "update")
    few = "" if history.updates >= least else f", too few to judge most of (at least {least})"
    status = history.record.get("status")
    state = "" if status in (None, "done") else f" ({status})"
    print(f"{path}{state}: {said} in {updates}{few}")
    for finding in findings:
        first, last = finding.steps
        where = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
        print(f"  {finding.severity} {finding.rule}  {where}")
        print(f"    {finding.evidence}")
        print(f"    advice: {finding.advice}")
        print(f"    source: {finding.source}")


def _print_json(found: Mapping[Path, Sequence[Finding]], folder: Path) -> None:
    several = list(found) != [folder]
    rows = [
        ({"run": str(path)} if several else {}) | dataclasses.asdict(finding)
        for path, findings in found.items()
        for finding in findings
    ]
    print(json.dumps(rows, indent=1))
