"""Rules about the clip: too wide, too narrow, inert, or unable to act."""

from __future__ import annotations

import numpy as np

from redline.benchmark.doctor.findings import Symptom, rule
from redline.benchmark.doctor.history import History, Series
from redline.benchmark.doctor.thresholds import Thresholds

_PRACTICE = "rule of thumb from tuning GRPO's bounds; single runs"
_PPO = "PPO, arXiv:1707.06347, Eq. 7"
_WANTED = "the rule of thumb wants 20% to 60%"


def _clips(history: History) -> bool:
    return history.series("train/clip_lo") is not None


def _single_step(history: History) -> bool:
    """Every update is one optimiser step on fresh data, so that all ratios are 1."""
    steps, stale = history.series("train/n_updates"), history.series("rollout/staleness")
    fresh = stale is None or float(np.nanmax(stale)) == 0.0
    return steps is not None and fresh and float(np.nanmax(steps)) == 1.0


@rule("T60", "public issue trackers: the most frequent question about a clip that does nothing")
def cannot_act(history: History, limit: Thresholds) -> Symptom | None:
    """One update per rollout with a clip set."""
    if not _clips(history) or not _single_step(history) or history.updates < 1:
        return None
    return Symptom(
        "note",
        history.whole,
        "a clip is set and every update is one optimiser step on fresh data, so every ratio is 1 "
        "and the clip cannot act",
        "several steps per rollout (--epochs, --minibatch-size), or no clip",
    )


@rule("T50", f"{_PRACTICE}; {_PPO}")
def inert(history: History, limit: Thresholds) -> Symptom | None:
    """The clip removes next to nothing for long."""
    share = history.smooth("train/clip_fraction")
    if share is None or not _clips(history) or _single_step(history):
        return None
    at = history.lasting(share < limit.clip_inert, limit.lasting)
    if at is None or history.updates < limit.updates:
        return None
    return Symptom(
        "note",
        at,
        f"the clip removes the gradient of {share[at.slice].mean():.1%} of the elements, less than "
        f"{limit.clip_inert:.0%}: updates are those of the plain policy gradient",
        "no fault by itself: late in training this is healthy, and bounds of 0.1 to 0.15 stay as "
        "a safety net; where learning is slow, take larger steps (--lr, --epochs)",
    )


@rule("T51", _PRACTICE)
def outside(history: History, limit: Thresholds) -> Symptom | None:
    """The share of ratios outside the band is too small or too large."""
    share, raw = history.smooth("train/outside_band"), history.series("train/outside_band")
    if share is None or raw is None or history.updates < limit.updates:
        return None
    at = history.burst(raw > limit.outside_broken, limit.bursts)
    if at is not None:
        count = int((raw > limit.outside_broken).sum())
        return Symptom(
            "warn",
            at,
            f"{count} updates moved more than {limit.outside_broken:.0%} of the ratios outside "
            f"[0.8, 1.2], up to {np.nanmax(raw):.0%}",
            "a smaller learning rate or fewer epochs; --breaker continue-smaller finds one",
        )
    if not _clips(history) or _single_step(history):
        return None
    at = history.lasting(share > limit.outside_high, limit.lasting)
    if at is not None:
        return Symptom(
            "note",
            at,
            f"{share[at.slice].mean():.0%} of the ratios end outside [0.8, 1.2]; {_WANTED}",
            "narrower bounds, fewer epochs or a smaller learning rate",
        )
    at = history.lasting(share < limit.outside_low, limit.lasting)
    if at is None:
        return None
    return Symptom(
        "note",
        at,
        f"{share[at.slice].mean():.1%} of the ratios end outside [0.8, 1.2]; {_WANTED}",
        "the bounds are wider than the steps, as in many good runs; where learning is slow, take "
        "larger steps",
    )


@rule("T52", _PRACTICE)
def oscillation(history: History, limit: Thresholds) -> Symptom | None:
    """A loss that jumps with wide ratios, or swings slowly with narrow ones."""
    loss, spread = history.series("train/loss"), history.series("train/ratio_std")
    if loss is None or spread is None or history.updates < 4 * limit.updates:
        return None
    memory, mean = _autocorrelation(loss), float(np.nanmean(spread))
    acts = _clips(history) and not _single_step(history)
    if memory < -0.3 and mean > limit.ratio_std_high and acts:
        said = f"the loss jumps up and down (lag-1 correlation {memory:.2f}) with ratios of std "
        return Symptom("note", history.whole, f"{said}{mean:.2f}", "narrower bounds")
    if memory > 0.7 and mean < limit.ratio_std_low and _swings(loss):
        said = f"the loss swings slowly (lag-1 correlation {memory:.2f}) with ratios of std "
        return Symptom("note", history.whole, f"{said}{mean:.2f}", "a smaller learning rate")
    return None


def _autocorrelation(values: Series) -> float:
    """Correlation of neighbours, a straight trend taken out."""
    known = values[np.isfinite(values)]
    if len(known) < 3:
        return 0.0
    at = np.arange(len(known))
    rest = known - np.polyval(np.polyfit(at, known, 1), at)
    scale = float(rest @ rest)
    return float(rest[1:] @ rest[:-1]) / scale if scale > 0.0 else 0.0


def _swings(values: Series) -> bool:
    """The values cross their own trend several times, and far from zero noise."""
    known = values[np.isfinite(values)]
    at = np.arange(len(known))
    rest = known - np.polyval(np.polyfit(at, known, 1), at)
    crossings = int((np.diff(np.sign(rest)) != 0).sum())
    return crossings >= 3 and float(rest.std()) > 0.5 * abs(float(known.mean()))


@rule("T54", _PRACTICE)
def bursts(history: History, limit: Thresholds) -> Symptom | None:
    """Large ratios and a clip that acts on most elements, in single updates."""
    largest, share = history.series("train/ratio_max"), history.series("train/clip_fraction")
    if largest is None or share is None:
        return None
    hit = (largest > limit.ratio_max) & (share > limit.clip_burst)
    at = history.burst(hit, limit.bursts)
    if at is None:
        return None
    return Symptom(
        "note",
        at,
        f"{int(hit.sum())} updates have ratios up to {np.nanmax(largest[hit]):.3g} and lose "
        f"{np.nanmean(share[hit]):.0%} of the elements to the clip",
        "look for outliers in the reward first; then truncate the ratio before the clip",
    )


@rule("T56", _PRACTICE)
def percentile(history: History, limit: Thresholds) -> Symptom | None:
    """The 90th percentile of the ratio lies beyond, or far within, the bounds."""
    p90 = history.smooth("train/ratio_p90")
    if p90 is None or not _clips(history) or history.updates < limit.updates:
        return None
    at = history.lasting(p90 > limit.p90_high, limit.lasting)
    if at is not None:
        said = f"the 90th percentile of the ratio is {p90[at.slice].mean():.2f}"
        return Symptom("note", at, said, "the bounds are narrower than what the policy wants")
    at = history.lasting(p90 < limit.p90_low, limit.lasting)
    if at is None:
        return None
    said = f"the 90th percentile of the ratio is {p90[at.slice].mean():.2f}: most ratios fall"
    return Symptom("note", at, said, "narrower bounds; look at the sign of the advantages")
