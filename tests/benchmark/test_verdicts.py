"""Better, worse, cannot tell: by hand, against scipy, and by simulation."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from closeness import close
from scipy import stats

from redline.benchmark.verdicts import (
    Sample,
    difference,
    holm,
    judge,
    paired_difference,
    seeds_that_tell,
)

NAN = float("nan")


def sample(*values: float, failed: int = 0) -> Sample:
    return Sample(dict(enumerate(values)), failed)


def test_a_difference_carries_welchs_interval() -> None:
    # Means 2 and 7; variances 1 and 4, so the standard error is sqrt(1/3 + 4/3) = 1.290994 with
    # (5/3)^2 / ((1/9 + 16/9) / 2) = 2.941176 degrees of freedom.
    found = difference([1, 2, 3], [5, 7, 9])
    assert found.mean == -5.0 and found.interval is not None
    half = stats.t.ppf(0.975, 2.941176) * 1.290994
    close(found.interval, (-5.0 - half, -5.0 + half), rtol=1e-5)
    assert 0.01 < found.p < 0.05


def test_a_difference_without_seeds_claims_nothing() -> None:
    assert difference([500.0, 500.0], [499.0, 501.0]).interval is not None
    assert difference([1.0], [2.0, 3.0])[:2] == (-1.5, None)
    assert math.isnan(difference([], [2.0, 3.0]).mean)
    assert paired_difference({0: 1.0}, {1: 2.0}).interval is None


def test_without_spread_the_permutations_are_counted() -> None:
    assert difference([500.0, 500.0], [500.0, 500.0]) == (0.0, (0.0, 0.0), 1.0)
    # Two of the C(6, 3) = 20 ways to divide the six runs separate them.
    found = difference([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert found == (1.0, (1.0, 1.0), 0.1)
    test = stats.permutation_test(
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]), lambda a, b: np.mean(a) - np.mean(b)
    )
    close(found.p, test.pvalue)
    assert paired_difference({0: 2.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0}).p == 0.25


def test_pairs_are_the_seeds_that_both_have() -> None:
    # Differences 1, 2 and 3 on the seeds 1, 2 and 4: t = 2 / (1 / sqrt(3)).
    found = paired_difference(
        {1: 11.0, 2: 22.0, 4: 43.0, 5: 9.0, 6: NAN}, {1: 10.0, 2: 20.0, 4: 40.0, 7: 0.0, 6: 1.0}
    )
    half = 4.302653 / math.sqrt(3)
    assert found.mean == 2.0 and found.interval is not None
    close(found.interval, (2.0 - half, 2.0 + half), rtol=1e-6)
    close(found.p, 2 * stats.t.sf(2 * math.sqrt(3), 2))


def test_holm_multiplies_and_never_descends() -> None:
    # 0.01 * 4, 0.02 * 3, max(0.06, 0.022 * 2), 0.9.
    close(holm([0.9, 0.01, 0.022, 0.02]), [0.9, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []
    corrected = holm([NAN, 0.02])
    assert math.isnan(corrected[0]) and corrected[1] == 0.02


@pytest.mark.parametrize(
    ("gap", "variances", "level", "expected"),
    [
        # Tables of two-sample t tests at 5% and 80%: effect 1 takes 17 each, 0.5 takes 64.
        (1.0, [1.0, 1.0], 0.05, 17),
        (-0.5, [1.0, 1.0], 0.05, 64),
        (0.8, [1.0, 1.0], 0.05, 26),
        # A one-sample test of effect 0.5.
        (0.5, [1.0], 0.05, 34),
        (50.0, [1.0, 1.0], 0.05, 3),
        (1e6, [1e-12, 1e-12], 0.05, 3),
        # Without spread: 2 / C(8, 4) = 0.029.
        (1.0, [0.0, 0.0], 0.05, 4),
        (0.0, [1.0, 1.0], 0.05, None),
        (1e-3, [1.0, 1.0], 0.05, None),
        (NAN, [1.0, 1.0], 0.05, None),
    ],
)
def test_seeds_that_would_tell(
    gap: float, variances: Sequence[float], level: float, expected: int | None
) -> None:
    assert seeds_that_tell(gap, variances, level) == expected


def test_so_many_seeds_do_tell_four_times_in_five() -> None:
    rng = np.random.default_rng(0)
    n = seeds_that_tell(2.0, [1.0, 4.0])
    assert n is not None
    a, b = rng.normal(2.0, 1.0, (2000, n)), rng.normal(0.0, 2.0, (2000, n))
    power = (stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue < 0.05).mean()
    assert 0.78 <= power <= 0.86  # whole seeds: a little more than 0.8


def test_verdicts_name_what_is_missing() -> None:
    found = judge(
        {
            "base": sample(10.0, 11.0, 12.0, 13.0),
            "high": sample(20.0, 21.0, 22.0, 23.0),
            "low": sample(1.0, 2.0, 3.0, 4.0, failed=1),
            "near": sample(11.0, 12.0, 13.0, 14.0),
            "tiny": sample(10.001, 11.0, 12.0, 13.0),
            "one": sample(99.0),
            "two": sample(99.0, 98.0),
            "lost": sample(20.0, 21.0, 22.0, 23.0, NAN),
            "none": sample(),
        },
        "base",
    )
    assert list(found) == ["high", "low", "near", "tiny", "one", "two", "lost", "none"]
    assert found["high"].text == "better" and found["low"].text == "worse"
    assert found["near"].word == "cannot tell"
    assert found["near"].seeds is not None and found["near"].seeds > 40
    assert f"about {found['near'].seeds} seeds each would tell" in found["near"].text
    assert found["one"].text == "too few seeds (1 and 4; at least 3 each)"
    assert found["two"].word == "too few seeds"
    assert found["lost"].text == "cannot tell (1 of its own runs lost)"
    assert found["none"].word == "too few seeds" and math.isnan(found["none"].p)
    assert found["tiny"].text == "cannot tell (even 10,000 seeds each would not)"
    same = judge({"a": sample(5.0, 5.0, 5.0), "b": sample(5.0, 5.0, 5.0)}, "a")["b"]
    assert same.text == "cannot tell (every seed reached the same)"


def test_a_baseline_that_lost_runs_makes_nobody_worse() -> None:
    base = sample(*[10.0 + k for k in range(5)], failed=2)
    found = judge({"base": base, "low": sample(1.0, 2.0, 3.0), "high": sample(30, 31, 32)}, "base")
    assert found["low"].text == "cannot tell (2 of the baseline's runs lost)"
    assert found["high"].text == "better"


def test_pairing_finds_what_seeds_have_in_common() -> None:
    # Seeds differ much more than methods do.
    base = {seed: 100.0 * seed for seed in range(6)}
    other = {seed: 100.0 * seed + 5.0 + seed % 2 for seed in range(6)}
    methods = {"base": Sample(base), "other": Sample(other)}
    assert judge(methods, "base")["other"].word == "cannot tell"
    assert judge(methods, "base", paired=True)["other"].word == "better"
    apart = {"base": Sample({0: 1.0, 1: 2.0}), "other": Sample({2: 1.0, 3: 2.0})}
    why = "too few seeds (0 in common; at least 3 each)"
    assert judge(apart, "base", paired=True)["other"].text == why


_DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "wide": lambda rng, n: 3.0 * rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1.0,
    "at a ceiling": lambda rng, n: rng.beta(5.0, 1.0, size=n) - 5.0 / 6.0,
}


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 20])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("normal", "wide"),
        ("skewed", "skewed"),
        ("normal", "skewed"),
        ("at a ceiling", "at a ceiling"),
    ],
)
def test_the_interval_covers_the_truth_95_times_in_100(first: str, second: str, n: int) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        interval = difference(_DRAWS[first](rng, n), _DRAWS[second](rng, n)).interval
        assert interval is not None
        covered += interval.low <= 0.0 <= interval.high
    assert 0.93 <= covered / 2000 <= 0.97


def _family(kind: str, n: int, experiments: int) -> float:
    """Share of reports of six methods that equal the baseline in which one is said to be better."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(experiments):
        samples = {str(k): sample(*_DRAWS[kind](rng, n)) for k in range(7)}
        wrong += any(one.word == "better" for one in judge(samples, "0").values())
    return wrong / experiments


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("kind", ["normal", "skewed", "at a ceiling"])
def test_equal_methods_are_seldom_called_better(kind: str, n: int) -> None:
    assert _family(kind, n, 1000) <= 0.05
