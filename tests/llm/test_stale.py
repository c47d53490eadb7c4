"""Rollouts of former versions of the policy: which ones, how old, and the same from any process."""

import dataclasses
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pytest
import torch
from language import micro_llama

from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.types import Need, Rollout
from redline.benchmark.worker import Worker
from redline.llm_track import stale
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.settings import LanguageSettings
from redline.llm_track.stale import ProcessSampler, SamplerProcessError
from redline.llm_track.track import LanguageTrack, language_track

NEED = Need(groups=2, group_size=2)
LEFT_OUT = {"sums.jsonl, row 1": "???"}


def track(worker: Worker | None = None, **settings: Any) -> LanguageTrack:
    chosen = LanguageSettings(**{"max_completion": 8, "eval_problems": 4} | settings)
    return language_track("llm:arithmetic", chosen, needs_critic=False, seed=3, worker=worker)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


def moved(policy: Any, update: int) -> None:
    """An update that is the same in every run of the loop below."""
    noise = np.random.default_rng(update).normal(0.0, 2e-3, len(policy.parameters))
    policy.restore(policy.snapshot() + torch.as_tensor(noise).to(policy.parameters.dtype))


def rollouts(made: LanguageTrack, count: int) -> list[Rollout]:
    found = []
    for update in range(count):
        found.append(made.collect(made.policy, NEED))
        moved(made.policy, update)
    return found


def assert_same(first: Rollout, second: Rollout) -> None:
    for field in dataclasses.fields(Rollout):
        one, other = getattr(first, field.name), getattr(second, field.name)
        np.testing.assert_array_equal(one, other, err_msg=field.name)


def test_another_process_samples_the_same_rollouts_bit_for_bit(worker: Worker) -> None:
    here, there = rollouts(track(stale=2), 4), rollouts(track(worker, stale=2), 4)
    for n, (one, other) in enumerate(zip(here, there, strict=True)):
        assert one.log_prob is not None
        assert one.metrics["rollout/staleness"] == min(n, 2)
        assert_same(one, other)
    # The policy did move, so another version gives other numbers.
    fresher = rollouts(track(stale=1), 3)
    np.testing.assert_array_equal(fresher[0].log_prob, here[0].log_prob)
    assert fresher[2].log_prob.tolist() != here[2].log_prob.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mixed", [False, True])
def test_weights_arrive_bit_for_bit(dtype: torch.dtype, mixed: bool) -> None:
    def policy(seed: int) -> CausalLMPolicy:
        return CausalLMPolicy(micro_llama(seed).to(dtype))

    sent: Any = policy(0)
    if mixed:
        sent = MixturePolicy([sent]).with_component(policy(1), 0.3)
    weights = pickle.loads(pickle.dumps(stale._Weights.of(sent)))
    received = weights.put_into(policy(2))
    assert torch.equal(received.snapshot(), sent.snapshot())
    if mixed:
        assert received.weights == sent.weights
        assert torch.equal(received.newest.parameters, sent.newest.parameters)


class Recorded:
    """A worker that has done its work at once; says which version was to sample what."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self.versions: list[int] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(None)
        if function is stale._sample:
            self.versions.append(arguments[0])
            future = Future()
            future.set_result(stale._Sampled(arguments[0], None, self.rollout, LEFT_OUT))
        return future

    def last_words(self) -> str:
        raise AssertionError("it does not die")


@pytest.mark.parametrize("k", [1, 2, 5])
def test_staleness_and_what_waits_are_bounded(k: int) -> None:
    made = track()
    recorded = Recorded(made.collect(made.policy, NEED))
    sampler = ProcessSampler(recorded, "llm:arithmetic", LanguageSettings(stale=k), seed=0)
    for n in range(9):
        rollout = sampler.collect(made.policy, NEED)
        staleness = rollout.metrics["rollout/staleness"]
        assert staleness == n - max(0, n - k) == min(n, k) <= k
        # While rollout n is learned from, exactly k others wait or are being made.
        assert len(recorded.versions) - (n + 1) == k
    assert recorded.versions == [max(0, n - k) for n in range(9 + k)]
    assert sampler.left_out == LEFT_OUT


def test_a_failure_of_the_other_process_is_one_sentence(worker: Worker) -> None:
    made = track(worker, stale=1)
    with pytest.raises(SamplerProcessError) as caught:
        made.collect(made.policy, Need(steps=8))
    assert str(caught.value) == (
        "the sampler process failed: SamplingError: completions are whole episodes: ask for a "
        "number of episodes, not of steps"
    )


def test_a_model_that_only_the_other_process_cannot_load(worker: Worker) -> None:
    settings = LanguageSettings(stale=1, model="/no/such/folder")
    sampler = ProcessSampler(worker, "llm:arithmetic", settings, seed=0)
    with pytest.raises(SamplerProcessError, match="failed: ModelError: model '/no/such/folder'"):
        sampler.wait()


def test_both_processes_use_as_many_threads(worker: Worker) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        track(worker, stale=1)
        assert worker.call(torch.get_num_threads).result() == before + 1
    finally:
        torch.set_num_threads(before)


def test_without_staleness_another_process_is_refused(worker: Worker) -> None:
    with pytest.raises(ValueError, match="stale must be at least 1, got 0"):
        track(worker)


def test_the_death_of_the_other_process_is_one_sentence(worker: Worker) -> None:
    made = track(worker, stale=1)
    made.collect(made.policy, NEED)
    process = worker.call(os.getpid).result()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(BrokenProcessPool):
        worker.call(os.getpid).result()
    with pytest.raises(
        SamplerProcessError, match="the sampler process was ended by SIGKILL; the m"
    ):
        for _ in range(3):
            made.collect(made.policy, NEED)
