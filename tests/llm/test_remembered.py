"""What sampling leaves behind is what scoring would find, and is used no longer than it holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close

from redline.algorithms.core import learner as core_learner
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Batch, Need, Progress, Rollout
from redline.algorithms.grpo import GRPO
from redline.algorithms.trpo import TRPO
from redline.llm_track.completions import Completions
from redline.llm_track.critic import HeadCritic
from redline.llm_track.settings import LanguageSettings
from redline.llm_track.track import LanguageTrack, language_track

NEED = Need(groups=4, group_size=4)


def track(**settings: Any) -> LanguageTrack:
    chosen = LanguageSettings(**{"max_completion": 40, "eval_problems": 4} | settings)
    return language_track("llm:arithmetic", chosen, needs_critic=False, seed=0)


def batch_of(policy: Any, rollout: Rollout) -> Batch:
    fields = (rollout.observation, rollout.action, rollout.reward, rollout.reward, rollout.mask)
    return Batch(*map(policy.asarray, fields))


@contextmanager
def passes(policy: Any) -> Iterator[list[int]]:
    """Rows of every forward pass of the trunk."""
    rows: list[int] = []
    states = policy.states

    def spy(part: Any, values: Any = None) -> Any:
        rows.append(len(part.tokens))
        return states(part, values)

    policy.states = spy
    yield rows
    del policy.states


def test_a_rollout_is_scored_without_reading_it_again() -> None:
    made = track(temperature=0.8)
    policy = made.policy
    batch = batch_of(policy, rollout := made.collect(policy, NEED))
    with passes(policy) as rows:
        kept = policy.evaluate(batch)
    assert rows == []
    close(kept.log_prob.numpy(), rollout.sampled_log_prob, rtol=0.0, atol=1e-5)
    policy.restore(policy.snapshot())
    with passes(policy) as rows:
        read = policy.evaluate(batch)
    assert sum(rows) == 16
    close(kept.log_prob, read.log_prob, rtol=0.0, atol=1e-5)
    close(kept.params[0], read.params[0], rtol=0.0, atol=1e-4)


def test_other_rows_and_other_parameters_are_read() -> None:
    made = track()
    policy = made.policy
    batch = batch_of(policy, made.collect(policy, NEED))
    with passes(policy) as rows:
        policy.evaluate(batch.take(slice(None, None, 4)))
    assert sum(rows) == 4
    policy.parameters[0] += 0.5
    moved = policy.evaluate(batch).log_prob
    assert (moved - policy.copy().evaluate(batch).log_prob).abs().max() < 1e-5


@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}, {"stale": 1}])
def test_where_states_depend_on_the_batch_or_the_policy_they_are_not_kept(settings: Any) -> None:
    made = track(**settings)
    batch = batch_of(made.policy, made.collect(made.policy, NEED))
    with passes(made.policy) as rows:
        made.policy.evaluate(batch)
    assert sum(rows) == 16


def test_sampling_that_scoring_does_not_agree_with_is_seen() -> None:
    gaps = []
    for temperature in (1.0, 0.5):
        made = track()
        algorithm = GRPO(groups=4, group_size=4).build()
        learner = Learner(algorithm, made.policy, None, np.random.default_rng(0))
        generation: Any = made.sampler.generation  # type: ignore[attr-defined]
        generation.settings = replace(generation.settings, temperature=temperature)
        metrics = learner.update(made.collect(made.policy, algorithm.need), Progress(0, 100))
        gaps.append(metrics["rollout/outside_band"])
    assert gaps[0] == 0.0 and gaps[1] > 0.02


def test_rows_are_looked_at_evenly_after_an_update() -> None:
    made = track()
    algorithm = GRPO(groups=16, group_size=8, lr=1e-6).build()
    learner = Learner(algorithm, made.policy, None, np.random.default_rng(0))
    learner.update(made.collect(made.policy, algorithm.need), Progress(0, 100))
    seen = learner.seen
    assert seen is not None and seen.log_prob is not None
    assert len(seen.batch) == 128 and seen.rows == slice(None, None, 5)
    whole = made.policy.evaluate(seen.batch).log_prob
    close(seen.log_prob, whole[::5], rtol=0.0, atol=1e-5)
    assert len(seen.looked_at) == 26


@pytest.mark.parametrize("minibatch", [16, 64])
def test_a_rule_that_judges_all_rows_reports_all_of_them(minibatch: int) -> None:
    made = track()
    natural = {"delta": 0.002, "fisher_rows": 16, "cg_iterations": 3}
    algorithm = TRPO(episodes=64, gamma=1.0, critic_minibatch_size=minibatch, **natural).build()
    critic = HeadCritic(made.policy)
    learner = Learner(algorithm, made.policy, critic, np.random.default_rng(0))
    rollout = made.collect(made.policy, algorithm.need)
    with passes(made.policy) as rows:
        metrics = learner.update(rollout, Progress(0, 100))
    assert learner.seen is not None and learner.seen.rows == slice(None)
    assert metrics["train/step_accepted"] == 1.0 and 0.0 < metrics["train/kl"] <= 0.002
    # Some rows to compare with sampling, the gradient, the matrix (whose products go through its
    # graph), and a pass for each candidate: none for what is known, nor for the critic.
    candidates = 1 + round(np.log(metrics["train/line_search_fraction"]) / np.log(0.8))
    assert sum(rows) == 8 + 64 + 16 + 64 * candidates


def test_measures_of_some_rows_are_free_of_their_mean_advantage() -> None:
    found = []
    for looked_at in (32, 128):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core_learner, "_LOOKED_AT", looked_at)
            made = track()
            algorithm = GRPO(groups=16, group_size=8, lr=1e-9, std=False).build()
            learner = Learner(algorithm, made.policy, None, np.random.default_rng(0))
            rollout = made.collect(made.policy, algorithm.need)
            # Only the rows that are looked at are paid.
            reward = np.where(np.arange(128)[:, None] % 4 == 0, 5.0 * rollout.reward, 0.0)
            found.append(learner.update(replace(rollout, reward=reward), Progress(0, 100)))
    some, every = found
    for name in ("train/advantage_mean", "train/advantage_std", "train/advantage_negative"):
        assert some[name] == every[name]
    for name in ("train/expected_gain", "train/loss"):
        assert some[name] == pytest.approx(every[name], abs=1e-5)


def test_micro_batches_hold_rows_of_similar_length() -> None:
    lengths = [40] * 9 + [31] * 2 + [29] * 6 + [9] * 4
    mask = torch.arange(40) < torch.tensor(lengths)[:, None]
    tokens = torch.ones(len(lengths), 41, dtype=torch.int64)
    real = torch.nn.functional.pad(mask, (1, 0), value=True)
    completions = Completions(torch.stack([tokens, real], dim=-1), mask)

    def shapes(**limits: int) -> list[tuple[int, ...]]:
        return [tuple(part.tokens.shape) for part in completions.parts(**limits)]

    assert shapes() == [(11, 40), (8, 29), (2, 9)]
    assert shapes(rows=5) == [(5, 40), (5, 40), (5, 31), (5, 29), (1, 9)]
    assert shapes(tokens=80) == [(2, 40)] * 5 + [(2, 31)] + [(2, 29)] * 3 + [(3, 9)]
    assert shapes(tokens=1) == [(1, length) for length in lengths]
    found = [part.elements for part in completions.parts(rows=3)]
    assert sum(len(row) for row, _ in found) == int(mask.sum())
