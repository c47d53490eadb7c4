"""What a run writes while it trains, whoever trains it: metrics, evaluations, checkpoints."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from redline.algorithms.core.contracts import Policy
from redline.benchmark import checkpoint, ranks
from redline.benchmark.config import Resolved
from redline.benchmark.resume import PROGRESS
from redline.benchmark.summaries import Arrays
from redline.benchmark.writing import RunFolder

# Episodes that rollout/ep_rew_mean averages over, as in Stable-Baselines3.
WINDOW = 100

# Seconds of training that a cut may cost at most.
_PATIENCE = 300.0

_SLOW_IMPORTS = ("torch", "tensorboard.summary.writer.event_file_writer")

Report = Callable[[int, Mapping[str, float]], None]


class Learned(Protocol):
    """What training changes."""

    policy: Any

    def state_dict(self) -> dict[str, Any]:
        """All of it that must survive."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


class Evaluated(Protocol):
    """What evaluates it."""

    def evaluate(self, policy: Policy) -> dict[str, float]:
        """eval/* metrics on held-out episodes or problems."""

    def state_dict(self) -> dict[str, Any]:
        """What evaluation needs besides the parameters."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""

    def close(self) -> None:
        """Release resources."""


def warm_up() -> None:
    """Import what takes seconds before the clock starts: a process's first run is no slower."""
    for name in _SLOW_IMPORTS:
        importlib.import_module(name)


class Recorder:
    """The record of one run.

    Args:
        resolved: Settings.
        learned: Saved in every checkpoint.
        track: Evaluates the policy.
        folder: Where all of it is written.

    Attributes:
        step: Environment steps so far.
        last: The last evaluation; empty before the first.
    """

    def __init__(
        self, resolved: Resolved, learned: Learned, track: Evaluated, folder: RunFolder
    ) -> None:
        self.resolved = resolved
        self._learned, self._evaluator, self._folder = learned, track, folder
        self.step = self._updates = 0
        self.last: dict[str, float] = {}
        run = resolved.run
        self._marks = [run.steps * k / run.evals for k in range(1, run.evals + 1)]
        self._busy = 0.0
        self._peak_mb = 0.0
        self._evaluated: int | None = None
        self._saved = time.monotonic()

    def evaluate(self) -> None:
        """Play the evaluation's episodes, log them, and write a checkpoint.

        Raises:
            OSError: The folder cannot be written.
        """
        self.last = self._evaluator.evaluate(self._learned.policy)
        # Read here and not at every update: it costs as much as the rest of an update's logging.
        self._peak_mb = self._folder.peak_mb
        self._folder.log_eval(self.step, self.last)
        self._evaluated = self.step
        self.save()

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            OSError: The folder cannot be written.
        """
        # Of spread parameters every process gives its part, also where nothing is written.
        learned = self._learned.state_dict() if self._folder.writes or ranks.sharded() else {}
        if self._folder.writes:
            checkpoint.save(
                self._folder.folder,
                {
                    "hash": self.resolved.hash,
                    "step": self.step,
                    "updates": self._updates,
                    "learner": learned,
                    "track": self._evaluator.state_dict(),
                    PROGRESS: self.progress(),
                },
            )
        self._saved = time.monotonic()

    def progress(self) -> dict[str, Any]:
        """What going on with the run needs besides what is learned; empty: it starts anew."""
        return {}

    def _recorded(self) -> dict[str, Any]:
        """How far the record is."""
        return {
            "files": self._folder.files(),
            "seconds": self._folder.seconds,
            "cpu_seconds": self._folder.cpu_seconds,
            "marks": list(self._marks),
            "busy": self._busy,
            "peak_mb": self._peak_mb,
            "evaluated": self._evaluated,
            "last": dict(self.last),
            "next_point": self._folder.next_point,
            "trips": self._folder.trips.to_json(),
            "processes": ranks.layout(),
        }

    def _resume(self, state: dict[str, Any]) -> None:
        """Inverse of a checkpoint, with `_recorded` in its progress."""
        progress = state[PROGRESS]
        self._learned.load_state_dict(state["learner"])
        self._evaluator.load_state_dict(state["track"])
        self.step, self._updates = state["step"], state["updates"]
        self._marks, self._busy = list(progress["marks"]), progress["busy"]
        self._peak_mb, self._evaluated = progress["peak_mb"], progress["evaluated"]
        self.last = dict(progress["last"])
        self._folder.resume(self.last, progress["next_point"])

    def evaluate_at_start(self) -> None:
        """The evaluation of the untrained policy, unless the run goes on from a cut."""
        if self._evaluated is None:
            self.evaluate()

    def evaluate_if_due(self) -> None:
        """Evaluate once where one or more of the run's marks were passed.

        A checkpoint is due besides where the last one was minutes ago.
        """
        due = [mark for mark in self._marks if self.step >= mark]
        if due:
            self._marks = self._marks[len(due) :]
            self.evaluate()
        elif self._saved_long_ago():
            self.save()

    def _saved_long_ago(self) -> bool:
        def long_ago() -> bool:
            return time.monotonic() - self._saved > _PATIENCE

        # What all must do together needs one clock.
        return ranks.of_first(long_ago) if ranks.sharded() else long_ago()

    def evaluate_at_end(self) -> None:
        """The last evaluation of a run whose marks do not include its end."""
        if self._evaluated != self.step:
            self.evaluate()

    def updated(
        self,
        metrics: Mapping[str, float],
        *,
        steps: int,
        returns: Sequence[float],
        lengths: Sequence[int],
        collect: float,
        update: float,
        arrays: Arrays | None = None,
    ) -> None:
        """Log one update.

        Args:
            metrics: Its own.
            steps: Environment steps that it took.
            returns: Undiscounted raw returns of the last `WINDOW` episodes.
            lengths: Their steps.
            collect: Seconds that the rollout took.
            update: Seconds that learning from it took.
            arrays: Of its elements, for histograms.
        """
        self.step += steps
        self._updates += 1
        self._busy += collect + update
        episodes = (
            {
                "rollout/ep_rew_mean": float(np.mean(returns)),
                "rollout/ep_len_mean": float(np.mean(lengths)),
            }
            if len(returns)
            else {}
        )
        costs = {
            "time/fps": self.step / self._busy,
            "time/collect": collect,
            "time/update": update,
            "memory/peak_mb": self._peak_mb,
        }
        self._folder.log(self.step, self._updates, {**metrics, **episodes, **costs}, arrays)
