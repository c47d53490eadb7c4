"""Update rules: how a batch moves the policy. Each is a frozen setting; its state is bound once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from redline.algorithms.core.contracts import Optimizer, Policy
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.spread import gradient_norm
from redline.algorithms.core.surrogates import Weights
from redline.algorithms.core.telemetry import Recorder, approx_kl
from redline.algorithms.core.types import Array, Batch, Metrics, Progress


class UpdateRule(Protocol):
    """A way to move a policy along an objective."""

    @property
    def needs_value(self) -> bool:
        """The rule compares objective values, so score functions are refused."""

    @property
    def judges_all(self) -> bool:
        """The rule judges its step on the whole batch, so that its measures must be those."""

    @property
    def needs_whole(self) -> str:
        """Why every process must hold all parameters; "" where each may hold a part."""

    def bind(self, policy: Policy) -> tuple[Policy, dict[str, Any]]:
        """The policy that the rule moves, which may wrap `policy`, and state such as an optimiser.

        Called once; both live as long as the run.
        """

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        """Move the policy; returns it (a rule may replace it) with what happened."""


def norm(vector: Array) -> float:
    """Euclidean norm of a flat vector."""
    return math.sqrt(float(vector @ vector))


def require_finite(name: str, value: float) -> None:
    """Stop before a non-finite number reaches the parameters.

    Raises:
        FloatingPointError: `value` is nan or infinite.
    """
    if not math.isfinite(value):
        raise FloatingPointError(f"{name} is {value}: the update was not applied")


@dataclass(frozen=True)
class FirstOrder:
    """Adam steps over shuffled minibatches.

    Attributes:
        lr: Learning rate.
        lr_decay: Let the rate fall linearly to 0 over the budget.
        epochs: Passes over the batch.
        minibatch_size: Elements (rows of a [B, T] batch) per step; None: the whole batch.
        max_grad_norm: Clip of the gradient's Euclidean norm, None for no clip.
        target_kl: Stop the update before a step when approx_kl of its minibatch exceeds
            1.5 * target_kl; None: never.
        adam_eps: Adam's epsilon.
    """

    lr: float
    lr_decay: bool = False
    epochs: int = 1
    minibatch_size: int | None = None
    max_grad_norm: float | None = None
    target_kl: float | None = None
    adam_eps: float = 1e-5
    needs_value = False
    judges_all = False
    needs_whole = ""

    def bind(self, policy: Policy) -> tuple[Policy, dict[str, Any]]:
        return policy, {"optimizer": policy.optimizer(self.adam_eps)}

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        recorder = Recorder()
        lr = self.lr * (1.0 - progress.fraction) if self.lr_decay else self.lr
        lr *= progress.step_scale
        stopped = False
        epoch = 0
        while epoch < self.epochs and not stopped:
            if epoch and objective.refresh is not None:
                batch = batch.with_advantage(objective.refresh())
            stopped = self._epoch(state["optimizer"], policy, batch, objective, lr, recorder, rng)
            epoch += 1
            if objective.watch is not None:
                objective.watch.passed(policy)
        metrics = recorder.metrics()
        metrics |= {
            "train/learning_rate": lr,
            "train/n_updates": float(len(recorder.grad_norm)),
            "train/stopped_early": float(stopped),
        }
        return policy, metrics

    def _epoch(
        self,
        optimizer: Optimizer,
        policy: Policy,
        batch: Batch,
        objective: Objective,
        lr: float,
        recorder: Recorder,
        rng: np.random.Generator,
    ) -> bool:
        """One pass; True when target_kl ended it."""
        size = self.minibatch_size or len(batch)
        # One gather an epoch, then slices: far cheaper than a gather per minibatch.
        shuffled = batch.take(rng.permutation(len(batch))) if size < len(batch) else batch
        for start in range(0, len(batch), size):
            mini = objective.prepare(shuffled.take(slice(start, start + size)))
            log_ratio: list[Array] = []

            def record(
                read: Batch,
                weights: Weights,
                log_prob: Array,
                mini: Batch = mini,
                log_ratio: list[Array] = log_ratio,
            ) -> None:
                recorder.record(read, weights, log_prob, of=mini)
                if self.target_kl is not None:
                    log_ratio.append((log_prob - read.old_log_prob)[read.mask])

            objective.gradient(policy, mini, record)
            if self.target_kl is not None:
                divergence = approx_kl(log_ratio[0])
                if divergence > 1.5 * self.target_kl:
                    return True
            recorder.grad_norm.append(self._clip_gradient(policy))
            optimizer.step(lr)
        return False

    def _clip_gradient(self, policy: Policy) -> float:
        gradient = policy.gradient_buffer
        length = gradient_norm(policy)
        require_finite("the gradient norm", length)
        if self.max_grad_norm is not None and length > self.max_grad_norm:
            gradient *= self.max_grad_norm / (length + 1e-6)
        return length
