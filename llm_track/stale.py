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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch

from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.types import Array, Need, Rollout
from redline.llm_track.assembly import Parts, assemble
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
        finally:
            policy.restore(current)
        return _aged(rollout, len(self._past) - 1)


class ProcessSampler:
    """Samples with former versions of the policy, in another process.

    Args:
        worker: That process; nothing else is called there.
        task: As the track's.
        settings: As the track's; `stale` is k, at least 1.
        seed: As the track's.
    """

    def __init__(self, worker: Worker, task: str, settings: LanguageSettings, seed: int) -> None:
        self._worker, self._stale = worker, settings.stale
        self._waiting: deque[Future[tuple[int, Rollout]]] = deque()
        self._version = 0
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
            for _ in range(1 if current else self._stale + 1):
                self._waiting.append(self._worker.call(_sample, current, weights, need))
            version, rollout = self._waiting.popleft().result()
        self._version += 1
        return _aged(rollout, current - version)

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
        snapshot = policy.snapshot()
        # Bytes, for numpy has no bfloat16, and a tensor's shared memory would need this process.
        data = snapshot.cpu().view(torch.uint8).numpy()
        return cls(data, snapshot.dtype, isinstance(policy, MixturePolicy))

    def put_into(self, policy: Any) -> Any:
        """The policy with these weights."""
        restored = MixturePolicy([policy]) if self.mixture else policy
        restored.restore(torch.from_numpy(self.data).view(self.dtype))
        return restored


# In the other process.

_parts: Parts | None = None
_sampler: LanguageSampler | None = None


def _prepare(task: str, settings: LanguageSettings, seed: int, threads: int) -> None:
    global _parts, _sampler
    torch.set_num_threads(threads)
    _parts = assemble(task, settings, seed)
    _sampler = _parts.sampler(keep_log_prob=True)


def _sample(version: int, weights: _Weights, need: Need) -> tuple[int, Rollout]:
    assert _parts is not None and _sampler is not None
    return version, _sampler.collect(weights.put_into(_parts.policy), need)
