"""Clip schedules: values by hand, limits that always hold, and what they remember."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import DISTRIBUTIONS, START, algorithm, make_batch, make_policy, make_rollout
from closeness import close
from hypothesis import given
from hypothesis import strategies as st

from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.schedules import PER_ELEMENT, PER_UPDATE, ClipState, mean_squares
from redline.algorithms.core.types import Progress

RULES = [*PER_UPDATE, "off-for"]


def at(clip: Clip, done: int, state: ClipState | None = None) -> tuple[float, float]:
    lo, hi = clip.bounds(Progress(done, 1000), state)
    return 1.0 - lo, hi - 1.0


@pytest.mark.parametrize(
    ("clip", "done", "expected"),
    [
        (Clip(0.3, 0.3, "linear", low_end=0.1, high_end=0.1), 0, (0.3, 0.3)),
        (Clip(0.3, 0.3, "linear", low_end=0.1, high_end=0.1), 500, (0.2, 0.2)),
        (Clip(0.3, 0.4, "linear", low_end=0.1), 1000, (0.1, 0.0)),
        (Clip(0.3, 0.3, "piecewise"), 400, (0.3, 0.3)),
        (Clip(0.3, 0.3, "piecewise"), 600, (0.225, 0.225)),
        (Clip(0.3, 0.4, "piecewise"), 800, (0.15, 0.2)),
        (Clip(0.3, 0.3, "piecewise", floor=0.12), 1000, (0.15, 0.15)),  # the floor never binds
        (Clip(0.3, 0.3, "linear", floor=0.12), 1000, (0.12, 0.12)),
        (Clip(0.3, 0.3, "sqrt"), 750, (0.15, 0.15)),
        (Clip(0.2, 0.28, "sqrt", ceiling=0.25), 0, (0.2, 0.25)),
        (Clip(0.4, 0.4, "sqrt+linear"), 750, (0.05, 0.05)),
    ],
)
def test_by_the_share_of_the_budget(clip: Clip, done: int, expected: tuple[float, float]) -> None:
    close(at(clip, done), expected, atol=1e-12)


def observed(state: ClipState, log_ratio: Any, rewards: Any = ((1.0,), (0.0,))) -> None:
    rollout = make_rollout(rewards, group_of_episode=np.arange(len(rewards)) // 2)
    state.observe(np.asarray(log_ratio, dtype=float), rollout, grouped=True)


def test_adaptive_bounds_come_to_the_spread_of_the_ratio() -> None:
    clip = Clip(0.2, 0.28, "adaptive", gain=2.0, window=50)
    state = ClipState(50)
    close(at(clip, 0, state), (0.2, 0.28))
    rng = np.random.default_rng(0)
    before = at(clip, 0, state)
    for _ in range(200):
        observed(state, np.log(rng.normal(1.0, 0.03, 400)))
        found = at(clip, 0, state)
        # Ten rollouts of a prior: no single one moves the bounds by much.
        assert all(abs(new - old) < 0.02 for new, old in zip(found, before, strict=True))
        before = found
    # Of the last fifty rollouts, beside the ten that the start counts for.
    spread = [math.sqrt((10 * (d / 2) ** 2 + 50 * 0.03**2) / 60) for d in (0.2, 0.28)]
    assert max(abs(found - 2.0 * s) for found, s in zip(before, spread, strict=True)) < 0.005
    low, _ = at(replace(clip, floor=0.19), 0, state)
    assert before[0] < 0.19 and math.isclose(low, 0.19)


def test_adaptive_bounds_follow_the_mean() -> None:
    clip, state = Clip(0.1, 0.1, "adaptive", gain=10.0), ClipState(1000)
    for _ in range(500):
        observed(state, np.log([1.04, 1.06]))
    low, high = at(clip, 0, state)
    assert abs(high - low - 2 * 0.05) < 0.005


def test_the_correlation_within_groups() -> None:
    # Two groups of two: returns 1, 1 and 0, 0 differ between groups only.
    rewards = [[1.0], [1.0], [0.0], [0.0]]
    groups = np.array([0, 0, 1, 1])
    close(mean_squares(make_rollout(rewards, group_of_episode=groups)), (1.0, 0.0, 2.0))
    rewards = [[3.0], [1.0], [2.0], [0.0]]
    # Means 2 and 1: MSB = 2 * (.25 + .25) = 1; MSW = (1 + 1 + 1 + 1) / 2 = 2.
    close(mean_squares(make_rollout(rewards, group_of_episode=groups)), (1.0, 2.0, 2.0))


@pytest.mark.parametrize(("signal", "factor"), [(1.0, 1.5), (0.0, 0.5)])
def test_bounds_are_wider_where_rewards_are_clear(signal: float, factor: float) -> None:
    clip, state = Clip(0.2, 0.2, "reward-noise"), ClipState(1000)
    close(at(clip, 0, state), (0.2, 0.2))
    rng = np.random.default_rng(1)
    for _ in range(300):
        prompt = np.repeat(rng.normal(size=4), 2)
        reward = signal * prompt + (1.0 - signal) * rng.normal(size=8)
        observed(state, [0.0], reward[:, None])
    assert max(abs(distance - 0.2 * factor) for distance in at(clip, 0, state)) < 0.02


def test_rewards_that_are_all_equal_say_nothing() -> None:
    state = ClipState(10)
    observed(state, [0.0], [[1.0]] * 4)
    assert state.clarity is None


def test_off_for_one_round_in_ten() -> None:
    clip, state = Clip(0.2, 0.2, "off-for"), ClipState(1)
    found = []
    for _ in range(20):
        found.append(clip.bounds(START, state))
        observed(state, [0.0])
    assert [i for i, bounds in enumerate(found) if bounds == (0.0, math.inf)] == [9, 19]
    assert set(found) == {(0.8, 1.2), (0.0, math.inf)}


settings = st.fixed_dictionaries(
    {
        "low": st.floats(0.0, 1.0),
        "high": st.floats(0.0, 3.0),
        "floor": st.floats(0.0, 0.3),
        "ceiling": st.none() | st.floats(0.3, 2.0),
        "gain": st.floats(0.0, 3.0),
    }
)


@given(st.lists(st.sampled_from(RULES), min_size=1, max_size=3), settings, st.integers(0, 2**16))
def test_bounds_are_ordered_and_within_their_limits(
    rules: list[str], values: dict[str, Any], seed: int
) -> None:
    clip, state = Clip(schedule="+".join(rules), **values), ClipState(5)
    rng = np.random.default_rng(seed)
    for done in range(0, 1001, 100):
        lo, hi = clip.bounds(Progress(done, 1000), state)
        assert 0.0 <= lo <= 1.0 <= hi
        if not math.isinf(hi):
            assert hi - 1.0 >= clip.floor - 1e-12 and 1.0 - lo >= min(1.0, clip.floor) - 1e-12
            if clip.ceiling is not None:
                assert max(hi - 1.0, 1.0 - lo) <= clip.ceiling + 1e-12
        observed(state, rng.normal(0.0, 0.3, 20), rng.normal(size=(4, 1)))


@given(st.sampled_from(["linear", "piecewise", "sqrt"]), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_schedules_in_time_never_widen(rule: str, low: float, high: float) -> None:
    clip = Clip(low, high, rule)
    found = np.array([at(clip, done) for done in range(0, 1001, 50)])
    assert (np.diff(found, axis=0) <= 1e-12).all()


@given(st.integers(0, 2**16), st.integers(1, 9))
def test_what_was_saved_goes_on_as_if_it_had_not_been(seed: int, cut: int) -> None:
    clip = Clip(0.2, 0.2, "adaptive+reward-noise", window=4)
    rng = np.random.default_rng(seed)
    whole, resumed = ClipState(4), ClipState(4)
    for i in range(10):
        if i == cut:
            state, resumed = resumed.state_dict(), ClipState(4)
            resumed.load_state_dict(state)
        log_ratio, rewards = rng.normal(0.0, 0.2, 10), rng.normal(size=(6, 1))
        observed(whole, log_ratio, rewards)
        observed(resumed, log_ratio, rewards)
        assert clip.bounds(START, whole) == clip.bounds(START, resumed)


def test_bounds_of_single_elements() -> None:
    policy = make_policy(DISTRIBUTIONS["categorical"])
    batch = make_batch(policy, shape=(6,))
    batch = replace(batch, entropy=policy.evaluate(batch).entropy)
    q, most = np.exp(batch.old_log_prob), math.log(4)
    assert Clip().element_bounds(np, batch, (0.8, 1.2), most) == ()
    lo, hi = Clip(schedule="entropy", gain=3.0).element_bounds(np, batch, (0.8, 1.2), most)
    wider = 1.0 + 3.0 * (1.0 - q) * batch.entropy / most
    close(hi, 1.0 + 0.2 * wider)
    close(lo, np.maximum(0.0, 1.0 - 0.2 * wider))
    lo, hi = Clip(schedule="by-prob").element_bounds(np, batch, (0.84, 1.2), most)
    close(hi, np.minimum(10.0, 0.5 + np.sqrt(0.25 + 0.2 / q)))
    close(lo, 0.5 + np.sqrt(np.maximum(0.25 - 0.16 / q, 0.0)))
    # In a round without bounds there are none for single elements either.
    assert Clip(schedule="by-prob").element_bounds(np, batch, (0.0, math.inf), most) == ()


@pytest.mark.parametrize("rule", PER_ELEMENT)
def test_a_density_is_no_probability(rule: str) -> None:
    method = replace(algorithm("ppo"), clip=Clip(schedule=rule))
    method.require_space(DISTRIBUTIONS["categorical"])
    method.require_space(DISTRIBUTIONS["multi_categorical"])
    for space in ("gaussian", "squashed"):
        with pytest.raises(ValueError, match="a Box action has a density"):
            method.require_space(DISTRIBUTIONS[space])


def test_clear_rewards_need_groups() -> None:
    with pytest.raises(ValueError, match="compares rewards within groups, and this method has"):
        replace(algorithm("ppo"), clip=Clip(schedule="reward-noise"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "linera"}, r"got 'linera'; nearest: linear"),
        ({"schedule": "linear+"}, r"joined by \+, got ''"),
        ({"high_end": -0.1}, "high_end is a distance from 1, at least 0, got -0.1"),
        ({"low_end": 1.5}, r"low_end is a distance from 1 in \[0, 1\], got 1.5"),
        ({"floor": 0.2, "ceiling": 0.1}, "at least clip.floor, which is 0.2, got 0.1"),
        ({"hold": 0.8, "until": 0.4}, "0 <= hold < until <= 1, got 0.8 and 0.4"),
        ({"window": 0}, "clip.window is at least 1"),
        ({"off_every": 2, "off_rounds": 3}, "between 1 and clip.off_every, got 1000, 3 and 2"),
    ],
)
def test_values_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clip(**settings)
