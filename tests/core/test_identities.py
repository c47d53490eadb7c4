"""Every recipe's weight is the derivative of its textbook objective, on every array library."""

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from batches import AGGREGATES, Elements, algorithm, bounds_of, elements
from closeness import close, identical, to_numpy
from torch_reference import XP as XP_TORCH
from torch_reference import leaf

from redline.algorithms import registry
from redline.algorithms.core.aggregation import denominators
from redline.algorithms.core.surrogates import SCORE_FUNCTION, Weights, from_objective

NAMES = registry.names()
# CISPO's clip bounds a weight and removes no element.
CLIPPING = [name for name in NAMES if algorithm(name).surrogate.clips and name != "cispo"]
TOKEN_LEVEL = [name for name in NAMES if algorithm(name).surrogate.level == "token"]
LIBRARIES = {
    "numpy": (np, np.asarray),
    "torch": (XP_TORCH, torch.as_tensor),
    "strict": (array_api_strict, array_api_strict.asarray),
}
PADDING = 1e6
UNEVEN = (0.7, 1.45)  # equal distances would hide a rule that takes one bound for the other


def as_library(library: str, inputs: Elements) -> tuple[Any, Elements]:
    xp, asarray = LIBRARIES[library]
    return xp, Elements(*(asarray(part) for part in inputs))


def bounds(name: str, uneven: bool = False) -> tuple[float, float] | None:
    own = bounds_of(algorithm(name))
    return UNEVEN if uneven and own is not None else own


def weigh(name: str, xp: Any, inputs: Elements, uneven: bool = False) -> Weights:
    surrogate = algorithm(name).surrogate
    return surrogate.weights(xp, **inputs._asdict(), bounds=bounds(name, uneven))


def coefficient(kind: str, xp: Any, inputs: Elements) -> Any:
    return AGGREGATES[kind].coefficient(
        xp, mask=inputs.mask, like=inputs.log_prob, counts=denominators(xp, inputs.mask)
    )


def objective(name: str, xp: Any, inputs: Elements, uneven: bool = False) -> Any:
    surrogate = algorithm(name).surrogate
    return surrogate.objective(xp, **inputs._asdict(), bounds=bounds(name, uneven))


