"""Random inputs for hypothesis, small enough to read when a counterexample is shrunk."""

from dataclasses import replace
from typing import Any

import numpy as np
from batches import Elements, make_rollout
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from redline.algorithms.core.types import Rollout

SHAPES = npst.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)


def numbers(limit: float = 5.0) -> st.SearchStrategy[float]:
    """Floats in [-limit, limit] that a rounding error does not swamp."""
    return st.floats(-limit, limit).map(lambda x: round(x, 3))


def arrays(shape: Any, limit: float = 5.0) -> st.SearchStrategy[Any]:
    return npst.arrays(np.float64, shape, elements=numbers(limit))


@st.composite
def masked_arrays(draw: Any, some: bool = False) -> tuple[Any, Any]:
    """Values [B, T] and a mask; `some`: at least one element counts."""
    shape = draw(SHAPES)
    mask = draw(npst.arrays(bool, shape))
    if some and not mask.any():
        mask[0, 0] = True
    return draw(arrays(shape)), mask


@st.composite
def element_arrays(draw: Any) -> Elements:
    """What a surrogate sees: ratios between e^-3 and e^3, zero advantages among others."""
    shape = draw(SHAPES)
    old_log_prob = draw(arrays(shape, 2.0))
    return Elements(
        log_prob=old_log_prob + draw(arrays(shape, 3.0)),
        old_log_prob=old_log_prob,
        advantage=draw(arrays(shape, 3.0)),
        mask=draw(npst.arrays(bool, shape)),
    )


@st.composite
def rollouts(draw: Any) -> Rollout:
    """Rows of whole episodes, one after the other, with padding behind; two kinds of end."""
    lengths = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4)
    )
    columns = max(sum(row) for row in lengths) + draw(st.integers(0, 2))
    mask = np.zeros((len(lengths), columns), dtype=bool)
    ends = np.zeros_like(mask)
    for row, episodes in enumerate(lengths):
        mask[row, : sum(episodes)] = True
        ends[row, np.cumsum(episodes) - 1] = True
    truncated = ends & draw(npst.arrays(bool, mask.shape))
    reward = np.where(mask, draw(arrays(mask.shape)), 1e6)
    rollout = make_rollout(
        reward, mask, ends=ends, terminated=ends & ~truncated, truncated=truncated
    )
    # A sampler numbers episodes in the order of its choice.
    number = np.array(draw(st.permutations(range(int(ends.sum())))))
    return replace(rollout, episode_id=np.where(mask, number[rollout.episode_id], -1))
