"""`redline run`: train one run."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from redline.benchmark import ranks
from redline.benchmark.arguments import resolve
from redline.benchmark.baselines import catalogue
from redline.benchmark.breaking import Tripped
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput, describe, first_line
from redline.benchmark.notes import notes
from redline.benchmark.parsing import option
from redline.benchmark.preflight import check_tasks
from redline.benchmark.run_record import record_failure
from redline.benchmark.runs import is_done, read_run, run_path
from redline.benchmark.tracks import LANGUAGE, track_of


def main(arguments: Sequence[str]) -> int:
    """Train one run and print where it lies and how it did."""
    if not arguments or arguments[0].startswith("-"):
        from redline.algorithms import registry

        if arguments and arguments[0] not in ("-h", "--help"):
            raise BadInput("say the algorithm first: redline run ALGO --task TASK")
        print("usage: redline run ALGO --task TASK [settings]")
        print(
            f"ALGO is one of {', '.join(registry.names())}; `redline run ppo --help` lists settings"
        )
        print(f"or an external baseline: {', '.join(catalogue.names())}")
        return 0
    resolved = resolve(arguments[0], arguments[1:])
    if any(not path.strip() for path in option(arguments, "out")):
        raise BadInput("--out must be a folder, got ''")
    if track_of(resolved.run.task) is not LANGUAGE:
        ranks.require_alone(f"a run on {resolved.run.task}")
    folder = resolved.run.out or run_path(Path("results") / "run", resolved)
    if not resolved.run.overwrite and is_done(folder, resolved):
        _say(f"{folder} is complete already; --overwrite trains it again")
        return 0
    try:
        check_tasks([resolved])
        for note in notes(resolved) if ranks.first() else ():
            print(f"note: {note}", file=sys.stderr)
        last = _train(resolved, folder)
    except BadInput:
        raise
    except Tripped as end:
        _tell_trip(resolved, folder, end)
        return 3
    except (Exception, SystemExit) as error:  # an environment may call sys.exit
        print(f"redline: {_failed(resolved, folder, error)}", file=sys.stderr)
        return 1
    _tell(resolved, folder, last)
    return 0


def _say(text: str) -> None:
    if ranks.first():
        print(text)


def _tell(resolved: Resolved, folder: Path, last: Mapping[str, float]) -> None:
    if ranks.first():
        print("\n".join(track_of(resolved.run.task).show(last)))
        print(_history(folder), end="")
        print(f"run: {folder}")


def _tell_trip(resolved: Resolved, folder: Path, end: Tripped) -> None:
    if ranks.first():
        print(f"redline: {end}", file=sys.stderr)
        print("\n".join(track_of(resolved.run.task).show((read_run(folder) or {})["final"])))
        print(f"run: {folder}")


def _history(folder: Path) -> str:
    """Where a run was cut and gone on with, and trips of the breaker; "" where there is nothing."""
    record = read_run(folder) or {}
    return _cuts(record.get("resumed", [])) + _trips(record.get("trips", {}))


def _trips(trips: Mapping[str, Any]) -> str:
    if not trips:
        return ""
    first = trips["listed"][0]
    return (
        f"trips of the breaker: {trips['count']} updates, the first at step {first['step']:,}: "
        f"{first['reason']}\n"
    )


def _cuts(cuts: Sequence[Mapping[str, Any]]) -> str:
    steps = ", ".join(f"{cut['step']:,}" for cut in cuts)
    note = ""
    if any("processes" in cut for cut in cuts):
        note += "; with other processes there, so sums are rounded otherwise than in an uncut run"
    if any(not cut["exact"] and "processes" not in cut for cut in cuts):
        note += "; its episodes began anew there, so an uncut run ends differently"
    return f"gone on with from step {steps}{note}\n" if cuts else ""


def _failed(resolved: Resolved, folder: Path, error: BaseException) -> str:
    """Record a failure; the sentence about it."""
    why = first_line(describe(error))
    if ranks.lost(error):
        why = f"another of the {ranks.count()} processes has ended; what it said tells why"
    sentence = f"the run failed: {why}"
    if not ranks.first():
        return sentence
    try:
        recorded = record_failure(folder, resolved, describe(error), traceback.format_exc())
    except OSError as fault:
        return f"{sentence} (run.json could not be written: {fault.strerror or fault})"
    if recorded:
        return f"{sentence} ({folder / 'run.json'} holds the traceback)"
    return f"{sentence} (before it began; {folder} is as it was)"


def _train(resolved: Resolved, folder: Path) -> dict[str, float]:
    from redline.benchmark.train import train

    console, track = Console(stderr=True), track_of(resolved.run.task)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}"),
    )
    quiet = not (console.is_terminal and ranks.first())
    with Progress(*columns, console=console, disable=quiet) as bar:
        title = f"{resolved.algo} {resolved.run.task}"
        task = bar.add_task(title, total=resolved.run.steps, last="")

        def report(step: int, last: Mapping[str, float]) -> None:
            bar.update(task, completed=step, last=track.show(last)[0])

        return train(resolved, folder, report)
