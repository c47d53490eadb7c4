"""A run's folder while it is written: run.json, metric files, and the hold on all of them."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.benchmark import checkpoint, ranks, resume, run_record
from redline.benchmark.breaking import TRIP, Tripped, Trips
from redline.benchmark.breaking import save as save_trip
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput, describe
from redline.benchmark.files import Busy, Hold, remove_temporary
from redline.benchmark.loggers import JsonLines
from redline.benchmark.machine import peak_memory_mb, reset_peak_memory
from redline.benchmark.runs import FILES, read_run
from redline.benchmark.samples import GRADES, REVIEW, Sample, SampleFiles
from redline.benchmark.summaries import Arrays
from redline.benchmark.views import EVENTS, Views

if TYPE_CHECKING:
    from redline.algorithms.core.breaker import Trip
    from redline.algorithms.core.learner import Learner


# Questions that run.json names, of those passed over.
_LEFT_OUT = 20


class RunFolder:
    """The files of a run while it is written.

    Args:
        folder: Made if it is not there; the files of an overwritten run are replaced.
        resolved: Settings.

    Attributes:
        last: The last evaluation; empty before the first.
        state: The checkpoint that an unfinished run goes on from; None where it starts anew.
        trips: Of the breaker.
        left_out: Questions passed over, since nothing can be compared with their gold: where each
            is -> its gold.
        highest_mb: Peak memory before the last measurement of it began.
        writes: It is written at all.

    Raises:
        BadInput: The folder cannot be written, or another process is writing to it.
    """

    writes = True

    def __init__(self, folder: Path, resolved: Resolved) -> None:
        self.folder, self._resolved = folder, resolved
        self.last: Mapping[str, float] = {}
        self._started = self._opened = time.time()
        self._elapsed, self._busy = 0.0, -time.process_time()
        self.trips = Trips()
        self.left_out: dict[str, str] = {}
        self.highest_mb = 0.0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._hold = Hold(folder)
        except Busy as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            raise _cannot_write(folder, error) from error
        try:
            self._open()
        except BaseException as error:
            self._hold.release()
            if isinstance(error, OSError):
                raise _cannot_write(folder, error) from error
            raise
        reset_peak_memory()

    def _open(self) -> None:
        folder, record = self.folder, read_run(self.folder)
        self.state = resume.pending(folder, self._resolved, record)
        self._resumed: list[Any] = []
        if self.state is not None and record is not None:
            progress = self.state[resume.PROGRESS]
            self._resumed = [*record.get("resumed", []), self._cut(progress)]
            self._elapsed, self._started = progress["seconds"], record["started"]
            self._busy += progress.get("cpu_seconds", 0.0)
            self.trips.load(progress["trips"])
            kept = [*progress["files"], checkpoint.NAME, checkpoint.PREVIOUS, TRIP, GRADES, REVIEW]
        else:
            kept = []
        # First of all: files that are gone must not belong to a run that counts as complete.
        self._write("running")
        for path in (*(folder / name for name in FILES), *folder.glob(EVENTS)):
            if path.name not in kept:
                path.unlink(missing_ok=True)
        for name in ("run.json", checkpoint.NAME):
            remove_temporary(folder, name)
        if self.state is not None:
            resume.cut_back(folder, self.state[resume.PROGRESS])
        self._metrics = JsonLines(folder / "metrics.jsonl")
        self._eval = JsonLines(folder / "eval.jsonl")
        run = self._resolved.run
        self._views = Views(folder, run.steps, kept) if run.tensorboard else None
        self._samples = SampleFiles(folder, kept)

    def _cut(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        assert self.state is not None
        before = progress.get("processes", ranks.layout())
        other = {} if before == ranks.layout() else {"processes": before}
        return {"step": self.state["step"], "exact": progress["exact"] and not other, **other}

    def _write(self, status: str, **more: Any) -> None:
        if self._resumed:
            more["resumed"] = self._resumed
        if self.trips:
            more["trips"] = self.trips.to_json()
        if self.left_out:
            first = dict(islice(self.left_out.items(), _LEFT_OUT))
            more["left_out"] = {"count": len(self.left_out), "first": first}
        run_record.write(
            self.folder,
            self._resolved,
            status,
            self._started,
            wall_seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            **more,
        )

    @property
    def seconds(self) -> float:
        """Seconds that the run has taken, before a cut and since."""
        return self._elapsed + time.time() - self._opened

    @property
    def cpu_seconds(self) -> float:
        """Seconds of CPU that this process has spent on the run, before a cut and since."""
        return self._busy + time.process_time()

    @property
    def peak_mb(self) -> float:
        """Peak resident memory of the run, in MiB."""
        return max(self.highest_mb, peak_memory_mb())

    @property
    def next_point(self) -> float:
        """Step of the next point that TensorBoard gets."""
        return 0.0 if self._views is None else self._views.next

    def resume(self, last: Mapping[str, float], next_point: float) -> None:
        """Go on as a run whose last evaluation and next point these are."""
        self.last = last
        if self._views is not None:
            self._views.next = next_point

    def files(self) -> dict[str, int]:
        """Name -> bytes of every metric file, all of them on the disk for good."""
        found = [self._metrics.path, self._eval.path]
        found += ([] if self._views is None else self._views.paths) + self._samples.paths
        for path in found:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return {path.name: path.stat().st_size for path in found}

    def log(
        self, step: int, update: int, metrics: Mapping[str, float], arrays: Arrays | None = None
    ) -> None:
        """One row of metrics.jsonl.

        Args:
            step: Steps so far.
            update: Updates so far.
            metrics: Of the update.
            arrays: Of its elements, for histograms.
        """
        self._metrics.write({"step": step, "update": update, **metrics})
        if self._views is not None:
            self._views.update(step, metrics, arrays)

    def log_samples(self, step: int, update: int, found: Sequence[Sample]) -> None:
        """Completions for `redline review`."""
        self._samples.write(step, update, found)

    def log_eval(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row of eval.jsonl."""
        self.last = metrics
        self._eval.write({"step": step, **metrics})
        if self._views is not None:
            self._views.evaluation(step, metrics)

    def keep(self, learner: Learner, trip: Trip, step: int, update: int) -> None:
        """Write what the breaker tripped on.

        Raises:
            OSError: The folder cannot be written.
        """
        save_trip(self.folder, learner, trip, step, update)

    def finish(self, status: str, **more: Any) -> None:
        """Close the files, write the final status, and let go of the folder.

        Raises:
            OSError: Something could not be written; the folder is let go nevertheless.
        """
        try:
            with contextlib.ExitStack() as files:
                for file in (self._metrics, self._eval, self._views, self._samples):
                    if file is not None:
                        files.callback(file.close)
            self._write(status, peak_memory_mb=round(self.peak_mb, 1), **more)
            if status == "done":
                (self.folder / checkpoint.PREVIOUS).unlink(missing_ok=True)
        finally:
            self._hold.release()


@contextlib.contextmanager
def writing(folder: Path, resolved: Resolved) -> Iterator[RunFolder]:
    """The folder of a run that trains within the block: done with its end, failed with an error.

    Raises:
        BadInput: As `RunFolder`.
        Tripped: The breaker ended the run; its status is then "tripped".
        Exception: Whatever ended the block.
    """
    run = RunFolder(folder, resolved)
    try:
        yield run
    except Tripped as end:
        run.finish("tripped", error=str(end), final=run.last)
        raise
    except BaseException as error:
        # On a full disk this fails as well; what is told is what stopped the run.
        with contextlib.suppress(OSError):
            run.finish("failed", error=describe(error), traceback=traceback.format_exc())
        raise
    run.finish("done", final=run.last)


def _cannot_write(folder: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot write to {folder}: {error.strerror or error}")
