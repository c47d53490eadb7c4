"""Seeds are the sample; numbers worked by hand."""

import math

import numpy as np
import pytest
from closeness import close
from scipy.stats import t

from redline.benchmark.stats import (
    bootstrap_interval,
    difference,
    iqm,
    normalise,
    summarise,
    t_interval,
)
from redline.benchmark.tables import brackets, mean_and_half_width, number

NAN = float("nan")


def test_seed_means_are_the_sample_and_not_episodes() -> None:
    seeds = [np.mean(episodes) for episodes in ((11, 9), (19, 21), (31, 29))]
    summary = summarise(seeds)
    assert (summary.n, summary.mean, summary.median) == (3, 20.0, 20.0)
    # t(0.975, 2) = 4.302653 times the standard error 10 / sqrt(3).
    close(t_interval(seeds), [20 - 4.302653 * 5.773503, 20 + 4.302653 * 5.773503], rtol=1e-6)
    # One of the 27 resamples is all 10: 3.7%, more than 2.5%.
    assert bootstrap_interval(seeds) == (10.0, 30.0)


def test_the_bootstrap_gives_the_same_interval_every_time() -> None:
    values = np.random.default_rng(3).normal(size=12)
    assert summarise(values) == summarise(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 1, 2, 3, 4, 5, 6, 100], 3.5), ([0, 10, 20, 50, 100], 80 / 3), ([7.0], 7.0)],
)
def test_the_iqm_cuts_whole_values(values: list[float], expected: float) -> None:
    close(iqm(values), expected)


def test_one_seed_has_no_interval() -> None:
    one = summarise([4.0])
    assert one.mean_interval is None and one.iqm_interval is None
    assert mean_and_half_width(one) == "4.00 ± n/a"
    assert brackets(one.iqm_interval, one.n) == "n/a (n=1)"


def test_seeds_without_a_number_are_counted_and_enter_nothing() -> None:
    summary = summarise([1.0, NAN, 3.0, math.inf])
    assert (summary.n, summary.missing, summary.mean) == (2, 2, 2.0)
    nothing = summarise([NAN])
    assert (nothing.n, nothing.missing) == (0, 1) and mean_and_half_width(nothing) == "n/a"


def test_seeds_that_agree_have_an_interval_of_no_width() -> None:
    assert mean_and_half_width(summarise([500.0] * 5)) == "500.0 ± 0.0"


def test_a_difference_carries_welchs_interval() -> None:
    # Means 2 and 7; variances 1 and 4, so the standard error is sqrt(1/3 + 4/3) = 1.290994 with
    # (5/3)^2 / ((1/9 + 16/9) / 2) = 2.941176 degrees of freedom.
    found = difference([1, 2, 3], [5, 7, 9])
    assert found.mean == -5.0 and found.interval is not None
    half = t.ppf(0.975, 2.941176) * 1.290994
    close(found.interval, (-5.0 - half, -5.0 + half), rtol=1e-5)
    assert 0.01 < found.p < 0.05


def test_a_difference_without_spread_or_seeds_claims_nothing() -> None:
    same = difference([500.0, 500.0], [500.0, 500.0])
    assert same.interval == (0.0, 0.0) and math.isnan(same.p)
    assert difference([500.0, 500.0], [499.0, 501.0]).interval is not None
    assert difference([1.0], [2.0, 3.0])[:2] == (-1.5, None)
    assert math.isnan(difference([], [2.0, 3.0]).mean)


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
