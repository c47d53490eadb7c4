"""Update rules: how a batch moves the policy. Each is a frozen setting; its state is bound once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from redline.algorithms.core import curvature
from redline.algorithms.core.masked import masked_mean
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.surrogates import Weights
from redline.algorithms.core.telemetry import Recorder, approx_kl
from redline.algorithms.core.types import Array, Batch, Metrics, Optimizer, Policy, Progress


class UpdateRule(Protocol):
    """A way to move a policy along an objective."""

    @property
    def needs_value(self) -> bool:
        """The rule compares objective values, so score functions are refused."""

    def bind(self, policy: Policy) -> dict[str, Any]:
        """State that lives as long as the run (an optimiser), created once."""

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
        minibatch_size: Elements (rows for sequence-level methods) per step; None: the whole batch.
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

    def bind(self, policy: Policy) -> dict[str, Any]:
        return {"optimizer": policy.optimizer(self.adam_eps)}

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
        stopped = False
        epoch = 0
        while epoch < self.epochs and not stopped:
            stopped = self._epoch(state["optimizer"], policy, batch, objective, lr, recorder, rng)
            epoch += 1
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
                weights: Weights,
                log_prob: Array,
                mini: Batch = mini,
                log_ratio: list[Array] = log_ratio,
            ) -> None:
                recorder.record(mini, weights, log_prob)
                log_ratio.append(log_prob - mini.old_log_prob)

            objective.gradient(policy, mini, record)
            if self.target_kl is not None:
                divergence = approx_kl(log_ratio[0][mini.mask])
                if divergence > 1.5 * self.target_kl:
                    return True
            recorder.grad_norm.append(self._clip_gradient(policy))
            optimizer.step(lr)
        return False

    def _clip_gradient(self, policy: Policy) -> float:
        gradient = policy.gradient_buffer
        length = norm(gradient)
        require_finite("the gradient norm", length)
        if self.max_grad_norm is not None and length > self.max_grad_norm:
            gradient *= self.max_grad_norm / (length + 1e-6)
        return length


@dataclass(frozen=True)
class FisherSolve:
    """How F^-1 g is computed.

    Attributes:
        solver: "cg" (conjugate gradient) or "dense" (builds F; small networks only).
        cg_iterations: Fisher products per solve.
        damping: Added to F's diagonal.
        fisher_rows: Estimate F on this many random rows; None: all. Gradient and KL use all.
    """

    solver: Literal["cg", "dense"] = "cg"
    cg_iterations: int = 10
    damping: float = 0.1
    fisher_rows: int | None = None

    def solve(
        self, policy: Policy, batch: Batch, gradient: Array, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """x = F^-1 g and x'Fx, with the damping inside F everywhere."""
        subset = batch
        if self.fisher_rows is not None and self.fisher_rows < len(batch):
            subset = batch.take(rng.permutation(len(batch))[: self.fisher_rows])
        product = curvature.damped(policy.fisher_product(subset), self.damping)
        if self.solver == "dense":
            x = policy.asarray(curvature.dense_solve(product, gradient))
        else:
            x = curvature.conjugate_gradient(product, gradient, self.cg_iterations)
        return x, float(x @ product(x))


_NO_STEP = {"train/step_accepted": 0.0, "train/step_size": 0.0}


@dataclass(frozen=True)
class NaturalGradient:
    """theta += scale * F^-1 g with the Fisher matrix F of the policy (Kakade 2001).

    Attributes:
        delta: The step's quadratic KL, in nats: scale = sqrt(2 delta / g'F^-1 g).
        step_size: Take scale = step_size instead (the textbook's fixed step); None: use delta.
        delta_decay: Let delta fall linearly to 0 over the budget.
        fisher: How the linear system is solved.
    """

    delta: float = 0.01
    step_size: float | None = None
    delta_decay: bool = False
    fisher: FisherSolve = FisherSolve()
    needs_value = False

    def bind(self, policy: Policy) -> dict[str, Any]:
        return {}

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        prepared, metrics = _full_gradient(policy, batch, objective)
        decay = 1.0 - progress.fraction if self.delta_decay else 1.0
        x, scale = _natural_step(self.fisher, policy, prepared, self.delta * decay, rng)
        if scale > 0.0 and self.step_size is not None:
            scale = self.step_size * decay
        if scale == 0.0:
            return policy, metrics | _NO_STEP
        policy.parameters[:] = policy.parameters + scale * x
        return policy, metrics | {"train/step_accepted": 1.0, "train/step_size": scale}


