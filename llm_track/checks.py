"""Checks before the first update: what would otherwise train silently and badly stops the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redline.algorithms.core.arrays import host
from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.types import Array, Batch, Need, Rollout
from redline.llm_track.problems import Problem
from redline.llm_track.rewards import score
from redline.llm_track.sampler import LanguageSampler

# Largest |log ratio| of a token between sampling and scoring in float32; kernels that sum in
# another order differ by about 1e-6.
_TOLERANCE = 1e-4
# Mean |log ratio| below float32: bfloat16 keeps 8 bits of a logit.
_COARSE_TOLERANCE = 0.1


class CheckFailed(RuntimeError):
    """What is wrong, in one sentence."""


def start_up(policy: Policy, sampler: LanguageSampler, coarse: bool) -> None:
    """Sample a few completions and check them, and the task's own answers.

    Args:
        policy: What will sample and learn.
        sampler: Of its own: what it draws is not the run's.
        coarse: Parameters are narrower than float32.

    Raises:
        CheckFailed: Something is wrong.
    """
    gold(sampler.task.training(np.random.default_rng(0), 32))
    rollout = sampler.collect(policy, Need(groups=2, group_size=2))
    mask(rollout, sampler.generation.language_model.tokenizer.eos_id)
    log_probs(policy, rollout, coarse)


def gold(problems: Sequence[Problem]) -> None:
    """Every right answer must count as right when it is given in the asked form.

    Raises:
        CheckFailed: One does not.
    """
    for problem in problems:
        if not score(f"#{problem.gold}", True, problem.right).correct:
            raise CheckFailed(
                f"the right answer {problem.gold!r} to {problem.prompt[:60]!r} is scored as wrong"
            )


def mask(rollout: Rollout, eos_id: int) -> None:
    """The mask must count every generated token, the end of sequence included, and no other.

    Raises:
        CheckFailed: It does not.
    """
    action, valid = rollout.action, rollout.mask
    length = valid.sum(axis=1)
    cut = rollout.truncated.any(axis=1)
    is_end = action == eos_id
    # Number of tokens up to the first end of sequence; all of them where there is none.
    until = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, action.shape[1])
    expected = np.where(cut, length, until)
    faults = {
        "has a gap": (valid != (np.arange(valid.shape[1]) < length[:, None])).any(axis=1),
        "does not stop after the first end of sequence": length != expected,
        "counts tokens after an end of sequence": cut & (is_end & valid).any(axis=1),
        "differs from the attention mask": _attended(rollout) != length,
    }
    for what, wrong in faults.items():
        if wrong.any():
            raise CheckFailed(f"the mask of completion {int(np.argmax(wrong))} {what}")


def _attended(rollout: Rollout) -> Array:
    """[B] completion tokens that the observation's mask counts."""
    return rollout.observation[:, -rollout.mask.shape[1] :, 1].sum(axis=1)


def log_probs(policy: Policy, rollout: Rollout, coarse: bool) -> None:
    """What the policy says of its own fresh samples must be what they were sampled from.

    Raises:
        CheckFailed: It is not; temperature, padding, cache or mask differ between the two.
    """
    scored = host(policy.evaluate(_batch(policy, rollout)).log_prob)
    difference = np.abs(scored - rollout.log_prob)[rollout.mask]
    found = float(difference.mean() if coarse else difference.max())
    limit = _COARSE_TOLERANCE if coarse else _TOLERANCE
    if not found < limit:
        kind = "mean" if coarse else "largest"
        raise CheckFailed(
            f"sampling and scoring disagree: the {kind} |log ratio| of fresh completions is "
            f"{found:.2g}, which must be below {limit:g}; temperature, padding or precision differ"
        )


def _batch(policy: Policy, rollout: Rollout) -> Batch:
    fields = (rollout.observation, rollout.action, rollout.reward, rollout.reward, rollout.mask)
    return Batch(*(policy.asarray(value) for value in fields))
