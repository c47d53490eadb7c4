"""The GRPO family against worked rows of the papers and tables worked by hand."""

import math
from typing import Any

import numpy as np
import pytest
from batches import START, algorithm, bounds_of, make_rollout
from closeness import close

from redline.algorithms.core.advantages import group_relative
from redline.algorithms.core.aggregation import denominators
from redline.algorithms.core.clipping import Clip, probability_bounds
from redline.algorithms.core.sequence_surrogates import GMPO, GSPO, GSPO_TOKEN
from redline.algorithms.core.shaping import Shaping, entropy_bonus, overlong_penalty
from redline.algorithms.core.smooth import SmoothGroupRelative, smooth_advantage
from redline.algorithms.core.surrogates import CLIPPED_RATIO, Surrogate, Weights
from redline.algorithms.core.token_surrogates import RatioLimits, cispo, sapo

RATIOS = (0.5, 1.0, 1.5, 4.0)
BAND = (0.8, 1.2)
# Weights at those ratios for A = 1 and A = -1.
WEIGHTS: dict[str, tuple[Surrogate, Any, list[float], list[float]]] = {
    "ppo": (CLIPPED_RATIO, BAND, [0.5, 1, 0, 0], [0, -1, -1.5, -4]),
    "dual clip": (
        RatioLimits(dual_clip=3.0).of(CLIPPED_RATIO),
        BAND,
        [0.5, 1, 0, 0],
        [0, -1, -1.5, 0],
    ),
    "cispo": (cispo(), (0.0, 1.28), [0.5, 1, 1.28, 1.28], [-0.5, -1, -1.28, -1.28]),
    "cispo absolute": (cispo("absolute"), (0.0, 1.0 + 5.0), [0.5, 1, 1.5, 4], [-0.5, -1, -1.5, -4]),
    "cispo masked": (cispo(mask=True), (0.8, 1.28), [0.8, 1, 0, 0], [0, -1, -1.28, -1.28]),
    "sapo": (sapo(), None, [0.470, 1, 1.410, 0.723], [-0.467, -1, -1.401, -0.630]),
    "truncated": (
        RatioLimits(truncate=(0.6, 3.0)).of(CLIPPED_RATIO),
        (0.1, 3.5),
        [0, 1, 1.5, 0],
        [0, -1, -1.5, 0],
    ),
}


def weigh(surrogate: Surrogate, log_ratio: Any, advantage: Any, bounds: Any = None) -> Weights:
    log_ratio = np.atleast_2d(log_ratio)
    return surrogate.weights(
        np,
        log_prob=log_ratio - 2.0,
        old_log_prob=np.full(log_ratio.shape, -2.0),
        advantage=np.broadcast_to(np.asarray(advantage, dtype=float), log_ratio.shape).copy(),
        mask=np.ones(log_ratio.shape, dtype=bool),
        bounds=bounds,
    )


@pytest.mark.parametrize("name", WEIGHTS)
def test_weight_table(name: str) -> None:
    surrogate, bounds, up, down = WEIGHTS[name]
    log_ratio = np.log(RATIOS)
    close(weigh(surrogate, log_ratio, 1.0, bounds).w[0], up, atol=5e-4 if name == "sapo" else 1e-9)
    close(
        weigh(surrogate, log_ratio, -1.0, bounds).w[0], down, atol=5e-4 if name == "sapo" else 1e-9
    )


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_is_the_slope_of_its_objective(name: str) -> None:
    surrogate, bounds, _, _ = WEIGHTS[name]
    points = np.log(np.array([0.3, 0.55, 0.9, 1.1, 1.4, 2.5, 3.2, 7.0]))
    for advantage in (1.0, -2.0):

        def value(shift: float, advantage: float = advantage) -> Any:
            return surrogate.objective(
                np,
                log_prob=points[None] + shift - 2.0,
                old_log_prob=np.full((1, len(points)), -2.0),
                advantage=np.full((1, len(points)), advantage),
                mask=np.ones((1, len(points)), dtype=bool),
                bounds=bounds,
            )

        slope = (value(1e-6) - value(-1e-6)) / 2e-6
        close(weigh(surrogate, points, advantage, bounds).w, slope, rtol=1e-6, atol=1e-7)


def test_every_recipe_takes_the_same_first_step() -> None:
    for name in ("dapo", "cispo", "sapo", "dcpo", "gspo", "gmpo", "rloo", "dr_grpo"):
        method = algorithm(name)
        weights = weigh(method.surrogate, np.zeros(4), [1.5, 1.5, 1.5, 1.5], bounds_of(method))
        close(weights.w[0], np.full(4, 1.5))


