"""Weights, objectives, coefficients, bounds and penalties against tables worked by hand."""

from typing import Any

import numpy as np
import pytest
from batches import AGGREGATES
from closeness import close

from redline.algorithms.core.aggregation import Aggregate, denominators
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.penalties import Estimator, Penalties, kl_estimate, kl_weight
from redline.algorithms.core.surrogates import (
    CLIPPED_RATIO,
    MAX_LOG_RATIO,
    RATIO,
    SCORE_FUNCTION,
    Bounds,
    Surrogate,
    Weights,
)
from redline.algorithms.core.types import Progress

LOG_PROB = -1.0

# (A, r) -> weight, objective, gradient kept; bounds [0.8, 1.28].
CLIPPED = {
    (1.0, 0.5): (0.5, 0.5, True),  # min(0.5, 0.8)
    (1.0, 0.75): (0.75, 0.75, True),
    (1.0, 1.0): (1.0, 1.0, True),
    (1.0, 1.25): (1.25, 1.25, True),  # beyond 1.2, within 1.28
    (1.0, 1.5): (0.0, 1.28, False),  # min(1.5, 1.28)
    (1.0, 4.0): (0.0, 1.28, False),
    (-1.0, 0.5): (0.0, -0.8, False),  # min(-0.5, -0.8)
    (-1.0, 0.75): (0.0, -0.8, False),  # below 0.8, above 1 - 0.28
    (-1.0, 1.0): (-1.0, -1.0, True),
    (-1.0, 1.25): (-1.25, -1.25, True),
    (-1.0, 1.5): (-1.5, -1.5, True),  # min(-1.5, -1.28)
    (-1.0, 4.0): (-4.0, -4.0, True),
    (-3.0, 4.0): (-12.0, -12.0, True),
    (2.0, 4.0): (0.0, 2.56, False),
    (0.0, 4.0): (0.0, 0.0, True),
}


def one(
    surrogate: Surrogate, advantage: float, ratio: float, bounds: Bounds | None = None
) -> tuple[Weights, Any]:
    """The surrogate on a single element with ratio pi/pi_old."""
    inputs = {
        "log_prob": np.array([[LOG_PROB]]),
        "old_log_prob": np.array([[LOG_PROB - np.log(ratio)]]),
        "advantage": np.array([[advantage]]),
        "mask": np.array([[True]]),
        "bounds": bounds,
    }
    return surrogate.weights(np, **inputs), surrogate.objective(np, **inputs)


@pytest.mark.parametrize(("advantage", "ratio"), CLIPPED)
def test_clipped_ratio(advantage: float, ratio: float) -> None:
    w, objective, keep = CLIPPED[advantage, ratio]
    weights, value = one(CLIPPED_RATIO, advantage, ratio, Clip(0.2, 0.28).bounds(Progress(0, 1)))
    close(weights.w[0, 0], w)
    close(value[0, 0], objective)
    close(weights.ratio[0, 0], ratio)
    assert weights.keep[0, 0] == keep


@pytest.mark.parametrize("advantage", [1.0, -2.0])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0])
def test_score_function_and_ratio(advantage: float, ratio: float) -> None:
    weights, value = one(SCORE_FUNCTION, advantage, ratio)
    close(weights.w[0, 0], advantage)
    close(value[0, 0], advantage * LOG_PROB)
    close(weights.ratio[0, 0], ratio)
    weights, value = one(RATIO, advantage, ratio)
    close(weights.w[0, 0], ratio * advantage)
    close(value[0, 0], ratio * advantage)
    assert not SCORE_FUNCTION.meaningful_value and RATIO.meaningful_value


def test_the_clip_is_inclusive() -> None:
    gap = np.array([[-0.25, 0.25]])
    lo, hi = np.exp(gap)[0]
    inputs = {"log_prob": gap, "old_log_prob": gap * 0.0, "mask": np.ones((1, 2), dtype=bool)}
    for sign, at in ((1.0, hi), (-1.0, lo)):
        advantage = np.full((1, 2), sign)
        weights = CLIPPED_RATIO.weights(np, **inputs, advantage=advantage, bounds=(lo, hi))
        assert weights.keep.all()
        assert sign * at in weights.w


def test_an_extreme_ratio_stays_finite() -> None:
    for surrogate, bounds in ((RATIO, None), (CLIPPED_RATIO, (0.8, 1.2))):
        inputs = {
            "log_prob": np.array([[900.0, -900.0]], dtype=np.float32),
            "old_log_prob": np.zeros((1, 2), dtype=np.float32),
            "advantage": np.full((1, 2), -1.0, dtype=np.float32),
            "mask": np.ones((1, 2), dtype=bool),
        }
        weights = surrogate.weights(np, **inputs, bounds=bounds)
        close(weights.w, np.array([[-np.exp(MAX_LOG_RATIO), 0.0]]), rtol=1e-6)
        assert np.isfinite(surrogate.objective(np, **inputs, bounds=bounds)).all()