@dataclass(frozen=True)
class TrustRegion:
    """TRPO: maximise E[r A] subject to mean KL(old||new) <= delta (arXiv:1502.05477 Eq. 14).

    The natural step with quadratic KL delta is shortened by `backtrack` until the TRUE objective
    rises and the TRUE mean KL is at most delta; when no fraction passes, the parameters stay
    bit-identical.

    Attributes:
        delta: The limit on the mean KL, in nats, summed over action dimensions.
        delta_decay: Let delta fall linearly to 0 over the budget.
        backtrack: Factor between candidates, in (0, 1).
        max_backtracks: Number of candidates.
        fisher: How the linear system is solved.
    """

    delta: float = 0.01
    delta_decay: bool = False
    backtrack: float = 0.8
    max_backtracks: int = 10
    fisher: FisherSolve = FisherSolve()
    needs_value = True

    def bind(self, policy: Policy) -> dict[str, Any]:
        return {}

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        prepared, metrics = _full_gradient(policy, batch, objective)
        delta = self.delta * (1.0 - progress.fraction) if self.delta_decay else self.delta
        x, scale = _natural_step(self.fisher, policy, prepared, delta, rng)
        found = None
        if scale > 0.0:
            fractions = [self.backtrack**k for k in range(self.max_backtracks)]
            start = policy.snapshot()
            trial = _trial(policy, prepared, objective, start, scale * x)
            found = curvature.backtrack(trial, fractions, delta)
            if found is None:
                policy.restore(start)
        if found is None:
            return policy, metrics | _NO_STEP
        fraction, outcome = found
        return policy, metrics | {
            "train/step_accepted": 1.0,
            "train/step_size": scale * fraction,
            "train/line_search_fraction": fraction,
            "train/surrogate_gain": outcome.gain,
        }


def _full_gradient(policy: Policy, batch: Batch, objective: Objective) -> tuple[Batch, Metrics]:
    recorder = Recorder()
    prepared = objective.prepare(batch)
    objective.gradient(policy, prepared, lambda w, log_prob: recorder.record(prepared, w, log_prob))
    length = norm(policy.gradient_buffer)
    require_finite("the gradient norm", length)
    recorder.grad_norm.append(length)
    return prepared, recorder.metrics()


def _natural_step(
    fisher: FisherSolve, policy: Policy, batch: Batch, delta: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """F^-1 g and the scale whose quadratic KL is delta; scale 0 when there is nothing to do."""
    gradient = policy.gradient_buffer + 0.0
    if not norm(gradient) > 0.0 or delta <= 0.0:
        return gradient, 0.0
    x, quadratic = fisher.solve(policy, batch, gradient, rng)
    return x, curvature.trust_region_scale(quadratic, delta)


def _trial(
    policy: Policy, batch: Batch, objective: Objective, start: Array, step: Array
) -> Callable[[float], curvature.Trial]:
    """Candidate fraction -> true gain and KL there; leaves the policy at the candidate."""
    before = objective.value(policy, batch, batch.old_log_prob)

    def trial(fraction: float) -> curvature.Trial:
        policy.parameters[:] = start + fraction * step
        evaluation = policy.evaluate(batch)
        gain = objective.value(policy, batch, evaluation.log_prob) - before
        kl = masked_mean(policy.xp, policy.kl(batch, evaluation), batch.mask)
        return curvature.Trial(gain, float(kl))

    return trial
