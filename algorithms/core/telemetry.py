"""What one update did, in the vocabulary shared by both tracks.

Two moments are told apart. Pooled over every optimiser step, as the optimiser saw it:
clip_fraction (gradient removed by the method's own clip), approx_kl, grad_norm. After the update,
comparable between all methods: kl, ratio_*, outside_band, entropy, expected_gain, loss. On control
those are of every element; of a language model, whose pass costs much, of at least 24 completions
spread evenly over the batch (all where there are fewer than 48, or where the update rule judges all
of them itself). advantage_* is always of every element, and so is what expected_gain and loss would
be at a ratio of 1.
"""

from __future__ import annotations

import math

import numpy as np

from redline.algorithms.core.arrays import host, namespace
from redline.algorithms.core.surrogates import Weights
from redline.algorithms.core.types import Array, Batch, Evaluation, Metrics, Rollout

# Fixed for every method, so that "outside" means the same for all of them.
BAND = (0.8, 1.2)
_QUANTILES = (1, 5, 50, 90, 95, 99)
# exp(300)^2 is still finite, so that means and spreads of ratios are numbers whatever happens.
_MAX_LOG_RATIO = 300.0


class Recorder:
    """Collects what the optimiser saw and condenses it once per update."""

    def __init__(self) -> None:
        self._log_ratio: list[Array] = []
        self._removed: list[Array] = []
        self._positive: list[Array] = []
        self._elements = 0
        self.grad_norm: list[float] = []

    def record(
        self, batch: Batch, weights: Weights, log_prob: Array, of: Batch | None = None
    ) -> None:
        """Note one forward pass.

        Args:
            batch: What was read.
            weights: There.
            log_prob: There.
            of: The batch of the optimiser step, where rows without a gradient were not read; no
                clip removes anything from those. None: all were.
        """
        log_ratio, removed, positive = (
            log_prob - batch.old_log_prob,
            ~weights.keep,
            batch.advantage > 0,
        )
        if batch.mask.ndim > 1:
            log_ratio, removed, positive = (
                part[batch.mask] for part in (log_ratio, removed, positive)
            )
        self._log_ratio.append(log_ratio)
        self._removed.append(removed)
        self._positive.append(positive)
        every = log_ratio.shape[0] if of is None or of is batch else int(of.mask.sum())
        self._elements += every

    def metrics(self) -> Metrics:
        """Shares of all valid elements of all passes; approx_kl of those that were read."""
        log_ratio = _joined(self._log_ratio).astype(np.float64)
        removed, positive = _joined(self._removed), _joined(self._positive)
        count = max(1, self._elements)
        high = np.count_nonzero(removed & positive) / count
        total = np.count_nonzero(removed) / count
        return {
            "train/approx_kl": approx_kl(log_ratio),
            "train/clip_fraction": total,
            "train/clip_fraction_high": high,
            "train/clip_fraction_low": total - high,
            "train/grad_norm": float(np.mean(self.grad_norm)) if self.grad_norm else 0.0,
        }


def _joined(parts: list[Array]) -> np.ndarray:
    """The parts as one numpy array, with one copy from their device."""
    return host(namespace(parts[0]).concat(parts))


def approx_kl(log_ratio: Array) -> float:
    """k3 = mean(e^x - 1 - x) over the elements, x = log pi - log pi_old; never negative."""
    x = np.minimum(host(log_ratio).astype(np.float64), _MAX_LOG_RATIO)
    return float(np.mean(np.expm1(x) - x)) if x.size else 0.0