@pytest.mark.parametrize("name", CLIPPING)
def test_the_inputs_reach_both_sides_of_the_clip(name: str) -> None:
    # Otherwise a rule that ignores a bound would agree with its objective by accident.
    inputs = elements(0)
    keep = weigh(name, np, inputs).keep[inputs.mask]
    advantage = inputs.advantage[inputs.mask]
    assert keep.any() and (~keep & (advantage > 0)).any() and (~keep & (advantage < 0)).any()


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_the_derivative_of_the_objective(
    name: str, kind: str, seed: int, uneven: bool
) -> None:
    xp, inputs = as_library("torch", elements(seed))
    inputs = inputs._replace(log_prob=leaf(inputs.log_prob))
    factor = coefficient(kind, xp, inputs).detach()
    total = torch.sum(factor * objective(name, xp, inputs, uneven))
    (derivative,) = torch.autograd.grad(total, inputs.log_prob)
    weights = weigh(name, xp, inputs, uneven)
    close(factor * weights.w, derivative, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("library", ["torch", "strict"])
@pytest.mark.parametrize("name", NAMES)
def test_libraries_agree(name: str, library: str) -> None:
    inputs = elements(3)
    xp, others = as_library(library, inputs)
    expected, actual = weigh(name, np, inputs), weigh(name, xp, others)
    assert str(actual.w.dtype).endswith("float64")
    close(actual.w, expected.w)
    close(actual.ratio, expected.ratio)
    identical(actual.keep, expected.keep)
    close(objective(name, xp, others), objective(name, np, inputs), atol=1e-15)


@pytest.mark.parametrize("library", ["torch", "strict"])
@pytest.mark.parametrize("kind", AGGREGATES)
def test_aggregates_agree_between_libraries(kind: str, library: str) -> None:
    inputs = elements(4)
    xp, others = as_library(library, inputs)
    close(coefficient(kind, xp, others), coefficient(kind, np, inputs))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", NAMES)
def test_the_floating_type_is_kept(name: str, library: str, dtype: Any) -> None:
    inputs = elements(5)
    floats = [part.astype(dtype) for part in inputs[:3]]
    xp, others = as_library(library, Elements(*floats, inputs.mask))
    results = (*weigh(name, xp, others)[::2], objective(name, xp, others))
    results += tuple(coefficient(kind, xp, others) for kind in AGGREGATES)
    assert {to_numpy(part).dtype for part in results} == {np.dtype(dtype)}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_an_objective_alone_gives_the_same_weights(name: str, library: str) -> None:
    method, inputs = algorithm(name), elements(6)
    xp, others = as_library(library, inputs)
    derived = from_objective(
        method.surrogate.objective_of, level=method.surrogate.level, clips=method.surrogate.clips
    )
    actual = derived.weights(xp, **others._asdict(), bounds=bounds(name))
    expected = weigh(name, xp, others)
    assert all(isinstance(part, type(others.log_prob)) for part in actual)
    close(actual.w, expected.w, atol=1e-15)
    close(actual.ratio, expected.ratio)
    identical(to_numpy(actual.keep)[inputs.mask], to_numpy(expected.keep)[inputs.mask])


@pytest.mark.parametrize("name", TOKEN_LEVEL)
def test_on_policy_weights_are_the_score_functions(name: str) -> None:
    inputs = elements(7)
    inputs = inputs._replace(old_log_prob=inputs.log_prob.copy())
    expected = SCORE_FUNCTION.weights(np, **inputs._asdict())
    actual = weigh(name, np, inputs)
    close(actual.w, expected.w)
    identical(actual.ratio, np.ones_like(actual.ratio))
    assert actual.keep[inputs.mask].all()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("name", NAMES)
def test_padding_is_inert(name: str, kind: str, library: str, seed: int) -> None:
    inputs = elements(seed)
    mask = inputs.mask
    filled = Elements(
        log_prob=np.where(mask, inputs.log_prob, PADDING),
        old_log_prob=np.where(mask, inputs.old_log_prob, -PADDING),
        advantage=np.where(mask, inputs.advantage, PADDING),
        mask=mask,
    )
    xp, clean = as_library(library, inputs)
    _, dirty = as_library(library, filled)
    for inputs_of in (clean, dirty):
        w = to_numpy(weigh(name, xp, inputs_of).w)
        value = to_numpy(objective(name, xp, inputs_of))
        factor = to_numpy(coefficient(kind, xp, inputs_of))
        for part in (w, value, factor):
            assert not part[~mask].any()
    identical(weigh(name, xp, clean).w, weigh(name, xp, dirty).w)
    identical(objective(name, xp, clean), objective(name, xp, dirty))
    identical(coefficient(kind, xp, clean), coefficient(kind, xp, dirty))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_padding_is_inert_for_the_derivative(name: str, seed: int) -> None:
    inputs = elements(seed)
    filled = np.where(inputs.mask, inputs.log_prob, PADDING)
    derivatives = []
    for log_prob in (inputs.log_prob, filled):
        xp, tensors = as_library("torch", inputs)
        tensors = tensors._replace(log_prob=leaf(log_prob))
        total = torch.sum(objective(name, xp, tensors))
        derivatives += torch.autograd.grad(total, tensors.log_prob)
    close(*derivatives, rtol=0.0)
    assert not derivatives[1][~torch.as_tensor(inputs.mask)].any()


@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    inputs = elements(8, shape=(4, 4))
    with pytest.raises(ValueError, match=r"one shape.*advantage \(4, 1\)"):
        weigh(name, np, inputs._replace(advantage=inputs.advantage[:, :1]))
