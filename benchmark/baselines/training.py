"""Runs of the external baselines: their own training, in our record and on our evaluation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from redline.benchmark.baselines.model import Environments, Model
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput
from redline.benchmark.recording import Recorder, Report, warm_up
from redline.benchmark.writing import writing
from redline.envs.evaluate import Evaluator
from redline.envs.tasks import TaskError, control_task
from redline.envs.track import ControlTrack

# What means the same in both libraries; everything else is kept under sb3/.
_SAME = (
    "train/learning_rate",
    "train/approx_kl",
    "train/value_loss",
    "train/explained_variance",
)


def train(resolved: Resolved, folder: Path, report: Report) -> dict[str, float]:
    """Train and write one run; gives the last evaluation.

    Args:
        resolved: Settings.
        folder: Run folder.
        report: Called with (step, last evaluation) after every update.

    Raises:
        BadInput: The folder cannot be written, or the task cannot be made.
        Exception: Whatever stopped the run; run.json then says "failed" and holds the traceback.
    """
    warm_up()
    model, track = parts(resolved)
    with contextlib.closing(track), writing(folder, resolved) as run:
        recorder = Recorder(resolved, model, track, run)
        recorder.evaluate()
        model.method.learn(resolved.run.steps, _Callback(recorder, report))
        recorder.evaluate_at_end()
        return recorder.last


def parts(resolved: Resolved) -> tuple[Model, ControlTrack]:
    """The method, and our evaluation of it on our environments.

    Raises:
        BadInput: The task cannot be made.
    """
    try:
        task = control_task(resolved.run.task)
    except TaskError as error:
        raise BadInput(str(error)) from error
    environments: Any = Environments(task, resolved)
    try:
        model = Model(resolved, task, environments)
        evaluator = Evaluator(task, resolved.control.eval_episodes, environments.normalise)
    except BaseException:
        environments.close()
        raise
    # The environments stand where a sampler of ours would: nothing is collected through them.
    return model, ControlTrack(task, model.policy, None, environments, evaluator)


class _Callback(BaseCallback):
    """Logs every update and evaluates at the marks.

    The library calls back at the ends of a rollout, so an update ends where the next rollout, or
    nothing more, begins.
    """

    def __init__(self, recorder: Recorder, report: Report) -> None:
        super().__init__()
        self._recorder, self._report = recorder, report
        self._began = self._collected = 0.0

    def _on_rollout_start(self) -> None:
        self._finish_update()
        self._began = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self._collected = time.perf_counter()

    def _on_training_end(self) -> None:
        self._finish_update()

    def _on_step(self) -> bool:
        return True

    def _finish_update(self) -> None:
        done, steps = time.perf_counter(), self.num_timesteps - self._recorder.step
        if not steps:  # before the first rollout
            return
        episodes = self.model.ep_info_buffer or ()
        self._recorder.updated(
            translated(self.logger.name_to_value),
            steps=steps,
            returns=[episode["r"] for episode in episodes],
            lengths=[episode["l"] for episode in episodes],
            collect=self._collected - self._began,
            update=done - self._collected,
        )
        self._recorder.evaluate_if_due()
        self._report(self._recorder.step, self._recorder.last)


def translated(values: Mapping[str, Any]) -> dict[str, float]:
    """What an update of Stable-Baselines3 logged, under our names.

    Only what means the same has one of them. Its clip fraction, for one, counts ratios outside the
    band whatever the sign of the advantage, and sb3-contrib's kl_divergence_loss is KL(new‖old).
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        number = float(value)
        if name in _SAME:
            found[name] = number
        elif name == "train/entropy_loss":
            found["train/entropy"] = -number
        elif name == "train/is_line_search_success":
            found["train/step_accepted"] = number
        else:
            found[f"sb3/{name.rpartition('/')[2]}"] = number
    return found
