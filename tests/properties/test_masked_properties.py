"""Statistics and coefficients over masks of any shape."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import AGGREGATES
from closeness import close, identical
from hypothesis import given
from hypothesis import strategies as st
from strategies import masked_arrays
from torch_reference import XP

from redline.algorithms.core.aggregation import denominators
from redline.algorithms.core.masked import masked_mean, standardise

kinds = pytest.mark.parametrize("kind", AGGREGATES)


def coefficient(kind: str, mask: Any, counts: Any = None) -> Any:
    counts = denominators(np, mask) if counts is None else counts
    like = np.zeros(mask.shape)
    return AGGREGATES[kind].coefficient(np, mask=mask, like=like, counts=counts)


@given(masked_arrays(some=True))
def test_standardised_values_have_mean_0_and_spread_1(data: Any) -> None:
    value, mask = data
    result = standardise(value, mask)
    assert not result[~mask].any()
    valid = result[mask]
    if valid.size == 1:
        identical(valid, value[mask])
    elif value[mask].std() == 0.0:
        assert not valid.any()
    else:
        close(valid.mean(), 0.0, atol=1e-9)
        close(valid.std(ddof=1), 1.0, rtol=1e-4)  # eps against a spread of at least 1e-4


@given(masked_arrays(some=True), st.floats(0.5, 10.0), st.floats(-10.0, 10.0))
def test_standardising_forgets_unit_and_origin(data: Any, unit: float, origin: float) -> None:
    value, mask = data
    if mask.sum() > 1:
        moved = standardise(unit * value + origin, mask)
        close(moved, standardise(value, mask), rtol=1e-3, atol=1e-6)


@given(masked_arrays())
def test_padding_is_inert_in_statistics(data: Any) -> None:
    value, mask = data
    dirty = np.where(mask, value, 1e6)
    identical(standardise(dirty, mask), standardise(value, mask))
    identical(masked_mean(np, dirty, mask), masked_mean(np, value, mask))


@given(masked_arrays())
def test_statistics_are_the_same_on_torch(data: Any) -> None:
    value, mask = data
    tensors = torch.as_tensor(value), torch.as_tensor(mask)
    close(masked_mean(XP, *tensors), masked_mean(np, value, mask), atol=1e-15)
    close(standardise(*tensors), standardise(value, mask), rtol=1e-9, atol=1e-12)


@given(masked_arrays())
def test_the_masked_mean(data: Any) -> None:
    value, mask = data
    expected = value[mask].mean() if mask.any() else 0.0
    close(masked_mean(np, value, mask), expected, atol=1e-14)


@kinds
@given(masked_arrays(some=True))
def test_coefficients_add_up(kind: str, data: Any) -> None:
    _, mask = data
    factor = coefficient(kind, mask)
    assert not factor[~mask].any() and (factor[mask] > 0.0).all()
    lengths = mask.sum(axis=1)
    rows = np.count_nonzero(lengths)
    totals = {
        "token_mean": 1.0,
        "seq_mean": 1.0,
        "seq_sum": mask.sum() / rows,
        "fixed_length": mask.sum() / rows / 10.0,
        "group_sum": 4.0,
    }
    close(factor.sum(), totals[kind])
    if kind == "seq_mean":  # every sequence has the same share
        close(factor.sum(axis=1)[lengths > 0], np.full(rows, 1.0 / rows))


@kinds
@given(masked_arrays(), st.data())
def test_coefficients_of_micro_batches_add_up(kind: str, data: Any, choice: Any) -> None:
    value, mask = data
    counts = denominators(np, mask)
    whole = np.sum(coefficient(kind, mask) * value)
    cuts = choice.draw(st.lists(st.integers(0, len(mask)), max_size=3).map(sorted))
    parts = zip(np.split(mask, cuts), np.split(value, cuts), strict=True)
    total = sum(np.sum(coefficient(kind, part, counts) * piece) for part, piece in parts)
    close(total, whole, rtol=1e-10, atol=1e-12)


@kinds
@given(masked_arrays(), st.integers(1, 3))
def test_wider_padding_changes_no_coefficient(kind: str, data: Any, extra: int) -> None:
    _, mask = data
    wide = np.pad(mask, ((0, extra), (0, extra)))
    factor = coefficient(kind, wide)
    identical(factor[: mask.shape[0], : mask.shape[1]], coefficient(kind, mask))


@kinds
@given(masked_arrays(), st.randoms())
def test_coefficients_follow_their_rows(kind: str, data: Any, random: Any) -> None:
    _, mask = data
    order = list(range(len(mask)))
    random.shuffle(order)
    identical(coefficient(kind, mask[order]), coefficient(kind, mask)[order])
