"""The objective of one update: surrogate, bounds, aggregate and penalties put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from redline.algorithms.core.aggregation import Aggregate, denominators
from redline.algorithms.core.arrays import namespace
from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.masked import standardise
from redline.algorithms.core.penalties import OldPolicyPenalty, Penalties, kl_weight
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.surrogates import Bounds, Surrogate, Weights
from redline.algorithms.core.types import Array, Batch, Metrics, Namespace


class Watch(Protocol):
    """Looks on while a policy is moved."""

    def begin(self, batch: Batch) -> None:
        """An update begins."""

    def gradient(self, policy: Policy) -> None:
        """A gradient is in the policy's buffer."""

    def passed(self, policy: Policy) -> None:
        """A pass over the batch has ended."""

    def metrics(self, policy: Policy, batch: Batch, objective: Objective) -> Metrics:
        """What it saw; the update has ended."""


@dataclass(frozen=True)
class Objective:
    """sum coefficient * objective(r, A) + entropy bonus - KL penalty, for one optimiser step.

    Attributes:
        surrogate: Weights on grad log pi.
        aggregate: Coefficients.
        penalties: Entropy and reference KL.
        bounds: (lo, hi) in force on the ratio, None for methods without a clip; a batch whose
            elements have bounds of their own brings them.
        standardise: Standardise the advantages of every optimiser step.
        old_policy: Penalty on the divergence from pi_old, set by rules that have one.
        refresh: Gives the batch's advantages anew; called between passes over it.
        shaping: Adds its bonus to the advantages of every optimiser step.
        watch: Is told of every gradient, and of every pass over the batch; changes nothing.
    """

    surrogate: Surrogate
    aggregate: Aggregate
    penalties: Penalties
    bounds: Bounds | None
    standardise: bool
    old_policy: OldPolicyPenalty | None = None
    refresh: Callable[[], Array] | None = None
    shaping: Shaping = field(default_factory=Shaping)
    watch: Watch | None = None

    def prepare(self, batch: Batch) -> Batch:
        """The batch of one optimiser step, its advantages standardised and shaped as asked for."""
        if self.standardise:
            whole = batch.mask if batch.mask.ndim > 1 else None
            batch = batch.with_advantage(standardise(batch.advantage, whole))
        return self.shaping.bonus(namespace(batch.advantage), batch)

    def coefficient(self, policy: Policy, batch: Batch) -> Array:
        """The aggregate's coefficient per element; the batch is a whole optimiser step."""
        counts = denominators(policy.xp, batch.mask)
        return self.aggregate.coefficient(
            policy.xp, mask=batch.mask, like=batch.old_log_prob, counts=counts
        )

    def weights(self, policy: Policy, batch: Batch, log_prob: Array) -> Weights:
        """The surrogate's weights at `log_prob`."""
        return self.surrogate.weights(
            policy.xp,
            log_prob=log_prob,
            old_log_prob=batch.old_log_prob,
            advantage=batch.advantage,
            mask=batch.mask,
            bounds=batch.bounds or self.bounds,
        )

    def gradient(
        self,
        policy: Policy,
        batch: Batch,
        record: Callable[[Batch, Weights, Array], None] | None = None,
    ) -> None:
        """Fill the policy's gradient buffer.

        Args:
            policy: Moves along it.
            batch: A whole optimiser step. Rows of a policy that reads whole rows are left out, of
                the gradient and not of the denominators, where nothing depends on them.
            record: Sees (batch, weights, log_prob) of the rows that were read.
        """
        coefficient = self.coefficient(policy, batch)
        if not policy.per_element and not self._everywhere:
            rows = _acting(policy.xp, batch)
            if len(rows) < len(batch):
                batch, coefficient = batch.take(rows), coefficient[rows]

        def weigh(log_prob: Array) -> Array:
            weights = self.weights(policy, batch, log_prob)
            if record is not None:
                record(batch, weights, log_prob)
            w = weights.w
            if self.penalties.kl:
                pull = kl_weight(
                    policy.xp,
                    self.penalties.estimator,
                    log_prob=log_prob,
                    anchor_log_prob=batch.anchor_log_prob,
                )
                pull = policy.xp.where(batch.mask, pull, policy.xp.zeros_like(pull))
                w = w - self.penalties.kl * pull
            return coefficient * w

        bonus = self.penalties.entropy
        old = self.old_policy
        policy.gradient(
            batch,
            weigh,
            entropy=coefficient * bonus if bonus else None,
            kl=old.term(policy.xp, batch.mask) if old is not None and old.coefficient else None,
        )
        if self.watch is not None:
            self.watch.gradient(policy)

    @property
    def _everywhere(self) -> bool:
        """The gradient depends on elements whose advantage is 0."""
        old = self.old_policy
        penalties = self.penalties.kl or self.penalties.entropy
        return bool(penalties or (old is not None and old.coefficient))

    def value(self, policy: Policy, batch: Batch, log_prob: Array) -> float:
        """sum coefficient * objective: what a line search compares (penalties left out)."""
        per_element = self.surrogate.objective(
            policy.xp,
            log_prob=log_prob,
            old_log_prob=batch.old_log_prob,
            advantage=batch.advantage,
            mask=batch.mask,
            bounds=batch.bounds or self.bounds,
        )
        return float(policy.xp.sum(self.coefficient(policy, batch) * per_element))

    def value_from(self, policy: Policy, batch: Batch, rows: slice, log_prob: Array) -> float:
        """`value` of a whole batch, of which some rows are known.

        It is value(rows) + value(batch at pi_old) - value(rows at pi_old): what the rows are worth
        before the update tells how far they are from the batch, and takes no pass of the network.

        Args:
            policy: After the update.
            batch: Prepared.
            rows: Of it.
            log_prob: Of the policy, of these rows.
        """
        part = batch.take(rows)
        known = self.value(policy, part, log_prob)
        if len(part) == len(batch):
            return known
        start = self.value(policy, batch, batch.old_log_prob)
        return known + start - self.value(policy, part, part.old_log_prob)


def _acting(xp: Namespace, batch: Batch) -> Array:
    """Numbers of the rows with an advantage that is not 0 (nan is none); one where all are 0."""
    acting = xp.any(batch.mask & (batch.advantage != 0.0), axis=-1)
    rows = xp.nonzero(acting)[0]
    return rows if len(rows) else xp.nonzero(~acting)[0][:1]
