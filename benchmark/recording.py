"""What a run writes while it trains, whoever trains it: metrics, evaluations, checkpoints."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from redline.algorithms.core.contracts import Policy
from redline.benchmark import checkpoint
from redline.benchmark.config import Resolved
from redline.benchmark.machine import peak_memory_mb
from redline.benchmark.runs import RunFolder

# Episodes that rollout/ep_rew_mean averages over, as in Stable-Baselines3.
WINDOW = 100

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

    def evaluate(self) -> None:
        """Play the evaluation's episodes, log them, and write a checkpoint.

        Raises:
            OSError: The folder cannot be written.
        """
        self.last = self._evaluator.evaluate(self._learned.policy)
        # Read here and not at every update: it costs as much as the rest of an update's logging.
        self._peak_mb = peak_memory_mb()
        self._folder.log_eval(self.step, self.last)
        checkpoint.save(
            self._folder.folder,
            {
                "hash": self.resolved.hash,
                "step": self.step,
                "updates": self._updates,
                "learner": self._learned.state_dict(),
                "track": self._evaluator.state_dict(),
            },
        )

    def evaluate_if_due(self) -> None:
        """Evaluate once where one or more of the run's marks were passed."""
        due = [mark for mark in self._marks if self.step >= mark]
        if due:
            self._marks = self._marks[len(due) :]
            self.evaluate()

    def evaluate_at_end(self) -> None:
        """The last evaluation of a run whose marks do not include its end."""
        if not self.resolved.run.evals:
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
    ) -> None:
        """Log one update.

        Args:
            metrics: Its own.
            steps: Environment steps that it took.
            returns: Undiscounted raw returns of the last `WINDOW` episodes.
            lengths: Their steps.
            collect: Seconds that the rollout took.
            update: Seconds that learning from it took.
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
        self._folder.log(self.step, self._updates, {**metrics, **episodes, **costs})
