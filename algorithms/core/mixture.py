"""A mixture of policies: sum_k w_k pi_k(a|s), of distributions and never of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from redline.algorithms.core.contracts import Optimizer, Policy
from redline.algorithms.core.distributions import Categorical, Distribution
from redline.algorithms.core.surrogates import MAX_LOG_RATIO
from redline.algorithms.core.types import Array, Batch, Evaluation, KLTerm, Namespace, Params


def log_sum_exp(xp: Namespace, terms: Sequence[Array]) -> Array:
    """log sum_k exp(terms[k]), element by element; -inf where all are."""
    highest = terms[0]
    for term in terms[1:]:
        highest = xp.maximum(highest, term)
    # Two infinities would give nan.
    finite = xp.where(xp.isfinite(highest), highest, xp.zeros_like(highest))
    total = xp.exp(terms[0] - finite)
    for term in terms[1:]:
        total = total + xp.exp(term - finite)
    return finite + xp.log(total)


def log_mixture(xp: Namespace, weights: Sequence[float], log_probs: Sequence[Array]) -> Array:
    """log sum_k w_k p_k, element by element.

    Args:
        xp: Array namespace.
        weights: w_k > 0.
        log_probs: log p_k, arrays of one shape.
    """
    pairs = zip(weights, log_probs, strict=True)
    return log_sum_exp(xp, [math.log(weight) + log_p for weight, log_p in pairs])


class MixturePolicy:
    """pi(a|s) = sum_k w_k pi_k(a|s); see `redline.algorithms.core.contracts.Policy`.

    With one choice per state (Categorical) the mixture is of the same family, so entropies and
    divergences are exact. On other spaces they are estimates at the sampled actions: -log pi for
    the entropy, k3 for KL(old||new) ("Approximating KL divergence"), and `exact` is False.

    It is a fixed distribution: what learns is a component, before it joins.

    Args:
        components: Policies of one kind.
        weights: w_k > 0; None: equal. They are scaled to sum to 1.

    Raises:
        ValueError: No component, or weights that are not one positive number each.
    """

    def __init__(
        self, components: Sequence[Policy], weights: Sequence[float] | None = None
    ) -> None:
        chosen = [1.0] * len(components) if weights is None else [float(w) for w in weights]
        positive = all(0.0 < w < math.inf for w in chosen)
        if not components or len(chosen) != len(components) or not positive:
            raise ValueError(
                f"a mixture needs one positive weight per component, got {len(components)} "
                f"components and the weights {chosen}"
            )
        self.components = list(components)
        self.weights = [w / math.fsum(chosen) for w in chosen]
        first = components[0]
        self.xp, self.per_element = first.xp, first.per_element

    @property
    def distribution(self) -> Distribution:
        """The family of the components."""
        return self.components[0].distribution

    @property
    def exact(self) -> bool:
        """One choice per state."""
        return len(self.components) == 1 or isinstance(self.distribution, Categorical)

    @property
    def parameters(self) -> Array:
        """All components' parameters, one after the other; a copy."""
        return self.xp.concat([part.parameters for part in self.components])

    @property
    def newest(self) -> Policy:
        """The component that joined last."""
        return self.components[-1]

    @property
    def heaviest(self) -> Policy:
        """The component with the largest weight."""
        return self.components[int(np.argmax(self.weights))]

    def with_component(self, policy: Policy, alpha: float) -> MixturePolicy:
        """(1 - alpha) * this + alpha * `policy`; `policy` alone at alpha = 1."""
        if alpha >= 1.0:
            return MixturePolicy([policy])
        kept = [(1.0 - alpha) * w for w in self.weights]
        return MixturePolicy([*self.components, policy], [*kept, alpha])

    def copy(self) -> Self:
        """An independent mixture with the same numbers."""
        twin = type(self)([part.copy() for part in self.components])
        # Not through the constructor, which would scale them once more.
        twin.weights = list(self.weights)
        return twin

    def asarray(self, value: Array) -> Array:
        """A numpy array as the components' kind of array."""
        return self.components[0].asarray(value)

    def predict(self, observation: Array) -> Params:
        """See `redline.algorithms.core.contracts.Policy`.

        Raises:
            ValueError: The mixture is of no such family.
        """
        if not self.exact:
            raise ValueError("a mixture on this action space has no parameters of the family")
        parts = [part.predict(observation) for part in self.components]
        return parts[0] if len(parts) == 1 else self._mixed(np, parts)

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """See `redline.algorithms.core.contracts.Policy`.

        Where the mixture is not of the family, a component is drawn for every row; the most
        probable action is the best of the components' modes.
        """
        if self.exact:
            raw = self.predict(observation)
            dist = self.distribution
            return dist.mode(raw) if rng is None else dist.sample(raw, rng)
        parts = [part.predict(observation) for part in self.components]
        if rng is None:
            return self._best_mode(parts)
        drawn = rng.choice(len(parts), size=len(observation), p=self.weights)
        return self.distribution.sample(_rows(parts, drawn), rng)

    def _best_mode(self, parts: list[Params]) -> Array:
        dist = self.distribution
        modes = [dist.mode(raw) for raw in parts]
        heights = [
            self._log_mixture(np, [dist.log_prob(np, raw, mode) for raw in parts]) for mode in modes
        ]
        best = np.argmax(heights, axis=0)
        return np.stack(modes)[best, np.arange(len(best))]

    def evaluate(self, batch: Batch) -> Evaluation:
        """See `redline.algorithms.core.contracts.Policy`; no params where the family has none."""
        found = [part.evaluate(batch) for part in self.components]
        if len(found) == 1:
            return found[0]
        log_prob = self._log_mixture(self.xp, [part.log_prob for part in found])
        if not self.exact:
            return Evaluation(log_prob, -log_prob, ())
        params = self._mixed(self.xp, [part.params for part in found])
        return Evaluation(log_prob, self.distribution.entropy(self.xp, params), params)

    def _log_mixture(self, xp: Namespace, log_probs: Sequence[Array]) -> Array:
        return log_mixture(xp, self.weights, log_probs)

    def _mixed(self, xp: Namespace, parts: list[Params]) -> Params:
        return (self._log_mixture(xp, [params[0] for params in parts]),)

    def kl(
        self, batch: Batch, evaluation: Evaluation | None = None, reverse: bool = False
    ) -> Array:
        """See `redline.algorithms.core.contracts.Policy`; k3 where it is not exact.

        Raises:
            ValueError: The reverse divergence of a mixture that is not exact.
        """
        new = evaluation or self.evaluate(batch)
        if new.params and batch.reference:
            pair = (new.params, batch.reference) if reverse else (batch.reference, new.params)
            return self.distribution.kl(self.xp, *pair)
        if reverse:
            raise ValueError("KL(new||old) of this mixture cannot be estimated on old actions")
        log_ratio = self.xp.minimum(new.log_prob - batch.old_log_prob, MAX_LOG_RATIO)
        return self.xp.expm1(log_ratio) - log_ratio

    def snapshot(self) -> Array:
        """[K, 1 + P] in float64: the weight and the parameters of every component."""
        xp = self.xp
        rows = []
        for weight, part in zip(self.weights, self.components, strict=True):
            values = xp.astype(part.snapshot(), xp.float64)
            rows.append(xp.concat([xp.zeros_like(values[:1]) + weight, values]))
        return xp.stack(rows)

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit, however many components it has."""
        room = [part.copy() for part in self.components[:1] * len(snapshot)]
        for part, row in zip(room, snapshot, strict=True):
            part.restore(row[1:])
        self.components = room
        self.weights = [float(row[0]) for row in snapshot]

    @property
    def gradient_buffer(self) -> Array:
        """There is none."""
        return _refuse()

    def gradient(
        self,
        batch: Batch,
        weigh: Callable[[Array], Array],
        entropy: Array | None = None,
        kl: KLTerm | None = None,
    ) -> None:
        """Refused."""
        _refuse()

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """Refused."""
        _refuse()

    def optimizer(self, eps: float) -> Optimizer:
        """Refused."""
        _refuse()


def _refuse() -> NoReturn:
    raise TypeError("a mixture of policies has no gradient; what learns is one of its components")


def _rows(parts: list[Params], drawn: Any) -> Params:
    """Row i of the parameters of component drawn[i]; shared parameters are repeated per row."""
    rows = np.arange(len(drawn))
    gathered = []
    for same in zip(*parts, strict=True):
        full = [np.broadcast_to(x, (len(drawn), x.shape[-1])) for x in same]
        gathered.append(np.stack(full)[drawn, rows])
    return tuple(gathered)
