"""The one training loop, for every method and every track."""

from __future__ import annotations

import contextlib
import importlib
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
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
    # Before the clock starts: the first run of a process shall not count as slower.
    for name in _SLOW_IMPORTS:
        importlib.import_module(name)
    algorithm: Algorithm = resolved.recipe.build()
    track = make_track(resolved, algorithm)
    try:
        run = RunFolder(folder, resolved)
        try:
            last = _Loop(resolved, algorithm, track, run, report or (lambda step, last: None)).run()
        except BaseException as error:
            # On a full disk this fails as well; what is told is what stopped the run.
            with contextlib.suppress(OSError):
                run.finish("failed", error=describe(error), traceback=traceback.format_exc())
            raise
        run.finish("done", final=last)
        return last
    finally:
        track.close()


class _Loop:
    def __init__(
        self,
        resolved: Resolved,
        algorithm: Algorithm,
        track: Track,
        run: RunFolder,
        report: Report,
    ) -> None:
        self.resolved, self.need, self.track = resolved, algorithm.need, track
        self.folder, self.report = run, report
        # A stream of its own for shuffles, beside those that the track spawns from the seed.
        rng = np.random.default_rng(np.random.SeedSequence(resolved.run.seed, spawn_key=(1_000,)))
        self.learner = Learner(algorithm, track.policy, track.critic, rng)
        self.step = self.updates = 0
        self.returns: deque[float] = deque(maxlen=_WINDOW)
        self.lengths: deque[int] = deque(maxlen=_WINDOW)
        self.busy = 0.0
        self.peak_mb = 0.0

    def run(self) -> dict[str, float]:
        config = self.resolved.run
        marks = [config.steps * k / config.evals for k in range(1, config.evals + 1)]
        last = self._evaluate()
        while self.step < config.steps:
            self._update()
            due = [mark for mark in marks if self.step >= mark]
            if due:
                marks = marks[len(due) :]
                last = self._evaluate()
            self.report(self.step, last)
        if not config.evals:
            last = self._evaluate()
        return last

    def _evaluate(self) -> dict[str, float]:
        metrics = self.track.evaluate(self.learner.policy)
        # Read here and not at every update: it costs as much as the rest of an update's logging.
        self.peak_mb = peak_memory_mb()
        self.folder.log_eval(self.step, metrics)
        checkpoint.save(
            self.folder.folder,
            {
                "hash": self.resolved.hash,
                "step": self.step,
                "updates": self.updates,
                "learner": self.learner.state_dict(),
                "track": self.track.state_dict(),
            },
        )
        return metrics

    def _update(self) -> None:
        start = time.perf_counter()
        rollout = self.track.collect(self.learner.policy, self.need)
        collected = time.perf_counter()
        progress = Progress(self.step, self.resolved.run.steps)
        metrics = self.learner.update(rollout, progress)
        done = time.perf_counter()
        self.step += rollout.steps
        self.updates += 1
        self.busy += done - start
        self.returns += rollout.episode_return
        self.lengths += rollout.episode_length
        if self.returns:
            metrics["rollout/ep_rew_mean"] = float(np.mean(self.returns))
            metrics["rollout/ep_len_mean"] = float(np.mean(self.lengths))
        metrics["time/fps"] = self.step / self.busy
        metrics["time/collect"] = collected - start
        metrics["time/update"] = done - collected
        metrics["memory/peak_mb"] = self.peak_mb
        self.folder.log(self.step, self.updates, metrics)


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
            control_task(run.task),
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
