"""Rollouts of the policy of some updates ago, sampled by this process or by another one.

Rollout n = 0, 1, ... is learned from by version n of the policy, the one after n updates, and comes
from version max(0, n - k). Its staleness is the difference, min(n, k) updates, so k is the bound.

With another process the two work at the same time: once version n is there, rollout n + k can be
sampled, while this process learns from rollouts n to n + k - 1. At most k rollouts wait or are
being made while one is learned from. No scheme with the same bound could begin a rollout sooner,
and which version samples what depends on no clock: the rollouts are those of one process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch

from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.types import Array, Need, Rollout
from redline.llm_track.assembly import Parts, assemble
from redline.llm_track.rewards import RewardError
from redline.llm_track.sampler import LanguageSampler
from redline.llm_track.settings import LanguageSettings


class SamplerProcessError(RuntimeError):
    """Why the other process gives no rollout, in one sentence."""


class Worker(Protocol):
    """Another process, which runs functions in the order of their calls."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a function there.

        Raises:
            BrokenProcessPool: The process has died, as the results of its calls raise too.
        """

    def last_words(self) -> str:
        """How it died."""


class StaleSampler:
    """Samples with former versions of the policy, in this process.

    Args:
        sampler: Keeps log-probabilities.
        stale: k, at least 1.
    """

    def __init__(self, sampler: LanguageSampler, stale: int) -> None:
        self._sampler, self._stale = sampler, stale
        self._past: deque[Any] = deque(maxlen=stale + 1)
        self._version = 0

    def collect(self, policy: Any, need: Need) -> Rollout:
        """The next rollout; `policy` has learned from the last one.

        Raises:
            SamplingError: Steps were asked for, or a prompt is too long.
        """
        current = policy.snapshot()
        self._past.append(current)
        policy.restore(self._past[0])
        try:
            rollout = self._sampler.collect(policy, need)
        except RewardError:
            self._past.pop()  # as before this call
            raise
        finally:
            policy.restore(current)
        self._version += 1
        return _aged(rollout, len(self._past) - 1)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Questions passed over so far, as the task has them."""
        return self._sampler.left_out

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides the policy."""
        past = list(self._past)[-self._stale :]
        return self._sampler.progress() | {"version": self._version, "past": past}

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`, of this sampler or of one with another process."""
        self._sampler.resume(progress)
        self._version = progress["version"]
        self._past.extend(progress["past"])


class ProcessSampler:
    """Samples with former versions of the policy, in another process.

    Attributes:
        left_out: Questions passed over so far, as the task there has them.

    Args:
        worker: That process; nothing else is called there.
        task: As the track's.
        settings: As the track's; `stale` is k, at least 1.
        seed: As the track's.
    """

    def __init__(self, worker: Worker, task: str, settings: LanguageSettings, seed: int) -> None:
        self._worker, self._stale = worker, settings.stale
        self._waiting: deque[Future[_Sampled]] = deque()
        self._past: deque[_Weights] = deque(maxlen=settings.stale)
        self._version = 0
        self.left_out: Mapping[str, str] = {}
        # As many threads as here, for another number would sum in another order.
        self._ready = worker.call(_prepare, task, settings, seed, torch.get_num_threads())

    def wait(self) -> None:
        """Until the other process has loaded what it needs.

        Raises:
            SamplerProcessError: It failed, or has died.
        """
        with self._explained():
            self._ready.result()

    def collect(self, policy: Any, need: Need) -> Rollout:
        """The next rollout; `policy` has learned from the last one.

        Raises:
            SamplerProcessError: The other process failed, or has died.
        """
        current = self._version
        weights = _Weights.of(policy)
        with self._explained():
            if not self._waiting:
                self._ask_again(need)
            for _ in range(1 if current else self._stale + 1):
                self._waiting.append(self._worker.call(_sample, current, weights, need))
            sampled = self._waiting.popleft().result()
        self.left_out = sampled.left_out
        self._past.append(weights)
        self._version += 1
        return _aged(sampled.rollout, current - sampled.version)

    def _ask_again(self, need: Need) -> None:
        """For the rollouts that were waiting when a run was cut."""
        oldest = self._version - len(self._past)
        for rollout in range(self._version, self._version + self._stale if self._past else 0):
            version = max(0, rollout - self._stale)
            weights = self._past[version - oldest]
            self._waiting.append(self._worker.call(_sample, version, weights, need))

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides the policy, as `StaleSampler` has it."""
        rng = None
        if self._waiting:
            with self._explained():
                rng = self._waiting[0].result().rng
        past = [weights.snapshot() for weights in self._past]
        return {"rng": rng, "version": self._version, "past": past}

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`, of this sampler or of one without another process."""
        if progress["rng"] is not None:
            self._worker.call(_set_rng, progress["rng"])
        self._version = progress["version"]
        self._past.extend(_Weights.packed(torch.as_tensor(part)) for part in progress["past"])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool as error:
            said = self._worker.last_words()
            raise SamplerProcessError(f"the sampler process {said}") from error
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise SamplerProcessError(f"the sampler process failed: {said}") from error


def _aged(rollout: Rollout, staleness: int) -> Rollout:
    return replace(rollout, metrics=rollout.metrics | {"rollout/staleness": float(staleness)})


class _Weights(NamedTuple):
    """A snapshot of a policy on its way between processes: bytes [P], or [K, P] of a mixture."""

    data: Array
    dtype: torch.dtype
    mixture: bool

    @classmethod
    def of(cls, policy: Any) -> _Weights:
        return cls.packed(policy.snapshot())

    @classmethod
    def packed(cls, snapshot: Any) -> _Weights:
        # Bytes, for numpy has no bfloat16, and a tensor's shared memory would need this process.
        data = snapshot.cpu().view(torch.uint8).numpy()
        return cls(data, snapshot.dtype, snapshot.ndim > 1)

    def snapshot(self) -> Any:
        """As the policy gave it."""
        return torch.from_numpy(self.data).view(self.dtype)

    def put_into(self, policy: Any) -> Any:
        """The policy with these weights."""
        restored = MixturePolicy([policy]) if self.mixture else policy
        restored.restore(self.snapshot())
        return restored


class _Sampled(NamedTuple):
    """A rollout.

    Attributes:
        version: Sampled it.
        rng: State of the random numbers before.
        rollout: The rollout.
        left_out: Questions passed over until then.
    """

    version: int
    rng: Any
    rollout: Rollout
    left_out: dict[str, str]


# In the other process.

_parts: Parts | None = None
_sampler: LanguageSampler | None = None


def _prepare(task: str, settings: LanguageSettings, seed: int, threads: int) -> None:
    global _parts, _sampler
    torch.set_num_threads(threads)
    _parts = assemble(task, settings, seed)
    _sampler = _parts.sampler(keep_log_prob=True)


def _set_rng(state: Any) -> None:
    assert _sampler is not None
    _sampler.rng.bit_generator.state = state


def _sample(version: int, weights: _Weights, need: Need) -> _Sampled:
    assert _parts is not None and _sampler is not None
    before = _sampler.rng.bit_generator.state
    rollout = _sampler.collect(weights.put_into(_parts.policy), need)
    return _Sampled(version, before, rollout, dict(_sampler.left_out))
