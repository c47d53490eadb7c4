"""Rules about the signal: groups, advantages, the critic, and rewards that lie."""

from __future__ import annotations

import numpy as np

from redline.benchmark.doctor.findings import Symptom, rule
from redline.benchmark.doctor.history import History, Series, Stretch
from redline.benchmark.doctor.thresholds import Thresholds

_PRACTICE = "rule of thumb from tuning GRPO's bounds; single runs"
_CRITIC = "rule of thumb for actor-critic methods; GAE, arXiv:1506.02438"


def _ends(history: History) -> tuple[Stretch, Stretch]:
    """The first and the last quarter of the updates, at least three of each."""
    count = max(3, history.updates // 4)
    last = history.updates - 1
    return Stretch(0, min(count, history.updates) - 1), Stretch(max(0, last - count + 1), last)


@rule("T53", f"{_PRACTICE}; dynamic sampling of DAPO, arXiv:2503.14476")
def weak_signal(history: History, limit: Thresholds) -> Symptom | None:
    """Most groups are paid the same, so that they teach nothing."""
    mixed = history.smooth("rollout/group_mixed")
    if mixed is None or history.updates < limit.updates:
        return None
    at = history.lasting(mixed < limit.mixed, limit.lasting)
    if at is None:
        return None
    right = history.series("llm/group_all_right")
    easy = right is not None and float(np.nanmean(right[at.slice])) > 0.5
    spread = history.series("rollout/group_std")
    std = 0.0 if spread is None else float(np.nanmean(spread[at.slice]))
    kind = "harder tasks" if easy else "a higher temperature, or easier tasks"
    return Symptom(
        "note",
        at,
        f"in {1.0 - mixed[at.slice].mean():.0%} of the groups all episodes are paid the same "
        f"(std of the pay within a group: {std:.3g})",
        f"{kind}; the bounds of the clip are not the cause",
    )


@rule("T55", _CRITIC)
def advantages(history: History, limit: Thresholds) -> Symptom | None:
    """Advantages that are far too large, or mostly negative."""
    mean, std = history.smooth("train/advantage_mean"), history.smooth("train/advantage_std")
    if mean is None or std is None or history.updates < limit.updates:
        return None
    at = history.lasting(std**2 > limit.advantage_variance, limit.lasting)
    if at is not None:
        return Symptom(
            "note",
            at,
            f"the variance of the advantages is {(std[at.slice] ** 2).mean():.3g}, above "
            f"{limit.advantage_variance:g}",
            "scale the rewards (--normalize-reward) or the critic's targets (--scale-returns); "
            "a smaller lambda of GAE",
        )
    at = history.lasting(mean < limit.advantage_mean * std, limit.lasting)
    # Those of a group are centred over episodes: over tokens, long wrong answers weigh more.
    if at is not None and history.recipe("gae_lambda") is not None:
        return Symptom(
            "note",
            at,
            f"the mean advantage is {mean[at.slice].mean():.3g} at a std of "
            f"{std[at.slice].mean():.3g}",
            "what is done is mostly worse than expected: the reward is too strict, or the critic "
            "lags behind",
        )
    return _negative(history, limit)


def _negative(history: History, limit: Thresholds) -> Symptom | None:
    share = history.smooth("train/advantage_negative")
    mean, std = history.smooth("train/advantage_mean"), history.smooth("train/advantage_std")
    lam, gamma = history.recipe("gae_lambda"), history.recipe("gamma")
    odd = (lam is not None and lam < 0.9) or (gamma is not None and 0.99 < gamma < 1.0)
    if share is None or mean is None or std is None or not odd:
        return None
    centred = np.abs(mean) < 0.05 * np.abs(std)
    at = history.lasting((share > limit.negative) & ~centred, limit.lasting)
    if at is None:
        return None
    return Symptom(
        "note",
        at,
        f"{share[at.slice].mean():.0%} of the advantages are negative, with gamma {gamma} and "
        f"lambda {lam}",
        "try lambda from 0.9 on, and gamma up to 0.99",
    )


def _mean(values: Series, part: Stretch) -> float:
    """Of a part of a series, 0 where it is all nan."""
    inside = values[part.slice]
    return float(np.nanmean(inside)) if np.isfinite(inside).any() else 0.0


@rule("T57", _CRITIC)
def critic_lags(history: History, limit: Thresholds) -> Symptom | None:
    """The critic's error has grown and it explains nothing, or never did."""
    error, explained = (
        history.series("train/value_loss"),
        history.series("train/explained_variance"),
    )
    if error is None or explained is None or history.updates < limit.updates:
        return None
    first, last = _ends(history)
    before, after = (float(np.nanmean(error[part.slice])) for part in (first, last))
    early, known = (_mean(explained, part) for part in (first, last))
    # Where all episodes have come to the same end there is no variance left to explain.
    if known >= limit.explained or after / (1.0 - known) < 0.5 * before / (1.0 - min(early, 0.99)):
        return None
    advice = "fit it at once: a higher --critic-lr, more --critic-epochs, or --scale-returns"
    evidence = f"the critic explains {known:.1%} of the variance of the returns at the end"
    if after > limit.value_growth * before:
        grown = f", and its squared error went from {before:.3g} to {after:.3g}"
        return Symptom("warn", last, evidence + grown, advice)
    return Symptom("note", last, evidence, advice)


@rule("T59", "reward hacking: arXiv:2210.10760 (overoptimisation of a proxy)")
def hacking(history: History, limit: Thresholds) -> Symptom | None:
    """The reward rises while held-out accuracy falls, or all answers become one."""
    accuracy = history.evals.get("eval/accuracy")
    if not history.on_language or accuracy is None or len(accuracy) < 2:
        return None
    advice = (
        "do not widen the clip: lower the learning rate, and look at what is paid "
        "(redline review); fix the reward"
    )
    return _diverging(history, limit, advice) or _one_answer(history, limit, advice)


def _diverging(history: History, limit: Thresholds, advice: str) -> Symptom | None:
    accuracy, reward = history.evals["eval/accuracy"], history.series("rollout/ep_rew_mean")
    if reward is None:
        return None
    best, last = int(np.nanargmax(accuracy)), float(accuracy[-1])
    noise = 2.0 * (0.25 / history.record["run"]["eval_problems"]) ** 0.5
    fall = float(accuracy[best]) - last
    since = int(np.searchsorted(history.metrics["step"], history.evals["step"][best]))
    tail = reward[min(since, len(reward) - 1) :]
    rise = float(tail[-1] - tail[0])
    span = max(abs(float(np.nanmax(reward))), 1e-9)
    if fall <= max(limit.accuracy_fall, noise) or rise <= limit.reward_rise * span:
        return None
    return Symptom(
        "warn",
        Stretch(min(since, history.updates - 1), history.updates - 1),
        f"the mean reward rose by {rise:.3g} while held-out accuracy fell from "
        f"{accuracy[best]:.2f} to {last:.2f}",
        advice,
    )


def _one_answer(history: History, limit: Thresholds, advice: str) -> Symptom | None:
    share = history.smooth("llm/top_answer")
    if share is None or history.updates < limit.updates:
        return None
    last = _ends(history)[1]
    end, right = float(share[last.slice].mean()), float(history.evals["eval/accuracy"][-1])
    if end < limit.one_answer or right >= limit.one_answer:
        return None
    return Symptom(
        "warn",
        last,
        f"one answer makes up {end:.0%} of all answers to different prompts, and "
        f"{right:.0%} of the held-out ones are right",
        advice,
    )


@rule("T62", "blind grading of samples; redline review")
def grades(history: History, limit: Thresholds) -> Symptom | None:
    """Human grades and rewards do not go together."""
    correlation, graded = history.review.get("correlation"), history.review.get("graded", 0)
    if not isinstance(correlation, int | float) or correlation >= limit.grade_correlation:
        return None
    if graded < limit.graded:
        return None
    return Symptom(
        "warn",
        history.whole,
        f"the correlation of {graded} human grades with the reward is "
        f"{correlation:.2f}, below {limit.grade_correlation}",
        "the reward is wrong or is being gamed: read the samples that they disagree on",
    )