def after_update(
    batch: Batch, evaluation: Evaluation, kl: Array, whole: Batch | None = None
) -> Metrics:
    """Ratio, KL and gain of the new policy against the old one.

    Args:
        batch: What is looked at of the update's batch, before any standardisation.
        evaluation: The new policy on it.
        kl: KL(old||new) per element; where one of the policies has no parameters it is an estimate
            at the sampled actions, logged as train/kl_sampled (entropy likewise).
        whole: All of the update's batch, where `batch` is a part: advantages are of all elements,
            and so is E[A] in E[r A] = E[A] + E[(r - 1) A]. None: `batch` is all.
    """
    mask = host(batch.mask)
    log_ratio = host(evaluation.log_prob - batch.old_log_prob)[mask].astype(np.float64)
    advantage = _of(batch, batch.advantage)
    divergence = host(kl)[mask]
    ratio = np.exp(np.minimum(log_ratio, _MAX_LOG_RATIO))
    every = advantage if whole is None else _of(whole, whole.advantage)
    # 0 where a part is all.
    apart = float(every.mean()) - float(advantage.mean())
    exact = "" if batch.reference and evaluation.params else "_sampled"
    metrics = {
        f"train/kl{exact}": float(divergence.mean()),
        f"train/kl_max{exact}": float(divergence.max()),
        "train/outside_band": outside_band(ratio),
        "train/ratio_mean": float(ratio.mean()),
        "train/ratio_std": float(ratio.std()),
        "train/ratio_max": float(ratio.max()),
        "train/expected_gain": float(ratio @ advantage / ratio.size) + apart,
        "train/advantage_mean": float(every.mean()),
        "train/advantage_std": float(every.std()),
        "train/advantage_negative": np.count_nonzero(every < 0.0) / every.size,
        "train/effective_sample_size": effective_sample_size(ratio),
        f"train/entropy{'' if evaluation.params else '_sampled'}": float(
            host(evaluation.entropy)[mask].mean()
        ),
    }
    # np.percentile's own checks cost ten times the sort at this size.
    rank = np.array(_QUANTILES) / 100.0 * (ratio.size - 1)
    quantiles = np.interp(rank, np.arange(ratio.size), np.sort(ratio))
    for q, value in zip(_QUANTILES, quantiles.tolist(), strict=True):
        metrics[f"train/ratio_p{q}"] = value
    return metrics


def _of(batch: Batch, values: Array) -> np.ndarray:
    """[N] float64 values of a batch's elements."""
    known: np.ndarray = host(values)[host(batch.mask)].astype(np.float64)
    return known


def bounds_in_force(batch: Batch, bounds: tuple[float, float]) -> Metrics:
    """The clip's bounds; their means over the elements where each has its own; {} without any."""
    if math.isinf(bounds[1]):
        return {}
    if not batch.bounds:
        return {"train/clip_lo": bounds[0], "train/clip_hi": bounds[1]}
    mask = host(batch.mask)
    lo, hi = (host(bound)[mask] for bound in batch.bounds)
    return {
        "train/clip_lo": float(lo.mean()),
        "train/clip_hi": float(hi.mean()),
        "train/clip_lo_min": float(lo.min()),
        "train/clip_hi_max": float(hi.max()),
    }


def outside_band(ratio: Array) -> float:
    """Share of ratios outside `BAND`."""
    outside = np.count_nonzero(ratio < BAND[0]) + np.count_nonzero(ratio > BAND[1])
    return float(outside / ratio.size)


def effective_sample_size(ratio: Array) -> float:
    """(sum r)^2 / (n sum r^2), in (0, 1]: 1 where all weights are equal (Kish 1965)."""
    square = float(ratio @ ratio)
    return float(ratio.sum()) ** 2 / (ratio.size * square) if square > 0.0 else 0.0


def mean_ratio(log_ratio: Array) -> float:
    """Mean of exp(x) over the elements, finite whatever they are."""
    return float(np.exp(np.minimum(log_ratio.astype(np.float64), _MAX_LOG_RATIO)).mean())


def sampling_gap(log_prob: Array, reported: Array, mask: Array) -> Metrics:
    """How far the policy that is about to learn is from the one that sampled.

    Without stale rollouts both are the same, and the share must be 0: anything else is another
    temperature, other weights, or other positions on one of the two sides.

    Args:
        log_prob: Of the learner's policy before its update.
        reported: By the sampler.
        mask: True where an element counts.
    """
    keep = host(mask)
    gap = host(log_prob)[keep].astype(np.float64) - host(reported)[keep].astype(np.float64)
    return {"rollout/outside_band": outside_band(np.exp(np.minimum(gap, _MAX_LOG_RATIO)))}


def group_spread(rollout: Rollout) -> Metrics:
    """How much the episodes of a group differ, before anything is divided by it.

    Returns:
        rollout/group_std: std of what the learner is paid per episode, mean over groups.
        rollout/group_mixed: share of groups whose episodes are not all paid the same.
    """
    group, mask = np.asarray(rollout.group_of_episode), rollout.mask
    paid = np.bincount(rollout.episode_id[mask], weights=rollout.reward[mask], minlength=len(group))
    count = np.bincount(group)
    mean = np.bincount(group, weights=paid) / count
    variance = np.bincount(group, weights=(paid - mean[group]) ** 2) / count
    std = np.sqrt(variance[count > 0])
    return {
        "rollout/group_std": float(std.mean()),
        "rollout/group_mixed": float((std > 1e-9).mean()),
    }


def explained_variance(*, value: Array, returns: Array, mask: Array) -> float:
    """1 - Var(returns - V) / Var(returns) over the mask; nan where the returns do not vary."""
    target = returns[mask]
    variance = float(target.var())
    return 1.0 - float((target - value[mask]).var()) / variance if variance > 0 else float("nan")