# Two sequences of 2 and 8 elements; L = 10.
COEFFICIENTS = {
    "token_mean": (0.1, 0.1),
    "seq_mean": (0.25, 0.0625),
    "seq_sum": (0.5, 0.5),
    "fixed_length": (0.05, 0.05),
    "group_sum": (1.0, 0.25),
}


@pytest.mark.parametrize("kind", AGGREGATES)
def test_aggregates(kind: str) -> None:
    lengths = np.array([2, 0, 8])  # the empty row is no sequence
    mask = np.arange(9) < lengths[:, None]
    counts = denominators(np, mask)
    assert (counts.elements, counts.sequences) == (10, 2)
    actual = AGGREGATES[kind].coefficient(np, mask=mask, like=np.zeros((3, 9)), counts=counts)
    short, long = COEFFICIENTS[kind]
    close(actual, mask * np.array([[short], [0.0], [long]]))


def test_nothing_counts() -> None:
    mask = np.zeros((2, 3), dtype=bool)
    for aggregate in AGGREGATES.values():
        counts = denominators(np, mask)
        actual = aggregate.coefficient(np, mask=mask, like=np.zeros((2, 3)), counts=counts)
        close(actual, np.zeros((2, 3)))


def test_the_unit_of_an_aggregate() -> None:
    levels = {kind: aggregate.level for kind, aggregate in AGGREGATES.items()}
    assert levels.pop("token_mean") == "token"
    assert set(levels.values()) == {"sequence"}


@pytest.mark.parametrize("length", [None, 0, -3])
def test_a_fixed_length_needs_its_length(length: int | None) -> None:
    with pytest.raises(ValueError, match="length of at least 1"):
        Aggregate("fixed_length", length)


@pytest.mark.parametrize(
    ("clip", "done", "expected"),
    [
        (Clip(), 0, (0.8, 1.2)),
        (Clip(0.2, 0.28), 90, (0.8, 1.28)),
        (Clip(1.0, 4.0), 0, (0.0, 5.0)),
        (Clip(0.2, 0.4, "linear"), 0, (0.8, 1.4)),
        (Clip(0.2, 0.4, "linear"), 25, (0.85, 1.3)),
        (Clip(0.2, 0.4, "linear"), 100, (1.0, 1.0)),
        (Clip(0.2, 0.4, "linear"), 130, (1.0, 1.0)),  # the last rollout may pass the budget
    ],
)
def test_bounds(clip: Clip, done: int, expected: tuple[float, float]) -> None:
    close(clip.bounds(Progress(done, 100)), expected)


@pytest.mark.parametrize("low", [-0.1, 1.1, float("nan")])
def test_a_lower_distance_out_of_range_is_refused(low: float) -> None:
    with pytest.raises(ValueError, match=r"clip\.low is a distance from 1"):
        Clip(low=low)


@pytest.mark.parametrize("high", [-0.1, float("nan")])
def test_an_upper_distance_out_of_range_is_refused(high: float) -> None:
    with pytest.raises(ValueError, match=r"clip\.high is a distance from 1"):
        Clip(high=high)


# d = log pi - log pi_ref -> estimate, weight.
PENALTIES = {
    ("k1", -0.5): (-0.5, 1.0),
    ("k1", 0.5): (0.5, 1.0),
    ("k2", -0.5): (0.125, -0.5),
    ("k2", 0.5): (0.125, 0.5),
    ("k3", -0.5): (0.1487212707, -0.6487212707),  # e^0.5 - 1.5 and 1 - e^0.5
    ("k3", 0.5): (0.1065306597, 0.3934693403),  # e^-0.5 - 0.5 and 1 - e^-0.5
    ("k3", 0.0): (0.0, 0.0),
    ("k3", 1e-9): (5e-19, 1e-9),  # e^x - 1 - x would lose every digit here
}


@pytest.mark.parametrize(("estimator", "d"), PENALTIES)
def test_penalties(estimator: Estimator, d: float) -> None:
    inputs = {"log_prob": np.array([d]), "anchor_log_prob": np.array([0.0])}
    value, weight = PENALTIES[estimator, d]
    close(kl_weight(np, estimator, **inputs)[0], weight, rtol=1e-8)
    # expm1(x) - x keeps a rounding error of about 1e-16 x.
    close(kl_estimate(np, estimator, **inputs)[0], value, rtol=1e-6, atol=1e-24)


def test_a_penalty_stays_finite() -> None:
    inputs = {"log_prob": np.array([-900.0, 900.0]), "anchor_log_prob": np.array([0.0, 0.0])}
    for estimator in ("k1", "k2", "k3"):
        assert np.isfinite(kl_estimate(np, estimator, **inputs)).all()
        assert np.isfinite(kl_weight(np, estimator, **inputs)).all()


def test_a_negative_penalty_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Penalties(kl=-0.1)
