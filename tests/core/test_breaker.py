"""What trips the breaker, and what a trip leads to."""

import math

import numpy as np
import pytest

from redline.algorithms.core.breaker import ACTIONS, Breaker, judge, not_finite
from redline.algorithms.core.distributions import Categorical
from redline.envs.policies import MLPCritic, MLPPolicy

GOOD = {"train/loss": 0.1, "train/kl": 0.5, "train/outside_band": 0.8, "train/grad_norm": 3.0}


def policy() -> MLPPolicy:
    return MLPPolicy(2, Categorical(2), (4,), "tanh", np.random.default_rng(0))


def test_an_update_at_the_limits_is_good() -> None:
    assert judge(GOOD, policy()) is None
    assert judge({}, policy()) is None


@pytest.mark.parametrize(
    ("metrics", "rule", "value", "says"),
    [
        ({"train/kl": 0.51}, "kl", 0.51, "KL(old||new) over one update is 0.51, above 0.5"),
        ({"train/outside_band": 0.81}, "outside_band", 0.81, "81% of the ratios pi/pi_old lie"),
        ({"train/kl": 2.0, "train/outside_band": 1.0}, "kl", 2.0, "is 2, above"),
        ({"train/loss": math.nan, "train/kl": 2.0}, "not_finite", None, "train/loss is nan"),
        ({"train/value_loss": math.inf}, "not_finite", None, "train/value_loss is inf"),
    ],
)
def test_an_update_beyond_a_limit_trips(
    metrics: dict[str, float], rule: str, value: float | None, says: str
) -> None:
    trip = judge({**GOOD, **metrics}, policy())
    assert trip is not None and trip.rule == rule and says in trip.reason
    assert math.isnan(trip.value) if value is None else trip.value == value


def test_the_estimate_counts_where_no_exact_divergence_is_there() -> None:
    trip = judge({"train/kl_sampled": 0.7}, policy())
    assert trip is not None and (trip.rule, trip.value) == ("kl", 0.7)


def test_a_parameter_that_is_no_number_trips() -> None:
    broken = policy()
    broken.parameters[3] = np.nan
    trip = judge(GOOD, broken)
    assert trip is not None and "a parameter of the policy is nan or infinite" in trip.reason
    critic = MLPCritic(2, (4,), "tanh", np.random.default_rng(0))
    assert judge(GOOD, policy(), critic) is None
    critic.parameters[0] = np.inf
    trip = judge(GOOD, policy(), critic)
    assert trip is not None and "a parameter of the critic is nan or infinite" in trip.reason


@pytest.mark.parametrize(
    ("action", "back", "ends", "scale"),
    [
        ("stop", True, [True], 1.0),
        ("rollback", True, [False, False, False, False, True], 1.0),
        ("continue-smaller", True, [False, False, False, False, True], 0.25**5),
        ("record", False, [False] * 9, 1.0),
    ],
)
def test_what_trips_in_a_row_lead_to(
    action: str, back: bool, ends: list[bool], scale: float
) -> None:
    assert action in ACTIONS
    breaker = Breaker(action)  # type: ignore[arg-type]
    assert breaker.goes_back is back
    assert [breaker.tripped() for _ in ends] == ends
    assert breaker.scale == scale


def test_a_good_update_ends_the_row() -> None:
    breaker = Breaker("rollback")
    for _ in range(3):
        assert [breaker.tripped() for _ in range(4)] == [False] * 4
        assert breaker.judge(GOOD, policy()) is None


def test_off_sees_nothing() -> None:
    assert Breaker("off").judge({"train/kl": 99.0}, policy()) is None


def test_what_a_breaker_counts_survives() -> None:
    first, second = Breaker("continue-smaller"), Breaker("continue-smaller")
    first.tripped()
    second.load_state_dict(first.state_dict())
    assert second.scale == 0.25 and second.state_dict() == first.state_dict()
    stops = Breaker("stop")
    stops.load_state_dict(first.state_dict())
    assert stops.scale == 1.0


def test_the_words_about_nan() -> None:
    assert not_finite("the gradient norm is nan").reason == (
        "the gradient norm is nan, which is not a finite number"
    )
