"""Faults that would train silently stop the run before its first update."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from language import MICRO, PlainPolicy, micro_language_model

from redline.algorithms.core.types import Need, Rollout
from redline.llm_track import checks
from redline.llm_track.checks import CheckFailed
from redline.llm_track.generation import Generation, SamplingSettings
from redline.llm_track.models import LanguageModel
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.problems import Problem
from redline.llm_track.sampler import LanguageSampler
from redline.llm_track.tasks import language_task


def sampler_of(made: LanguageModel, temperature: float = 1.0) -> LanguageSampler:
    settings = SamplingSettings(temperature, max_completion=10)
    rng = np.random.default_rng(0)
    task = language_task("llm:arithmetic")
    return LanguageSampler(task, Generation(made, settings), rng, keep_log_prob=True)


def fresh(kind: str = "llama", temperature: float = 1.0) -> tuple[LanguageModel, Rollout]:
    made = replace(micro_language_model(), model=MICRO[kind]())
    policy = PlainPolicy(made.model)
    rollout = sampler_of(made, temperature).collect(policy, Need(groups=3, group_size=4))
    return made, rollout


@pytest.mark.parametrize("kind", MICRO)
def test_what_fits_together_passes(kind: str) -> None:
    made, _ = fresh(kind)
    checks.start_up(CausalLMPolicy(made.model, temperature=0.8), sampler_of(made, 0.8), False)


def test_another_temperature_is_caught() -> None:
    made, _ = fresh()
    with pytest.raises(CheckFailed, match="sampling and scoring disagree") as caught:
        checks.start_up(CausalLMPolicy(made.model, temperature=0.9), sampler_of(made, 1.0), False)
    assert "\n" not in str(caught.value)


def test_other_weights_are_caught() -> None:
    made, rollout = fresh()
    policy = PlainPolicy(MICRO["llama"](seed=1))
    for coarse in (False, True):
        with pytest.raises(CheckFailed, match=r"\|log ratio\|"):
            checks.log_probs(policy, rollout, coarse)  # type: ignore[arg-type]
    checks.log_probs(PlainPolicy(made.model), rollout, False)  # type: ignore[arg-type]


def test_a_coarse_model_may_differ_a_little_in_the_mean() -> None:
    made, rollout = fresh()
    noise = np.random.default_rng(0).normal(0.0, 0.05, rollout.mask.shape)
    noisy = replace(rollout, log_prob=rollout.log_prob + noise)
    policy: Any = PlainPolicy(made.model)
    checks.log_probs(policy, noisy, coarse=True)
    with pytest.raises(CheckFailed):
        checks.log_probs(policy, noisy, coarse=False)


def test_one_token_is_enough() -> None:
    made, rollout = fresh()
    log_prob = rollout.log_prob.copy()
    log_prob[-1, 0] += 1e-3
    with pytest.raises(CheckFailed, match="largest"):
        checks.log_probs(
            PlainPolicy(made.model),  # type: ignore[arg-type]
            replace(rollout, log_prob=log_prob),
            coarse=False,
        )


def test_nan_does_not_pass() -> None:
    made, rollout = fresh()
    policy: Any = PlainPolicy(made.model)
    broken = replace(rollout, log_prob=np.full(rollout.mask.shape, np.nan))
    for coarse in (False, True):
        with pytest.raises(CheckFailed, match="nan"):
            checks.log_probs(policy, broken, coarse)


EOS = 2


def rows(*tokens: list[int], lengths: list[int], cut: list[bool]) -> Rollout:
    """A rollout of completions that are given with their mask's lengths."""
    action = np.array(tokens)
    mask = np.arange(action.shape[1]) < np.array(lengths)[:, None]
    last = np.arange(action.shape[1]) == np.array(lengths)[:, None] - 1
    prompt = np.ones((len(action), 2, 2), dtype=np.int64)
    return Rollout(
        observation=np.concatenate([prompt, np.stack([action, mask], axis=-1)], axis=1),
        action=action,
        reward=last * 1.0,
        mask=mask,
        terminated=last,
        truncated=last & np.array(cut)[:, None],
        episode_id=np.where(mask, np.arange(len(action))[:, None], -1),
        group_of_episode=np.arange(len(action)),
        bootstrap=None,
        whole_episodes=True,
        steps=len(action),
    )


def test_the_mask_counts_the_end_of_sequence_and_nothing_after_it() -> None:  # trl PR#4970
    completions = ([5, 7, 2, 2, 2], [5, 7, 9, 4, 6], [2, 2, 2, 2, 2])
    cut = [False, True, False]
    checks.mask(rows(*completions, lengths=[3, 5, 1], cut=cut), EOS)
    for lengths, row in (([2, 5, 1], 0), ([3, 5, 5], 2), ([4, 5, 1], 0)):
        with pytest.raises(CheckFailed, match=f"mask of completion {row} does not stop"):
            checks.mask(rows(*completions, lengths=lengths, cut=cut), EOS)


def test_other_faults_of_the_mask() -> None:
    right = rows([5, 7, 2], [5, 6, 7], lengths=[3, 3], cut=[False, True])
    checks.mask(right, EOS)
    gap = right.mask.copy()
    gap[1, 1] = False
    with pytest.raises(CheckFailed, match="completion 1 has a gap"):
        checks.mask(replace(right, mask=gap), EOS)
    with pytest.raises(CheckFailed, match="completion 0 counts tokens after an end"):
        checks.mask(rows([5, 2, 7], lengths=[3], cut=[True]), EOS)
    unattended = right.observation.copy()
    unattended[0, -1, 1] = 0
    with pytest.raises(CheckFailed, match="completion 0 differs from the attention mask"):
        checks.mask(replace(right, observation=unattended), EOS)


def test_a_mask_without_the_end_is_caught_in_a_real_rollout() -> None:
    made, rollout = fresh()
    ended = np.flatnonzero(~rollout.truncated.any(axis=1))
    checks.mask(rollout, made.tokenizer.eos_id)
    assert len(ended)
    mask, observation = rollout.mask.copy(), rollout.observation.copy()
    end = mask[ended[0]].sum() - 1
    mask[ended[0], end] = False
    observation[ended[0], end - mask.shape[1], 1] = 0
    with pytest.raises(CheckFailed, match=f"completion {ended[0]} does not stop"):
        checks.mask(replace(rollout, mask=mask, observation=observation), made.tokenizer.eos_id)


@pytest.mark.parametrize("name", ["llm:arithmetic", "llm:rg:chain_sum", "llm:rg:countdown"])
def test_gold_answers_verify_against_themselves(name: str) -> None:
    checks.gold(language_task(name).training(np.random.default_rng(0), 5))


def test_a_gold_answer_that_does_not_is_named() -> None:
    problems = [Problem("1+1=", "2", "2".__eq__), Problem("1+2=", "3", "4".__eq__)]
    with pytest.raises(CheckFailed, match=r"answer '3' to '1.2=' is scored as wrong"):
        checks.gold(problems)
