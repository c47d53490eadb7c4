"""A close look at updates: layers, single actions, and what the clip does to the gradient.

It costs passes of the network and is therefore off by default. It draws no random numbers and
changes nothing: a run with it and one without are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from redline.algorithms.core.arrays import host
from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.spread import pooled
from redline.algorithms.core.surrogates import MAX_LOG_RATIO
from redline.algorithms.core.types import Array, Batch, Metrics

FOLLOWED = 10
# The clip's bias takes three gradients: on a part of the batch, and not of every update.
_EVERY = 4
_ELEMENTS = 256
_ROWS = 32


class Layered(Protocol):
    """A policy that says where its layers lie in the flat vectors."""

    @property
    def layers(self) -> Mapping[str, list[slice]]:
        """Name of a layer -> its parts."""


@runtime_checkable
class Tied(Protocol):
    """A language model whose output layer may be its embedding."""

    @property
    def tied(self) -> slice | None:
        """Where that matrix lies in the flat vectors; None: it does not learn, or is not one."""

    def trunk_alone(self) -> AbstractContextManager[None]:
        """Within it, derivatives reach the matrix through the embedding only."""


class CloseUp:
    """Looks at the updates of one run.

    Args:
        advantaged: Called once the advantages of a rollout are there.
    """

    def __init__(self, advantaged: Callable[[], None] | None = None) -> None:
        self._advantaged = advantaged
        self._norms: list[Array] = []
        self._names: tuple[str, ...] = ()
        self._followed: Batch | None = None
        self._last: Array | None = None
        self._start: Array | None = None
        self._passes: list[Array] = []
        self._updates = 0

    def begin(self, batch: Batch) -> None:
        """An update begins; the actions of the first one are followed from here on."""
        if self._advantaged is not None:
            self._advantaged()
        self._norms, self._passes = [], []
        if self._followed is None:
            self._followed = _some(batch)
            self._last = host(self._followed.old_log_prob) + 0.0
        self._start = self._last

    def gradient(self, policy: Policy) -> None:
        """A gradient is in the policy's buffer: note the norm of every layer."""
        layers: Mapping[str, list[slice]] = getattr(policy, "layers", {})
        if not layers:
            return
        xp, flat = policy.xp, policy.gradient_buffer
        squares = [sum(flat[part] @ flat[part] for part in parts) for parts in layers.values()]
        self._names = tuple(layers)
        self._norms.append(pooled(policy, host(xp.stack([xp.asarray(s) for s in squares]))) ** 0.5)

    def passed(self, policy: Policy) -> None:
        """The optimiser has gone through the batch once more."""
        if self._followed is None or self._last is None:
            return
        log_prob = host(policy.evaluate(self._followed).log_prob).astype(np.float64)
        self._passes.append(np.exp(np.minimum(log_prob - self._last, MAX_LOG_RATIO)))
        self._last = log_prob

    def metrics(self, policy: Policy, batch: Batch, objective: Objective) -> Metrics:
        """What the update did; called at its end."""
        if not self._passes:  # a rule without passes
            self.passed(policy)
        found = self._of_layers() | self._of_followed()
        if self._updates % _EVERY == 0 and not isinstance(policy, MixturePolicy):
            part = _part(batch, policy.per_element)
            found |= clip_bias(policy, part, objective) | tied_paths(policy, part, objective)
        self._updates += 1
        return found

    def _of_layers(self) -> Metrics:
        if not self._norms:
            return {}
        mean = np.mean(self._norms, axis=0)
        return {
            f"train/grad_norm/{name}": float(value)
            for name, value in zip(self._names, mean, strict=True)
        }

    def _of_followed(self) -> Metrics:
        assert self._followed is not None and self._last is not None and self._start is not None
        mask = host(self._followed.mask)
        ratio = np.exp(np.minimum(self._last - self._start, MAX_LOG_RATIO))[mask]
        every = np.stack([one[mask] for one in self._passes])
        found = {f"follow/{i}": float(value) for i, value in enumerate(ratio)}
        return found | {
            "train/followed_low": float(every.min()),
            "train/followed_high": float(every.max()),
        }

    def state_dict(self) -> dict[str, Any]:
        """What is followed, and how far."""
        followed = self._followed
        fields = ("observation", "action", "old_log_prob", "advantage", "mask")
        kept = followed and {name: host(getattr(followed, name)) for name in fields}
        return {"followed": kept, "last": self._last, "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Inverse of `state_dict`."""
        kept = state["followed"]
        if kept is not None:
            self._followed = Batch(**{name: policy.asarray(value) for name, value in kept.items()})
        self._last, self._updates = state["last"], int(state["updates"])


def _some(batch: Batch) -> Batch:
    """Up to `FOLLOWED` elements, evenly spread; of [B, T] one in each of so many rows."""
    mask = host(batch.mask)
    if mask.ndim == 1:
        return _light(batch).take(_spread(np.flatnonzero(mask)))
    rows = _spread(np.flatnonzero(mask.any(axis=1)))
    part = _light(batch).take(rows)
    single = np.zeros_like(mask[rows])
    for i, row in enumerate(mask[rows]):
        valid = np.flatnonzero(row)
        single[i, valid[len(valid) // 2]] = True
    return Batch(
        part.observation,
        part.action,
        part.old_log_prob,
        part.advantage,
        _like(single, part.mask),
    )


def _like(values: Any, array: Array) -> Array:
    if isinstance(array, np.ndarray):
        return values
    return array.new_tensor(values)


def _light(batch: Batch) -> Batch:
    return Batch(batch.observation, batch.action, batch.old_log_prob, batch.advantage, batch.mask)


def _spread(places: Any) -> Any:
    """At most `FOLLOWED` of some places, evenly spread."""
    at = np.linspace(0, len(places) - 1, min(FOLLOWED, len(places)))
    return places[np.unique(at.round().astype(int))]


def _part(batch: Batch, per_element: bool) -> Batch:
    """The first elements (rows of a [B, T] batch) of a batch."""
    flat = per_element and batch.mask.ndim == 1
    return batch.take(slice(0, _ELEMENTS if flat else _ROWS))


def clip_bias(policy: Policy, batch: Batch, objective: Objective) -> Metrics:
    """What the clip takes from the gradient: E[grad clipped] - E[grad unclipped].

    It is -sum coefficient * r A (1 - keep) * grad log pi over the elements whose gradient the
    method's own clip removes: below the lower bound (A < 0) and above the upper one (A > 0). The
    policy's gradient buffer is left with the last of the three.

    Where A has mean zero and does not depend on the action it must be
    mu * E[grad r below the band; 0 inside; -grad r above], mu = P(A > 0) E[A | A > 0].

    Args:
        policy: At the parameters that the bias is measured at.
        batch: Elements.
        objective: Of the update.

    Returns:
        train/clip_bias, _low and _high: Euclidean norms of the bias and of its two parts.
        train/clip_bias_cosine: of the bias with the clipped gradient; 0 where one of them is 0.
    """
    prepared = objective.prepare(batch)
    xp = policy.xp
    coefficient = objective.coefficient(policy, prepared)

    def gradient(of: str) -> Array:
        def weigh(log_prob: Array) -> Array:
            weights = objective.weights(policy, prepared, log_prob)
            zero = xp.zeros_like(weights.w)
            if of == "kept":
                return coefficient * weights.w
            sign = prepared.advantage > 0 if of == "high" else prepared.advantage < 0
            removed = prepared.mask & ~weights.keep & sign
            # The ratio of a masked element may be anything.
            return coefficient * xp.where(removed, -weights.ratio * prepared.advantage, zero)

        policy.gradient(prepared, weigh)
        return host(policy.gradient_buffer + 0.0).astype(np.float64)

    low, high, kept = gradient("low"), gradient("high"), gradient("kept")
    bias = low + high
    squares = pooled(policy, [part @ part for part in (bias, low, high, kept)])
    length = [float(square) for square in squares**0.5]
    size = length[0] * length[3]
    return {
        "train/clip_bias": length[0],
        "train/clip_bias_low": length[1],
        "train/clip_bias_high": length[2],
        "train/clip_bias_cosine": float(pooled(policy, bias @ kept)) / size if size > 0.0 else 0.0,
    }


def tied_paths(policy: Policy, batch: Batch, objective: Objective) -> Metrics:
    """The gradient of a matrix that is embedding and output layer, by the path it comes along.

    The two add up to the matrix's gradient. Freezing the matrix ends both.

    Args:
        policy: At the parameters that it is measured at; the gradient buffer is left with one of
            the gradients.
        batch: Elements.
        objective: Of the update.

    Returns:
        train/grad_norm_embedding_path and train/grad_norm_head_path; {} where nothing is tied.
    """
    if not isinstance(policy, Tied):
        return {}
    place, trunk_alone = policy.tied, policy.trunk_alone
    if place is None:
        return {}
    prepared = objective.prepare(batch)
    objective.gradient(policy, prepared)
    whole = host(policy.gradient_buffer[place] + 0.0)
    with trunk_alone():
        objective.gradient(policy, prepared)
    below = host(policy.gradient_buffer[place])
    above = whole - below
    lengths = pooled(policy, [below @ below, above @ above]) ** 0.5
    return {
        "train/grad_norm_embedding_path": float(lengths[0]),
        "train/grad_norm_head_path": float(lengths[1]),
    }
