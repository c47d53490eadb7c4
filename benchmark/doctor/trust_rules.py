"""Rules about updates that cannot be trusted: foreign data, drift, layers, and the breaker."""

from __future__ import annotations

import numpy as np

from redline.benchmark.doctor.findings import Symptom, rule
from redline.benchmark.doctor.history import History, Stretch
from redline.benchmark.doctor.thresholds import Thresholds

_PRACTICE = "rule of thumb from debugging policy gradients; single reports"
_EMBEDDING = "train/grad_norm/embedding"
_EMBEDDING_PATH = "train/grad_norm_embedding_path"


@rule("T58", "off-policy data by mistake: stale worker, wrong checkpoint, temperature")
def foreign_data(history: History, limit: Thresholds) -> Symptom | None:
    """The rollouts are not from the policy that learns."""
    before, stale = history.series("rollout/outside_band"), history.series("rollout/staleness")
    after = history.series("train/outside_band")
    advice = (
        "compare temperature, weights and positions of the sampler with the learner's; a worker "
        "may be stale"
    )
    if before is not None:
        old = stale is not None and float(np.nanmax(stale)) > 0.0
        most = limit.foreign if old else limit.mismatch
        at = history.burst(before > most, limit.bursts)
        if at is None:
            return None
        mean = float(np.nanmean(before[before > most]))
        said = f"before the update {mean:.0%} of the ratios of learner to sampler lie outside "
        return Symptom(
            "warn", at, f"{said}[0.8, 1.2], in {int((before > most).sum())} updates", advice
        )
    if after is None:
        return None
    at = history.burst(after >= limit.foreign, limit.bursts)
    if at is None:
        return None
    said = f"{int((after >= limit.foreign).sum())} updates end with {limit.foreign:.0%} of the "
    return Symptom("warn", at, f"{said}ratios outside [0.8, 1.2]", advice)


@rule("T61", _PRACTICE)
def embedding(history: History, limit: Thresholds) -> Symptom | None:
    """The embedding's gradient is large (with --telemetry full)."""
    split = history.series(_EMBEDDING_PATH) is not None
    length = history.smooth(_EMBEDDING_PATH if split else _EMBEDDING)
    if length is None:
        return None
    tied = split or history.series("train/grad_norm/head") is None
    most = limit.tied_norm if tied and not split else limit.embedding_norm
    at = history.lasting(length > most, limit.lasting)
    if at is None:
        return None
    both = "; it is tied to the output layer, so freezing it freezes that too" if tied else ""
    return Symptom(
        "note",
        at,
        f"the gradient norm of the embedding is {length[at.slice].mean():.3g}, above {most:g}; "
        "below 0.01 is usual, 0.1 to 1 for the blocks, 1 to 10 for the output layer",
        f"freeze it (--freeze.embeddings){both}",
    )


@rule("T63", _PRACTICE)
def swinging(history: History, limit: Thresholds) -> Symptom | None:
    """A followed action becomes likelier and unlikelier by turns (with --telemetry full)."""
    for name in sorted(key for key in history.metrics if key.startswith("follow/")):
        ratio = history.metrics[name]
        up, down = ratio > limit.swing_high, ratio < limit.swing_low
        if min(int(up.sum()), int(down.sum())) < limit.bursts:
            continue
        at = history.burst(up | down, 1)
        assert at is not None
        return Symptom(
            "note",
            at,
            f"the probability of action {name.removeprefix('follow/')} of the first round goes up "
            f"by more than {limit.swing_high} {int(up.sum())} times and down below "
            f"{limit.swing_low} {int(down.sum())} times",
            "the reward is inconsistent for that state and action",
        )
    return None


@rule("T64", _PRACTICE)
def drift(history: History, limit: Thresholds) -> Symptom | None:
    """The policy has left the one it started from (where a penalty keeps that one)."""
    ratio = history.smooth("train/ratio_reference")
    if ratio is None or history.updates < limit.updates:
        return None
    far = (ratio < limit.start_low) | (ratio > limit.start_high)
    at = history.lasting(far, limit.lasting)
    if at is None:
        return None
    return Symptom(
        "note",
        at,
        f"the mean ratio to the policy at the start is {ratio[at.slice].mean():.3g}, outside "
        f"[{limit.start_low}, {limit.start_high}]",
        "where the start is to be kept: a larger --kl-coef, or a smaller learning rate",
    )


_BREAKER = {
    "outside_band": ("T65", "a smaller learning rate, fewer epochs, or --breaker continue-smaller"),
    "kl": ("T66", "a smaller learning rate, fewer epochs, or --breaker continue-smaller"),
    "not_finite": ("T67", "a smaller learning rate; look at the rewards of that update (trip.pt)"),
}


def _tripped(name: str, history: History) -> Symptom | None:
    trips = history.record.get("trips") or {}
    count = trips.get("rules", {}).get(name, 0)
    listed = [trip for trip in trips.get("listed", []) if trip["rule"] == name]
    if not count:
        return None
    places = [max(0, int(trip["update"]) - 1) for trip in listed] or [0]
    last = max(0, history.updates - 1)
    reason = listed[0]["reason"] if listed else "see trip.pt"
    at = Stretch(min(places[0], last), min(places[-1], last))
    return Symptom(
        "warn", at, f"the breaker tripped in {count} updates: {reason}", _BREAKER[name][1]
    )


@rule("T65", "fixed band on ratios; redline's breaker")
def band(history: History, limit: Thresholds) -> Symptom | None:
    """The breaker saw most ratios outside its band."""
    return _tripped("outside_band", history)


@rule("T66", "KL of one round; redline's breaker")
def divergence(history: History, limit: Thresholds) -> Symptom | None:
    """The breaker saw a large divergence."""
    return _tripped("kl", history)


@rule("T67", "numbers that are not finite; redline's breaker")
def numbers(history: History, limit: Thresholds) -> Symptom | None:
    """The breaker saw nan or infinity."""
    return _tripped("not_finite", history)
