"""The one training loop, for every method and every track."""

from __future__ import annotations

import contextlib
import importlib
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from redline.algorithms.core.learner import Algorithm, Learner
from redline.algorithms.core.types import Critic, Need, Policy, Progress, Rollout
from redline.benchmark import checkpoint
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput, describe
from redline.benchmark.machine import peak_memory_mb
from redline.benchmark.runs import RunFolder

# Episodes that rollout/ep_rew_mean averages over, as in Stable-Baselines3.
_WINDOW = 100

_SLOW_IMPORTS = ("torch", "tensorboard.summary.writer.event_file_writer")

Report = Callable[[int, Mapping[str, float]], None]


class Track(Protocol):
    """What the loop needs of a track."""

    policy: Policy
    critic: Critic | None
    unit: str

    def collect(self, policy: Policy, need: Need) -> Rollout:
        """One rollout of the policy."""

    def evaluate(self, policy: Policy) -> dict[str, float]:
        """eval/* metrics on held-out episodes or problems."""

    def state_dict(self) -> dict[str, Any]:
        """What evaluation needs besides the parameters."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""

    def close(self) -> None:
        """Release resources."""


def train(resolved: Resolved, folder: Path, report: Report | None = None) -> dict[str, float]:
    """Train and write one run; gives the last evaluation.

    Args:
        resolved: Settings.
        folder: Run folder.
        report: Called with (step, last evaluation) after every update.

    Raises:
        BadInput: The folder cannot be written, another process is writing to it, or the task
            cannot be made.
        Exception: Whatever stopped the run; run.json then says "failed" and holds the traceback.
    """
    with opened(resolved, folder) as loop:
        return _run(loop, report or (lambda step, last: None))


@contextlib.contextmanager
def opened(resolved: Resolved, folder: Path) -> Iterator[Loop]:
    """A run that is ready for its first update; its record is closed with the block.

    Args:
        resolved: Settings.
        folder: Run folder.

    Raises:
        BadInput: As `train`.
    """
    # Before the clock starts: the first run of a process shall not count as slower.
    for name in _SLOW_IMPORTS:
        importlib.import_module(name)
    algorithm: Algorithm = resolved.recipe.build()
    track = make_track(resolved, algorithm)
    try:
        run = RunFolder(folder, resolved)
        try:
            loop = Loop(resolved, algorithm, track, run)
            yield loop
        except BaseException as error:
            # On a full disk this fails as well; what is told is what stopped the run.
            with contextlib.suppress(OSError):
                run.finish("failed", error=describe(error), traceback=traceback.format_exc())
            raise
        run.finish("done", final=loop.last)
    finally:
        track.close()


def _run(loop: Loop, report: Report) -> dict[str, float]:
    """Every update of a run, with its evaluations; gives the last of these."""
    config = loop.resolved.run
    marks = [config.steps * k / config.evals for k in range(1, config.evals + 1)]
    loop.evaluate()
    while not loop.finished:
        loop.update()
        due = [mark for mark in marks if loop.step >= mark]
        if due:
            marks = marks[len(due) :]
            loop.evaluate()
        report(loop.step, loop.last)
    if not config.evals:
        loop.evaluate()
    return loop.last


class Loop:
    """The steps that a run is made of.

    Attributes:
        resolved: Settings.
        step: Environment steps so far.
        last: The last evaluation; empty before the first.
    """

    def __init__(
        self, resolved: Resolved, algorithm: Algorithm, track: Track, folder: RunFolder
    ) -> None:
        self.resolved = resolved
        self._need, self._track, self._folder = algorithm.need, track, folder
        # A stream of its own for shuffles, beside those that the track spawns from the seed.
        rng = np.random.default_rng(np.random.SeedSequence(resolved.run.seed, spawn_key=(1_000,)))
        self._learner = Learner(algorithm, track.policy, track.critic, rng)
        self.step = self._updates = 0
        self.last: dict[str, float] = {}
        self._returns: deque[float] = deque(maxlen=_WINDOW)
        self._lengths: deque[int] = deque(maxlen=_WINDOW)
        self._busy = 0.0
        self._peak_mb = 0.0

    @property
    def finished(self) -> bool:
        """The budget is spent."""
        return self.step >= self.resolved.run.steps

    def evaluate(self) -> None:
        """Play the evaluation's episodes, log them, and write a checkpoint.

        Raises:
            OSError: The folder cannot be written.
        """
        self.last = self._track.evaluate(self._learner.policy)
        # Read here and not at every update: it costs as much as the rest of an update's logging.
        self._peak_mb = peak_memory_mb()
        self._folder.log_eval(self.step, self.last)
        checkpoint.save(
            self._folder.folder,
            {
                "hash": self.resolved.hash,
                "step": self.step,
                "updates": self._updates,
                "learner": self._learner.state_dict(),
                "track": self._track.state_dict(),
            },
        )

    def update(self) -> Rollout:
        """Collect one rollout, learn from it and log; gives the rollout.

        Raises:
            Exception: Whatever the environment, the method or the disk raises.
        """
        start = time.perf_counter()
        rollout = self._track.collect(self._learner.policy, self._need)
        collected = time.perf_counter()
        progress = Progress(self.step, self.resolved.run.steps)
        metrics = self._learner.update(rollout, progress)
        done = time.perf_counter()
        self.step += rollout.steps
        self._updates += 1
        self._busy += done - start
        self._returns += rollout.episode_return
        self._lengths += rollout.episode_length
        if self._returns:
            metrics["rollout/ep_rew_mean"] = float(np.mean(self._returns))
            metrics["rollout/ep_len_mean"] = float(np.mean(self._lengths))
        metrics["time/fps"] = self.step / self._busy
        metrics["time/collect"] = collected - start
        metrics["time/update"] = done - collected
        metrics["memory/peak_mb"] = self._peak_mb
        self._folder.log(self.step, self._updates, metrics)
        return rollout


def make_track(resolved: Resolved, algorithm: Algorithm) -> Track:
    """Policy, critic, sampler and evaluator for a task.

    Raises:
        BadInput: The task is unknown or has spaces that are not supported.
    """
    from redline.envs.sampler import SamplerSettings
    from redline.envs.tasks import TaskError, control_task
    from redline.envs.track import NetworkSettings, control_track

    run = resolved.run
    try:
        return control_track(
            control_task(run.task, run.action_bound),
            networks=NetworkSettings(
                run.policy, run.device, run.hidden, run.activation, run.log_std_init
            ),
            sampling=SamplerSettings(
                run.n_envs,
                run.vectorization,
                run.normalize_observation,
                run.normalize_reward,
                resolved.recipe.gamma,
            ),
            needs_critic=algorithm.needs_critic,
            eval_episodes=run.eval_episodes,
            seed=run.seed,
        )
    except TaskError as error:
        raise BadInput(str(error)) from error
