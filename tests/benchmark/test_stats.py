"""Seeds are the sample; numbers worked by hand."""

import math

import numpy as np
import pytest
from closeness import close

from redline.benchmark.formats import brackets, mean_and_half_width, number
from redline.benchmark.stats import (
    Interval,
    bootstrap_interval,
    iqm,
    iqm_interval,
    normalise,
    optimality_gap,
    probability_of_improvement,
    profile,
    summarise,
    t_interval,
    widened,
)

NAN = float("nan")


def test_seed_means_are_the_sample_and_not_episodes() -> None:
    seeds = [np.mean(episodes) for episodes in ((11, 9), (19, 21), (31, 29))]
    summary = summarise(seeds)
    assert (summary.n, summary.mean, summary.median) == (3, 20.0, 20.0)
    # t(0.975, 2) = 4.302653 times the standard error 10 / sqrt(3).
    close(t_interval(seeds), [20 - 4.302653 * 5.773503, 20 + 4.302653 * 5.773503], rtol=1e-6)
    # One of the 27 resamples is all 10: 3.7%, more than 2.5%.
    assert bootstrap_interval([seeds]) == (10.0, 30.0)


def test_the_bootstrap_gives_the_same_interval_every_time() -> None:
    values = np.random.default_rng(3).normal(size=12)
    assert iqm_interval([values]) == iqm_interval([values])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 1, 2, 3, 4, 5, 6, 100], 3.5), ([0, 10, 20, 50, 100], 80 / 3), ([7.0], 7.0)],
)
def test_the_iqm_cuts_whole_values(values: list[float], expected: float) -> None:
    close(iqm(values), expected)


def test_one_seed_has_no_interval() -> None:
    one = summarise([4.0])
    assert one.mean_interval is None and iqm_interval([[4.0]]) is None
    assert mean_and_half_width(one) == "4.00 ± n/a"
    assert brackets(None, one.n) == "n/a (n=1)"


def test_seeds_without_a_number_are_counted_and_enter_nothing() -> None:
    summary = summarise([1.0, NAN, 3.0, math.inf])
    assert (summary.n, summary.missing, summary.mean) == (2, 2, 2.0)
    nothing = summarise([NAN])
    assert (nothing.n, nothing.missing) == (0, 1) and mean_and_half_width(nothing) == "n/a"


def test_seeds_that_agree_have_an_interval_of_no_width() -> None:
    assert mean_and_half_width(summarise([500.0] * 5)) == "500.0 ± 0.0"


def test_an_interval_of_the_bootstrap_is_widened_about_its_estimate() -> None:
    # sqrt(3/2) * 4.302653 / 1.959964 = 2.688647 at three seeds.
    found = widened(Interval(10.0, 30.0), 18.0, n=3)
    close(found, (18.0 - 8.0 * 2.688647, 18.0 + 12.0 * 2.688647), rtol=1e-6)
    # One of the 27 resamples is all 10: the percentile interval ends there.
    close(iqm_interval([[10, 20, 30]]), (20 - 10 * 2.688647, 20 + 10 * 2.688647), rtol=1e-6)
    assert iqm_interval([[500.0] * 4]) == (500.0, 500.0)


def test_the_bootstrap_over_tasks_resamples_each_by_itself() -> None:
    # Joined, the two tasks would differ from resample to resample in how often each occurs.
    assert bootstrap_interval([[0.0, 0.0], [1.0, 1.0, 1.0]]) == (0.6, 0.6)
    assert iqm_interval([[0.0, 1.0], [2.0]]) is None and iqm_interval([]) is None


def test_the_iqm_of_strata_is_that_of_all_their_values() -> None:
    found = iqm_interval([[0, 1, 2, 3], [4, 5, 6, 100]])
    assert found is not None and found.low < 3.5 < found.high


def test_shortfalls_are_not_made_up_for_by_what_is_above() -> None:
    # 1 - 0.5 and 0, 0: the score of 3 pays for nothing.
    close(optimality_gap([0.5, 1.0, 3.0]), 0.5 / 3)
    assert math.isnan(optimality_gap([]))


def test_a_profile_gives_every_task_the_same_weight() -> None:
    # At 0.5: one of two, and all of three; at 1: none, and two of three.
    found = profile([[0.0, 0.5], [0.6, 1.0, 1.0]], [0.0, 0.5, 1.0])
    close(found, [1.0, (0.5 + 1.0) / 2, (0.0 + 2 / 3) / 2])


def test_the_probability_of_improvement_counts_ties_half() -> None:
    # Of (1, 2) against (0, 2): 1 > 0, 1 < 2, 2 > 0, 2 = 2.
    close(probability_of_improvement([[1, 2]], [[0, 2]]), 2.5 / 4)
    close(probability_of_improvement([[0, 2]], [[1, 2]]), 1.5 / 4)
    # Over tasks the mean, whatever their numbers of seeds.
    close(probability_of_improvement([[1, 2], [1]], [[0, 2], [0, 0]]), (2.5 / 4 + 1.0) / 2)


def test_a_normalised_score_refuses_equal_references() -> None:
    assert normalise(30.0, low=20.0, high=40.0) == 0.5
    for high in (20.0, NAN):
        with pytest.raises(
            ValueError, match=f"two different finite references, got 20.0 and {high}"
        ):
            normalise(30.0, low=20.0, high=high)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234.56, "1,235"), (123.45, "123.5"), (-12.345, "-12.35"), (0.01234, "0.012"), (NAN, "n/a")],
)
def test_numbers_have_about_four_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(("length", "columns"), [(4, 5), (30, 2), (200, 1)])
def test_a_legend_has_the_columns_that_its_names_leave_room_for(length: int, columns: int) -> None:
    from redline.benchmark.plots import _legend_columns

    assert _legend_columns(["x" * length] * 6, inches=8.0) == columns