# q -> lo, hi of DCPO at 0.16 and 0.2, to the digits that are printed.
DCPO = {
    0.001: (0.5, 10.0),
    0.0022: (0.5, 10.0),
    0.02: (0.5, 3.702),
    0.1: (0.5, 2.0),
    0.5: (0.5, 1.306),
    0.8333: (0.741, 1.2),
    0.85: (0.7485, 1.197),
    1.0: (0.8, 1.171),
}


@pytest.mark.parametrize("q", DCPO)
def test_bounds_from_the_probability(q: float) -> None:
    lo, hi = probability_bounds(np, np.array([q]), 0.16, 0.2)
    close([lo[0], hi[0]], DCPO[q], atol=5e-4)
    if hi[0] < 9.99:
        # At the bound |r - 1| r q is eps.
        close((hi[0] - 1.0) * hi[0] * q, 0.2, rtol=1e-9)
    if lo[0] > 0.5:
        close((1.0 - lo[0]) * lo[0] * q, 0.16, rtol=1e-9)


LOGS = np.array([0.5, -0.3, 0.1, -0.9])


def test_gspo_worked_row() -> None:
    s = math.exp(-0.15)
    assert s == pytest.approx(0.8607, abs=5e-5)
    for surrogate in (GSPO, GSPO_TOKEN):
        up, down = (weigh(surrogate, LOGS, a, (0.9997, 1.0004)) for a in (1.0, -1.0))
        close(up.w[0], np.full(4, s))  # below the bound with A > 0: kept
        close(down.w[0], np.zeros(4))
        assert up.keep.all() and not down.keep.any()
    by_token = weigh(GSPO_TOKEN, LOGS, [1.0, 2.0, -1.0, 0.0], (0.9997, 1.0004))
    close(by_token.w[0], [s, 2 * s, 0.0, 0.0])


def test_gmpo_worked_row() -> None:
    bounds = (math.exp(-0.4), math.exp(0.4))
    up, down = (weigh(GMPO, LOGS, a, bounds) for a in (1.0, -1.0))
    g_up, g_down = math.exp(-0.175), math.exp(-0.025)
    assert (g_up, g_down) == (pytest.approx(0.8395, abs=5e-5), pytest.approx(0.9753, abs=5e-5))
    close(up.w[0], [0.0, g_up, g_up, g_up])  # 0.5 is above the bound
    close(down.w[0], [-g_down, -g_down, -g_down, 0.0])  # -0.9 is below
    own = bounds_of(algorithm("gmpo"))
    assert own is not None
    close(own, bounds)


def test_advantages_of_one_right_answer_in_four() -> None:
    reward, group = [1.0, 0.0, 0.0, 0.0], np.zeros(4, dtype=int)
    close(group_relative(reward, group, eps=0.0), [1.5, -0.5, -0.5, -0.5])
    root = 3**0.5
    close(group_relative(reward, group, eps=0.0, ddof=0), [root, *[-1 / root] * 3])
    close(group_relative(reward, group, std=False), [0.75, -0.25, -0.25, -0.25])
    third = -1.0 / 3.0
    close(group_relative(reward, group, std=False, leave_one_out=True), [1.0, third, third, third])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rloo", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("dr_grpo", [0.75, -0.25, -0.25, -0.25]),
        ("reinforce_plus_plus", [1.0, 0.0, 0.0, 0.0]),  # standardised over the batch afterwards
    ],
)
def test_the_recipe_uses_it(name: str, expected: list[float]) -> None:
    rollout = make_rollout([[1.0], [0.0], [0.0], [0.0]], group_of_episode=np.zeros(4, dtype=int))
    close(algorithm(name).advantage(rollout, None, None).advantage[:, 0], expected)
    assert algorithm("reinforce_plus_plus").standardise == "batch"


def test_smooth_standardisation_by_hand() -> None:
    new, total = np.array([1.0, -1.0]), np.array([0.4, -1.6])
    close(smooth_advantage(new, new, 1), new)  # at the first visit they are the same
    # i = 2: both are the mean of the two.
    close(smooth_advantage(new, total, 2), [0.7, -1.3])
    # i = 4: (3 new + total) / 4 = .85, -1.15; (new + 3 total) / 4 = .55, -1.45.
    close(smooth_advantage(new, total, 4), [0.55, -1.15])
    close(smooth_advantage(np.zeros(2), total, 4), total / 4)


def visit(estimator: Any, rewards: list[float], start: str = "p") -> Any:
    rollout = make_rollout(
        [[r] for r in rewards],
        group_of_episode=np.zeros(len(rewards), dtype=int),
        start_of_group=[start],
    )
    return estimator(rollout, None, None).advantage[:, 0]


