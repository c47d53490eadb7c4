"""A rollout's advantages, from a critic that is fitted on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from redline.algorithms.core.advantages import Estimate
from redline.algorithms.core.masked import standardise
from redline.algorithms.core.telemetry import explained_variance
from redline.algorithms.core.types import Array, Metrics, Progress, Rollout

if TYPE_CHECKING:
    from redline.algorithms.core.learner import Learner


class Evaluated:
    """A rollout's advantages, from a critic that is fitted on the way."""

    def __init__(self, learner: Learner, rollout: Rollout, progress: Progress) -> None:
        self._learner, self._rollout, self._progress = learner, rollout, progress
        self._first = self._estimate = self._judged()
        self._first_values = self._values
        self._losses: list[float] = []
        value, returns = learner.value, self._estimate.returns
        if value is not None and returns is not None:
            value.observe(returns, rollout.mask)
            value.judge(returns, self._values, rollout.mask)

    def _judged(self) -> Estimate:
        value = self._learner.value
        before, after = (None, None) if value is None else value(self._rollout)
        self._values = before
        return self._learner.advantage(self._rollout, before, after)

    def advantage(self) -> Array:
        """[B, T], standardised where that is done per batch."""
        algorithm, mask = self._learner.algorithm, self._rollout.mask
        advantage = algorithm.shaping.advantages(self._estimate.advantage, mask)
        return standardise(advantage, mask) if algorithm.standardise == "batch" else advantage

    def refresh(self) -> Array:
        """The advantages after one more pass of the critic, in the shape of the policy's batch."""
        self._fit(1)
        self._estimate = self._judged()
        (advantage,), _ = self._learner.arranged(self._rollout, (self.advantage(),))
        return self._learner.policy.asarray(advantage)

    def _fit(self, epochs: int) -> None:
        learner, returns = self._learner, self._estimate.returns
        if learner.value is None or returns is None or epochs < 1 or not learner.value.due:
            return
        fitted = learner.value.fit(
            self._rollout, returns, self._progress, learner.rng, epochs=epochs
        )
        self._losses += epochs * [fitted["train/value_loss"]]

    def finish(self) -> Metrics:
        """The critic's remaining passes; what all of them did."""
        value, returns = self._first_values, self._first.returns
        function = self._learner.value
        if function is None or value is None or returns is None:
            return {}
        mask = self._rollout.mask
        self._fit(self._learner.algorithm.critic.epochs - len(self._losses))
        losses = self._losses or [function.error(returns, value, mask)]
        function.rounds += 1
        return {
            "train/value_loss": float(np.mean(losses)),
            "train/explained_variance": explained_variance(value=value, returns=returns, mask=mask),
        }
