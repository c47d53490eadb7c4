"""The one training loop, for every method and every track."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.learner import Learner
from redline.benchmark import language, ranks
from redline.benchmark.baselines import catalogue
from redline.benchmark.config import Resolved, setting_names
from redline.benchmark.errors import BadInput
from redline.benchmark.loop import Loop, Track
from redline.benchmark.recording import (
    Evaluated,
    Learned,
    Report,
    warm_up,
)
from redline.benchmark.resume import PROGRESS
from redline.benchmark.silent import silent
from redline.benchmark.tracks import LANGUAGE, track_of
from redline.benchmark.worker import Worker
from redline.benchmark.writing import RunFolder, writing

if TYPE_CHECKING:
    from redline.llm_track.track import LanguageTrack


def train(resolved: Resolved, folder: Path, report: Report | None = None) -> dict[str, float]:
    """Train and write one run; gives the last evaluation.

    Args:
        resolved: Settings.
        folder: Run folder.
        report: Called with (step, last evaluation) after every update.

    Raises:
        BadInput: The folder cannot be written, another process is writing to it, or the task
            cannot be made.
        Tripped: The breaker ended the run; run.json then says "tripped".
        Exception: Whatever stopped the run; run.json then says "failed" and holds the traceback.
    """
    report = report or (lambda step, last: None)
    if catalogue.is_external(resolved.algo):
        from redline.benchmark.baselines import training

        return training.train(resolved, folder, report)
    with opened(resolved, folder) as loop:
        return _run(loop, report)


@contextlib.contextmanager
def opened(resolved: Resolved, folder: Path) -> Iterator[Loop]:
    """A run of ours that is ready for its next update; its record is closed with the block.

    Args:
        resolved: Settings.
        folder: Run folder.

    Raises:
        BadInput: As `train`.
    """
    warm_up()
    algorithm: Algorithm = resolved.recipe.build()
    with (
        Worker() as worker,
        contextlib.closing(make_track(resolved, algorithm, worker)) as track,
        _record(folder, resolved) as run,
    ):
        loop = Loop(resolved, _learner(resolved, algorithm, track), track, run)
        if run.state is not None:
            loop.resume(run.state)
        yield loop


@contextlib.contextmanager
def _record(folder: Path, resolved: Resolved) -> Iterator[RunFolder]:
    """The run's folder, which of several processes the first one writes."""
    if ranks.count() == 1:
        with writing(folder, resolved) as run:
            yield run
        return
    with writing(folder, resolved) if ranks.first() else silent(folder) as run:
        run.state = ranks.of_first(lambda: run.state)
        if run.state is not None:
            run.trips.load(run.state[PROGRESS]["trips"])
        yield run


def parts(resolved: Resolved) -> tuple[Learned, Evaluated]:
    """What a checkpoint is loaded into: what was trained, and what evaluates it.

    Raises:
        BadInput: The task or the library behind the method cannot be used.
    """
    if catalogue.is_external(resolved.algo):
        catalogue.require_packages(f"{resolved.algo} needs")
        from redline.benchmark.baselines import training

        return training.parts(resolved)
    algorithm: Algorithm = resolved.recipe.build()
    track = make_track(resolved, algorithm)
    try:
        return _learner(resolved, algorithm, track), track
    except BaseException:
        track.close()
        raise


def _learner(resolved: Resolved, algorithm: Algorithm, track: Track) -> Learner:
    # A stream of its own for shuffles, beside those that the track spawns from the seed.
    rng = np.random.default_rng(np.random.SeedSequence(resolved.run.seed, spawn_key=(1_000,)))
    return Learner(algorithm, track.policy, track.critic, rng)


def _run(loop: Loop, report: Report) -> dict[str, float]:
    """Every update of a run, with its evaluations; gives the last of these."""
    loop.evaluate_at_start()
    report(loop.step, loop.last)
    while not loop.finished:
        loop.update()
        loop.evaluate_if_due()
        report(loop.step, loop.last)
    loop.evaluate_at_end()
    return loop.last


def make_track(resolved: Resolved, algorithm: Algorithm, worker: Worker | None = None) -> Track:
    """Policy, critic, sampler and evaluator for a task.

    Args:
        resolved: Settings.
        algorithm: Says whether a critic is needed.
        worker: Where rollouts are sampled if the settings ask for another process; None: nothing
            is collected, or by this process.

    Raises:
        BadInput: The task is unknown or not supported, or a setting or the launcher's processes do
            not fit it.
    """
    if track_of(resolved.run.task) is LANGUAGE:
        return make_language_track(resolved, algorithm, worker)
    return _control_track(resolved, algorithm)


def make_language_track(
    resolved: Resolved, algorithm: Algorithm, worker: Worker | None = None
) -> LanguageTrack:
    """`make_track` for a language task."""
    run = resolved.language
    ranks.require_sharable(resolved.algo, algorithm.update.needs_whole)
    with language.refusals(run.task, setting_names(resolved)):
        from redline.llm_track.track import language_track

        return language_track(
            run.task,
            run,
            needs_critic=algorithm.needs_critic,
            seed=run.seed,
            worker=worker if run.sampler_process else None,
        )


def _control_track(resolved: Resolved, algorithm: Algorithm) -> Track:
    from redline.envs.sampler import SamplerSettings
    from redline.envs.tasks import TaskError, control_task
    from redline.envs.track import NetworkSettings, control_track

    run = resolved.control
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