def test_smooth_standardisation_remembers_every_reward_of_a_prompt() -> None:
    estimator = SmoothGroupRelative().bind()
    close(visit(estimator, [1.0, 0.0]), [1.0, -1.0], rtol=1e-3)
    visit(estimator, [1.0, 1.0, 1.0, 0.0], start="another")
    # Now all right: A_new = 0, A_tot = (1 - 3/4) / sqrt(3/16), halved.
    expected = 0.25 / math.sqrt(3 / 16) / 2
    state = estimator.state_dict()
    close(visit(estimator, [1.0, 1.0]), [expected, expected], rtol=1e-3)
    again = SmoothGroupRelative().bind()
    again.load_state_dict(state)
    close(visit(again, [1.0, 1.0]), [expected, expected], rtol=1e-3)
    # The statistics are those of all rewards at once, whatever the sizes of the visits.
    for rewards in ([0.0, 3.0, 1.0], [2.0] * 5):
        visit(again, rewards)
    every = np.array([1, 0, 1, 1, 0, 3, 1, 2, 2, 2, 2, 2], dtype=float)
    close(again.state_dict()["p"], [4, 12, every.mean(), every.var()])


def test_an_unknown_start_is_refused() -> None:
    rollout = make_rollout([[1.0], [0.0]], group_of_episode=np.zeros(2, dtype=int))
    with pytest.raises(ValueError, match="0 starts for 1 groups"):
        SmoothGroupRelative()(rollout, None, None)


def test_dcpo_refuses_the_filter_of_equal_outcomes() -> None:
    from redline.algorithms.dcpo import DCPO as Recipe

    with pytest.raises(ValueError, match="mixed cannot be set"):
        Recipe(mixed=True).build()


def test_entropy_bonus_by_hand() -> None:
    advantage, entropy = np.array([1.0, 1.0, -0.1, 0.0, 1.0]), np.array([0.5, 2.0, 0.5, 3.0, -1.0])
    bonus = entropy_bonus(np, advantage=advantage, entropy=entropy, alpha=0.4, kappa=2.0)
    close(advantage + bonus, [1.2, 1.5, -0.05, 0.0, 1.0])


def test_overlong_penalty_by_hand() -> None:
    length = np.array([1, 16384, 18432, 20480, 30000])
    close(overlong_penalty(length, longest=20480, buffer=4096), [0.0, 0.0, -0.5, -1.0, -1.0])


def test_the_penalty_is_paid_with_the_last_element() -> None:
    mask = np.arange(8) < np.array([3, 6, 8])[:, None]
    rollout = make_rollout(np.zeros((3, 8)), mask, longest=8)
    shaped = Shaping(overlong=4).rewards(rollout)
    expected = np.zeros((3, 8))
    expected[1, 5], expected[2, 7] = -0.5, -1.0
    close(shaped.reward, expected)
    assert shaped.metrics["train/overlong_penalty"] == pytest.approx(-0.5)
    for buffer, longest, message in ((4, None, "language tasks"), (8, 8, "cap of a completion")):
        with pytest.raises(ValueError, match=message):
            Shaping(overlong=buffer).rewards(make_rollout(np.zeros((3, 8)), mask, longest=longest))


def test_min_max_is_a_shift() -> None:
    advantage, mask = np.array([[-1.0, 2.0, 9.0]]), np.array([[True, True, False]])
    close(Shaping(min_max=True).advantages(advantage, mask), [[0.0, 3.0, 0.0]])
    assert Shaping().advantages(advantage, mask) is advantage


def test_the_aggregate_of_dcpo_sums_over_a_group() -> None:
    mask = np.arange(8) < np.array([2, 8, 4, 4])[:, None]
    aggregate = algorithm("dcpo").aggregate
    found = aggregate.coefficient(
        np, mask=mask, like=np.zeros(1), counts=denominators(np, mask)
    ).sum(axis=1)
    close(found, np.full(4, aggregate.group_size / 4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"overlong": 0}, "at least 1, got 0"),
        ({"entropy": -1.0}, "at least 0, got -1"),
        ({"kappa": 1.0}, "above 1, or the sign of A could change, got 1"),
    ],
)
def test_shaping_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shaping(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"truncate": (1.5, 3.0)}, "two bounds around 1, for example 0.2 5, got 1.5 3"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1, got 1"),
    ],
)
def test_ratio_limits_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RatioLimits(**settings)


def test_a_tau_must_be_positive() -> None:
    with pytest.raises(ValueError, match="tau_negative must be above 0, got 0"):
        sapo(1.0, 0.0)


def test_bounds_of_single_elements_are_refused_on_a_sequence_s_ratio() -> None:
    from dataclasses import replace

    for schedule in ("by-prob", "entropy", "linear+entropy"):
        with pytest.raises(ValueError, match="clips one ratio per sequence"):
            replace(algorithm("gspo"), clip=Clip(schedule=schedule))
    assert replace(algorithm("gspo"), clip=Clip(schedule="linear")).clip.bounds(START) == BAND
