"""What holds for the weights of every surrogate in use, whatever the batch."""

from typing import Any

import numpy as np
import pytest
from batches import Elements, algorithm, bounds_of
from closeness import close, identical
from hypothesis import given
from hypothesis import strategies as st
from strategies import element_arrays

from redline.algorithms import registry
from redline.algorithms.core.penalties import kl_estimate, kl_weight
from redline.algorithms.core.surrogates import CLIPPED_RATIO, RATIO, Weights

# One recipe for each surrogate: those that share one would be tested twice.
NAMES = {algorithm(name).surrogate.name: name for name in registry.names()}
recipes = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def weigh(name: str, inputs: Elements) -> Weights:
    method = algorithm(name)
    return method.surrogate.weights(np, **inputs._asdict(), bounds=bounds_of(method))


def objective(name: str, inputs: Elements) -> Any:
    method = algorithm(name)
    return method.surrogate.objective(np, **inputs._asdict(), bounds=bounds_of(method))


@recipes
@given(element_arrays(), st.randoms())
def test_rows_may_come_in_any_order(name: str, inputs: Elements, random: Any) -> None:
    order = list(range(len(inputs.mask)))
    random.shuffle(order)
    shuffled = Elements(*(part[order] for part in inputs))
    for mine, theirs in zip(weigh(name, shuffled), weigh(name, inputs), strict=True):
        identical(mine, theirs[order])
    identical(objective(name, shuffled), objective(name, inputs)[order])


@recipes
@given(element_arrays(), st.sampled_from([1e6, -1e6, np.inf, np.nan]))
def test_padding_weighs_nothing(name: str, inputs: Elements, padding: float) -> None:
    mask = inputs.mask
    dirty = Elements(*(np.where(mask, part, padding) for part in inputs[:3]), mask)
    with np.errstate(invalid="ignore"):
        actual, value = weigh(name, dirty), objective(name, dirty)
    identical(actual.w, weigh(name, inputs).w)
    identical(value, objective(name, inputs))
    assert not actual.w[~mask].any() and not value[~mask].any()


@recipes
@given(element_arrays())
def test_a_row_alone_weighs_what_it_weighs_among_others(name: str, inputs: Elements) -> None:
    whole = weigh(name, inputs).w
    for row in range(len(inputs.mask)):
        alone = Elements(*(part[row : row + 1] for part in inputs))
        close(weigh(name, alone).w[0], whole[row])


@recipes
@given(element_arrays())
def test_an_element_that_was_not_kept_has_no_weight(name: str, inputs: Elements) -> None:
    weights = weigh(name, inputs)
    assert not weights.w[~weights.keep].any()


@given(element_arrays(), st.floats(0.0, 1.0), st.floats(0.0, 2.0))
def test_the_clipped_objective_is_the_pessimistic_one(
    inputs: Elements, low: float, high: float
) -> None:
    arrays, bounds = inputs._asdict(), (1.0 - low, 1.0 + high)
    clipped = CLIPPED_RATIO.objective(np, **arrays, bounds=bounds)
    plain = RATIO.objective(np, **arrays)
    assert (clipped <= plain).all()
    weights = CLIPPED_RATIO.weights(np, **arrays, bounds=bounds)
    inside = (weights.ratio >= bounds[0]) & (weights.ratio <= bounds[1])
    identical(clipped[inside], plain[inside])
    assert weights.keep[inside | (inputs.advantage == 0.0)].all()
    # A gain is never worth more than at the bound, and a loss never less.
    gain = inputs.advantage > 0.0
    assert (clipped[gain] <= bounds[1] * inputs.advantage[gain] * (1.0 + 1e-12)).all()
    loss = inputs.mask & (inputs.advantage < 0.0)
    assert (clipped[loss] <= bounds[0] * inputs.advantage[loss] * (1.0 - 1e-12)).all()


@given(element_arrays())
def test_penalties_are_never_negative_and_point_back(inputs: Elements) -> None:
    arrays = {"log_prob": inputs.log_prob, "anchor_log_prob": inputs.old_log_prob}
    apart = inputs.log_prob - inputs.old_log_prob
    for estimator in ("k2", "k3"):
        value = kl_estimate(np, estimator, **arrays)
        assert (value >= 0.0).all() and not value[apart == 0.0].any()
        # Descending along the weight brings log pi back to log pi_ref.
        assert (kl_weight(np, estimator, **arrays) * apart >= 0.0).all()
