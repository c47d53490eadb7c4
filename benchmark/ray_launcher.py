"""Cells as tasks of a Ray cluster; what they write returns through this process.

Nodes share no disk with it. A cell trains in a temporary folder of its node; after every checkpoint
its files come here, where they are put into the cell's folder, so a cell whose node is lost goes on
elsewhere from its last checkpoint, and the results are laid out as those of any other launcher.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from redline.benchmark import checkpoint, threads
from redline.benchmark.errors import BadInput, first_line
from redline.benchmark.files import Hold, replacing
from redline.benchmark.launchers import Watch, record_of, train_cell
from redline.benchmark.outcomes import Fault, Outcome, failed
from redline.benchmark.process import ENDING
from redline.benchmark.runs import FILES
from redline.benchmark.suite import Cell
from redline.benchmark.views import EVENTS

Files = dict[str, bytes]

# Seconds between two looks at the running cells.
_TICK = 0.3
# Seconds that a cluster has to answer.
_ANSWER = 10


class RayPool:
    """A Ray cluster; leaving the `with` block ends the tasks that still run there.

    Args:
        address: Of a cluster that is there; None: one that lives on this machine, and as long as
            the block.
        jobs: CPUs of the latter.
        patience: Seconds without an update after which a task counts as hung and is ended; None:
            it may take as long as it likes.
    """

    def __init__(self, address: str | None, jobs: int, patience: float | None = None) -> None:
        self._address, self._jobs, self._patience = address, jobs, patience

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        here: dict[str, Any] = {}
        if self._address is None:
            # Loopback alone: else Ray takes an address that others can reach.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            here = {"num_cpus": self._jobs, "include_dashboard": False}
            here["_node_ip_address"] = "127.0.0.1"
        import ray

        handlers = {number: signal.getsignal(number) for number in ENDING}
        try:
            if self._address is not None:
                _require_answer(self._address)
            ray.init(
                address=self._address or "local",
                runtime_env={"env_vars": dict.fromkeys(threads.VARIABLES, "1")},
                log_to_driver=False,
                logging_level="error",
                **here,
            )
        except (OSError, ValueError, RuntimeError) as error:
            where = "on this machine" if self._address is None else f"at {self._address}"
            raise BadInput(f"no Ray cluster {where}: {first_line(str(error))}") from error
        finally:
            for number, handler in handlers.items():  # Ray puts one of its own there
                signal.signal(number, handler)
        self._ray = ray
        desk = ray.remote(num_cpus=0, max_restarts=0)(_Desk)
        self._desk = desk.options(scheduling_strategy=_on_this_node(ray)).remote()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ray.shutdown()

    def run(self, cells: Sequence[Cell], watch: Watch) -> Iterator[tuple[Cell, Outcome]]:
        """Train cells as the cluster has room for them; yields each as it ends.

        Args:
            cells: What to train.
            watch: Called several times a second with the steps that running cells have done.
        """
        running = {cell: self._submit(cell) for cell in cells}
        while running:
            refs = {task.ref: cell for cell, task in running.items()}
            ended, _ = self._ray.wait(list(refs), num_returns=1, timeout=_TICK)
            told: dict[str, tuple[int, int, Files]] = self._ray.get(self._desk.collect.remote())
            for cell, task in running.items():
                task.hear(told.get(str(cell.folder)))
            for ref in ended:
                cell = refs[ref]
                yield cell, running.pop(cell).outcome()
            watch({cell: task.steps for cell, task in running.items() if task.heard})
            for task in running.values():
                task.look(self._patience)

    def _submit(self, cell: Cell) -> _Task:
        device = str(getattr(cell.resolved.run, "device", "cpu"))
        train = self._ray.remote(
            num_cpus=1, num_gpus=1 if device.startswith("cuda") else 0, max_retries=0
        )(_train)
        files = packed(cell.folder) if (cell.folder / "run.json").is_file() else {}
        ref = train.remote(record_of(cell), str(cell.folder), files, self._desk)
        return _Task(self._ray, cell, ref)


class _Task:
    """A cell on its way.

    Attributes:
        ref: Of its result.
        steps: That it has done.
        heard: Updates that it has told of; 0 before it runs.
    """

    def __init__(self, ray: Any, cell: Cell, ref: Any) -> None:
        self._ray, self._cell, self.ref = ray, cell, ref
        self.steps = self.heard = 0
        self._started = self._last = time.monotonic()
        self._began = time.perf_counter()
        self._hung = ""
        self._fault: OSError | None = None

    def hear(self, told: tuple[int, int, Files] | None) -> None:
        """Note how far it is, and put the files that came into its folder."""
        if told is None:
            return
        steps, updates, files = told
        if updates != self.heard:
            self.steps, self.heard, self._last = steps, updates, time.monotonic()
        self._store(files)

    def look(self, patience: float | None) -> None:
        """End it where it has told nothing for too long; one that waits for room is not late."""
        silence = time.monotonic() - self._last
        if patience is not None and self.heard and silence > patience and not self._hung:
            self._hung = f"made no update for {patience:g} s and was ended"
            self._ray.cancel(self.ref, force=True)

    def outcome(self) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome, files = self._ray.get(self.ref)
        except errors.RayTaskError as error:  # its node lacks something that this process has
            return failed(error, self._began)
        except errors.RayError as error:
            text = f"its Ray task {self._hung or f'was lost: {first_line(str(error))}'}"
            return Outcome(time.perf_counter() - self._began, error=text, fault=Fault.WORKER)
        self._store(files)
        return outcome if self._fault is None else failed(self._fault, self._began)

    def _store(self, files: Files) -> None:
        try:
            if files:
                unpack(files, self._cell.folder)
        except OSError as error:
            self._fault = error
            self._ray.cancel(self.ref, force=True)


def _require_answer(address: str) -> None:
    """Fail at once where Ray would ask again for minutes.

    Raises:
        OSError: Nobody answers there.
        ValueError: It is no address.
    """
    if address == "auto":  # Ray knows by itself whether there is one
        return
    parts = urlsplit(address if "://" in address else f"//{address}")
    if not parts.hostname or not parts.port:
        raise ValueError("an address is HOST:PORT, or auto")
    with socket.create_connection((parts.hostname, parts.port), timeout=_ANSWER):
        pass


def packed(folder: Path) -> Files:
    """Name -> content of the files of a run."""
    names = ("run.json", *FILES)
    paths = [*(folder / name for name in names), *folder.glob(EVENTS)]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Make a folder hold exactly these files of a run.

    In an order that leaves something to go on from wherever it is cut: checkpoints come after the
    metrics that they rely on, and run.json at the end.

    Raises:
        OSError: The folder cannot be written, or another process is writing to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hold = Hold(folder)
    try:
        for path in (*(folder / name for name in FILES), *folder.glob(EVENTS)):
            if path.name not in files:
                path.unlink(missing_ok=True)
        last = (checkpoint.PREVIOUS, checkpoint.NAME, "run.json")
        for name in sorted(files, key=lambda name: last.index(name) if name in last else -1):
            with replacing(folder / name) as temporary:
                temporary.write_bytes(files[name])
    finally:
        hold.release()


def _on_this_node(ray: Any) -> Any:
    """Where a node that is lost does not take it along."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = ray.get_runtime_context().get_node_id()
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


# In the cluster.


class _Desk:
    """Takes what tasks tell until the launcher asks for it."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, int, Files]] = {}

    def tell(self, name: str, step: int, files: Files) -> None:
        _, updates, before = self._told.get(name, (0, 0, {}))
        self._told[name] = step, updates + 1, files or before

    def collect(self) -> dict[str, tuple[int, int, Files]]:
        told = dict(self._told)
        self._told = {name: (step, updates, {}) for name, (step, updates, _) in told.items()}
        return told


def _train(record: Mapping[str, Any], name: str, files: Files, desk: Any) -> tuple[Outcome, Files]:
    with TemporaryDirectory(prefix="redline-") as place:
        folder = Path(place) / "run"
        unpack(files, folder)
        saved = 0

        def report(step: int, last: Mapping[str, float]) -> None:
            nonlocal saved
            path = folder / checkpoint.NAME
            stamp = path.stat().st_mtime_ns if path.exists() else 0
            desk.tell.remote(name, step, packed(folder) if stamp != saved else {})
            saved = stamp

        desk.tell.remote(name, 0, {})
        return train_cell(record, folder, report), packed(folder)
