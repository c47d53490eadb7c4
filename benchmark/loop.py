"""The steps that a run of ours is made of."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from redline.algorithms.core.arrays import host
from redline.algorithms.core.breaker import Breaker, Trip, not_finite
from redline.algorithms.core.closeup import CloseUp
from redline.algorithms.core.contracts import Critic, Policy
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Metrics, Need, Progress, Rollout
from redline.benchmark import checkpoint, ranks
from redline.benchmark.breaking import Tripped, sentence
from redline.benchmark.config import Resolved
from redline.benchmark.phases import Phases
from redline.benchmark.recording import WINDOW, Evaluated, Recorder
from redline.benchmark.resume import PROGRESS
from redline.benchmark.samples import chosen, samples
from redline.benchmark.tracks import LanguageConfig
from redline.benchmark.writing import RunFolder
from redline.llm_track.rewards import RewardError


class Track(Evaluated, Protocol):
    """What the loop needs of a track."""

    policy: Policy
    critic: Critic | None
    unit: str

    def advance(self, policy: Policy, fraction: float) -> None:
        """Take the settings of a moment of the budget, 0 to 1."""

    def collect(self, policy: Policy, need: Need) -> Rollout:
        """One rollout of the policy."""

    def texts(self, rollout: Rollout, rows: Sequence[int]) -> list[tuple[str, str]]:
        """Prompt and completion of some rows; on language tasks alone."""

    @property
    def left_out(self) -> dict[str, str]:
        """Questions passed over, since nothing can be compared with their gold: place -> gold."""

    @property
    def exact(self) -> bool:
        """A run goes on from `progress` bit for bit."""

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides policy and statistics."""

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`."""


class Loop(Recorder):
    """The steps that a run of ours is made of; see `Recorder` for what it writes."""

    def __init__(
        self, resolved: Resolved, learner: Learner, track: Track, folder: RunFolder
    ) -> None:
        super().__init__(resolved, learner, track, folder)
        self._learner, self._track = learner, track
        self._breaker = Breaker(resolved.run.breaker)
        self._phases = Phases() if resolved.run.telemetry == "full" else None
        self._close_up = None
        if self._phases is not None:
            self._close_up = CloseUp(partial(self._phases.end, "advantage"))
            learner.watch = self._close_up
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lengths: deque[int] = deque(maxlen=WINDOW)

    @property
    def finished(self) -> bool:
        """The budget is spent."""
        return self.step >= self.resolved.run.steps

    def evaluate(self) -> None:
        """As every recorder; notes questions that were passed over until then."""
        self._folder.left_out |= self._track.left_out
        super().evaluate()

    def update(self) -> Rollout:
        """Collect one rollout, learn from it and log; gives the rollout.

        Raises:
            Tripped: The breaker ended the run.
            Exception: Whatever the environment, the method or the disk raises.
        """
        phases = self._phases
        if phases is not None:
            phases.begin()
        start = time.perf_counter()
        self._track.advance(self._learner.policy, self.step / self.resolved.run.steps)
        try:
            rollout = self._track.collect(self._learner.policy, self._learner.algorithm.need)
        except RewardError:
            self.save()  # the same command goes on from here once the reward is mended
            raise
        collected = time.perf_counter()
        if phases is not None:
            phases.end("collect")
        metrics, trip = self._learn(rollout)
        done = time.perf_counter()
        if phases is not None:
            phases.end("policy")
            metrics |= phases.metrics
            self._folder.highest_mb = max(self._folder.highest_mb, phases.peak_mb)
        self._returns += rollout.episode_return
        self._lengths += rollout.episode_length
        self.updated(
            rollout.metrics | metrics,
            steps=rollout.steps,
            returns=self._returns,
            lengths=self._lengths,
            collect=collected - start,
            update=done - collected,
            arrays=self._arrays if self._came_to_an_end else None,
        )
        if self._came_to_an_end:
            self._keep_samples(rollout)
        if trip is not None:
            self._tripped(trip)
        return rollout

    def _keep_samples(self, rollout: Rollout) -> None:
        """Completions for a blind look, where they are due."""
        run, seen = self.resolved.run, self._learner.seen
        if not isinstance(run, LanguageConfig) or seen is None:
            return
        if run.review_every and self._updates % run.review_every == 0:
            texts = self._track.texts(rollout, chosen(seen))
            self._folder.log_samples(self.step, self._updates, samples(rollout, seen, texts))

    @property
    def _came_to_an_end(self) -> bool:
        """The last update was not broken off."""
        return self._learner.seen is not None and self._learner.seen.log_prob is not None

    def _arrays(self) -> tuple[Any, Any]:
        """Log ratio after the last update, of what was looked at, and advantages before it."""
        seen = self._learner.seen
        assert seen is not None
        part, batch = seen.looked_at, seen.batch
        log_ratio = host(seen.log_prob - part.old_log_prob)[host(part.mask)]
        return log_ratio, host(batch.advantage)[host(batch.mask)]

    def _learn(self, rollout: Rollout) -> tuple[Metrics, Trip | None]:
        """Metrics of an update, and why it must not count."""
        breaker, learner = self._breaker, self._learner
        progress = Progress(self.step, self.resolved.run.steps, breaker.scale)
        try:
            metrics = learner.update(rollout, progress)
        except FloatingPointError as error:
            if not breaker.goes_back:
                raise
            return {}, not_finite(str(error))
        return metrics, breaker.judge(metrics, learner.policy, learner.critic)

    def _tripped(self, trip: Trip) -> None:
        """Note a trip, and go back to the last checkpoint where that is asked for.

        Raises:
            Tripped: The run ends with it.
        """
        breaker, folder = self._breaker, self._folder
        folder.trips.add(trip, self.step, self._updates, breaker.action)
        if len(folder.trips) == 1 or breaker.goes_back:
            folder.keep(self._learner, trip, self.step, self._updates)
        ends = breaker.tripped()
        if not breaker.goes_back:
            return
        good = ranks.of_first(lambda: next(checkpoint.candidates(folder.folder)))
        self._learner.load_state_dict(good["learner"])
        self._track.load_state_dict(good["track"])
        if ends:
            self.evaluate()
            raise Tripped(sentence(trip, self.step, self._updates, good["step"]))

    def progress(self) -> dict[str, Any]:
        """What going on exactly needs besides what is learned."""
        return self._recorded() | {
            "exact": self._track.exact,
            "rng": self._learner.rng.bit_generator.state,
            "track": self._track.progress(),
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "breaker": self._breaker.state_dict(),
            "left_out": dict(self._folder.left_out),
            "close_up": None if self._close_up is None else self._close_up.state_dict(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._resume(state)
        progress = state[PROGRESS]
        self._learner.rng.bit_generator.state = progress["rng"]
        self._track.resume(progress["track"])
        self._returns.extend(progress["returns"])
        self._lengths.extend(progress["lengths"])
        self._breaker.load_state_dict(progress["breaker"])
        self._folder.left_out |= progress.get("left_out", {})
        if self._close_up is not None and progress["close_up"] is not None:
            self._close_up.load_state_dict(progress["close_up"], self._learner.policy)
