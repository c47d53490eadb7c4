"""What the commands that train many runs have in common: a matrix carried out and told about."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from redline.benchmark import forecast, matrix
from redline.benchmark.errors import BadInput, first_line
from redline.benchmark.outcomes import Outcome
from redline.benchmark.suite import Cell, Suite
from redline.benchmark.words import counted


class Stopped(Exception):
    """The matrix ended early, and why was told.

    Attributes:
        code: Exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def check_numbers(jobs: int, patience: float | None, timeout: float | None = None) -> None:
    """Refuse what no matrix can be trained with.

    Raises:
        BadInput: A number is out of range.
    """
    if jobs < 1:
        raise BadInput(f"--jobs must be at least 1, got {jobs}")
    if patience is not None and not patience > 0:
        raise BadInput(f"--patience must be above 0, or none, got {patience:g}")
    if timeout is not None and not timeout > 0:
        raise BadInput(f"--timeout must be above 0, or none, got {timeout:g}")


def list_plan(
    plan: matrix.Plan, root: Path, jobs: int, elsewhere: Iterable[forecast.Pace] = ()
) -> int:
    """Print every cell, and the time that it should take by what earlier runs took."""
    speeds = forecast.speeds(root, elsewhere)
    seconds = [forecast.seconds(cell, speeds) for cell in plan.todo]
    for cell in plan.done:
        print(f"done  {cell.name}  {cell.folder}")
    for cell, expected in zip(plan.todo, seconds, strict=True):
        time = "" if expected is None else f"  about {forecast.spelled(expected)}"
        print(f"to do {cell.name}  {cell.folder}{time}")
    print(f"{len(plan.done)} done, {len(plan.todo)} to do; nothing was trained")
    known = [expected for expected in seconds if expected is not None]
    if known:
        missing = len(seconds) - len(known)
        but = f", and {missing} more of which no like one was timed" if missing else ""
        whole = forecast.spelled(sum(known) / min(jobs, len(known)))
        print(f"expected: {whole} for {counted(len(known), 'run')} with --jobs {jobs}{but}")
    elif plan.todo:
        print("expected: unknown, for no run of these tasks is done here or in results/ yet")
    return 0


def carry_out(
    root: Path,
    suite: Suite,
    cells: Sequence[Cell],
    plan: matrix.Plan,
    command: str,
    launcher: matrix.Launcher,
) -> Mapping[Cell, Outcome]:
    """Train what is to do, and note what was asked for; gives how the trained cells ended.

    Args:
        root: Folder of the results.
        suite: Its name and question are noted.
        cells: The whole matrix.
        plan: What is there of it, and what not.
        command: As typed.
        launcher: Trains them.

    Raises:
        BadInput: The folder cannot be written.
        Stopped: It was interrupted, or the disk is full.
    """
    with matrix.claim(root):
        matrix.record(root, suite, cells, command)
        try:
            return _train(plan, launcher)
        except KeyboardInterrupt:
            print(
                "redline: interrupted; finished runs are kept, and the same command continues",
                file=sys.stderr,
            )
            raise Stopped(130) from None
        except matrix.DiskFault as fault:
            print(
                f"redline: nothing can be written to {root} any more ({first_line(str(fault))}); "
                "what was written is kept, and the same command continues",
                file=sys.stderr,
            )
            raise Stopped(1) from None


def _train(plan: matrix.Plan, launcher: matrix.Launcher) -> Mapping[Cell, Outcome]:
    from redline.benchmark.progress import MatrixProgress

    console = Console(stderr=True)
    if plan.done:
        verb = "is" if len(plan.done) == 1 else "are"
        print(f"{counted(len(plan.done), 'run')} {verb} complete already", file=sys.stderr)
    if not plan.todo:
        return {}
    with MatrixProgress(plan.todo, console) as progress:
        return matrix.execute(plan.todo, launcher, progress)


def failures(outcomes: Mapping[Cell, Outcome]) -> int:
    """Print which cells failed and why; gives how many."""
    failed = {cell: outcome for cell, outcome in outcomes.items() if outcome.error is not None}
    if not failed:
        return 0
    print(f"{len(failed)} failed (run.json holds the traceback; running again retries them):")
    for cell, outcome in failed.items():
        assert outcome.error is not None
        print(f"  {cell.name}: {first_line(outcome.error)}")
    return len(failed)
