"""Natural steps: along F^-1 g, as they are (NPG) or shortened by a line search (TRPO)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from redline.algorithms.core import curvature
from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.masked import masked_mean
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.telemetry import Recorder
from redline.algorithms.core.types import Array, Batch, Evaluation, Metrics, Progress
from redline.algorithms.core.updates import norm, require_finite


@dataclass(frozen=True)
class FisherSolve:
    """How F^-1 g is computed.

    Attributes:
        solver: "cg" (conjugate gradient) or "dense" (builds F; small networks only).
        cg_iterations: Fisher products per solve.
        damping: Added to F's diagonal.
        fisher_rows: Estimate F on this many random elements (rows of a [B, T] batch); None: all.
            Gradient and KL use all.
        kl_convention: What delta limits. "true": KL(old||new), summed over action dimensions.
            "sb3": KL(new||old), averaged over the dimensions of a Box action, as sb3-contrib has
            it (delta and damping are then as many times larger as there are dimensions).
    """

    solver: Literal["cg", "dense"] = "cg"
    cg_iterations: int = 10
    damping: float = 0.1
    fisher_rows: int | None = None
    kl_convention: Literal["true", "sb3"] = "true"

    def dimensions(self, policy: Policy) -> int:
        """What the summed KL and its Fisher matrix are divided by."""
        box = self.kl_convention == "sb3" and policy.distribution.has_log_std
        return policy.distribution.width if box else 1

    def mean_kl(self, policy: Policy, batch: Batch, evaluation: Evaluation) -> float:
        """The mean divergence that delta limits, in nats."""
        divergence = policy.kl(batch, evaluation, reverse=self.kl_convention == "sb3")
        return float(masked_mean(policy.xp, divergence, batch.mask)) / self.dimensions(policy)

    def solve(
        self, policy: Policy, batch: Batch, gradient: Array, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """x = F^-1 g and x'Fx, with the damping inside F everywhere."""
        subset = batch
        if self.fisher_rows is not None and self.fisher_rows < len(batch):
            subset = batch.take(rng.permutation(len(batch))[: self.fisher_rows])
        # F / d + damping I = (F + d damping I) / d: one more scaling of the vector, none of F v.
        parts = self.dimensions(policy)
        product = curvature.damped(policy.fisher_product(subset), parts * self.damping)
        gradient = parts * gradient if parts > 1 else gradient
        if self.solver == "dense":
            x = policy.asarray(curvature.dense_solve(product, gradient))
            quadratic = float(x @ gradient)
        else:
            x, quadratic = curvature.conjugate_gradient(product, gradient, self.cg_iterations)
        return x, quadratic / parts


class _Direction(NamedTuple):
    """x = F^-1 g with x'Fx = quadratic > 0, and how far delta has decayed, in [0, 1]."""

    policy: Policy
    batch: Batch
    objective: Objective
    x: Array
    quadratic: float
    decay: float


@dataclass(frozen=True)
class _NaturalStep(ABC):
    """F^-1 g on the whole batch, scaled to a quadratic KL of delta; subclasses take the step.

    Attributes:
        delta: KL of a step, in nats, in the convention of `fisher`.
        delta_decay: Let delta fall linearly to 0 over the budget.
        fisher: How the linear system is solved.
    """

    delta: float = 0.01
    delta_decay: bool = False
    fisher: FisherSolve = FisherSolve()
    needs_whole = "a natural step takes forward derivatives of all parameters at once"

    def bind(self, policy: Policy) -> tuple[Policy, dict[str, Any]]:
        return policy, {}

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
        decay = (1.0 - progress.fraction if self.delta_decay else 1.0) * progress.step_scale
        step: Metrics = {}
        if metrics["train/grad_norm"] > 0.0 and decay > 0.0:
            x, quadratic = self.fisher.solve(policy, prepared, policy.gradient_buffer + 0.0, rng)
            if quadratic > 0.0:
                at = _Direction(policy, prepared, objective, x, quadratic, decay)
                step = self._move(at)
        metrics |= step or {"train/step_size": 0.0}
        return policy, metrics | {"train/step_accepted": float(bool(step))}

    @abstractmethod
    def _move(self, at: _Direction) -> Metrics:
        """Step along the direction; empty when no step was taken."""


@dataclass(frozen=True)
class NaturalGradient(_NaturalStep):
    """theta += scale * F^-1 g with the Fisher matrix F of the policy (Kakade 2001).

    Attributes:
        step_size: scale = step_size (the textbook's fixed step); None: the scale whose quadratic
            KL is delta, sqrt(2 delta / g'F^-1 g).
    """

    step_size: float | None = None
    needs_value = False
    judges_all = False

    def _move(self, at: _Direction) -> Metrics:
        if self.step_size is not None:
            scale = self.step_size * at.decay
        else:
            scale = curvature.trust_region_scale(at.quadratic, self.delta * at.decay)
        at.policy.parameters[:] = at.policy.parameters + scale * at.x
        return {"train/step_size": scale}


@dataclass(frozen=True)
class TrustRegion(_NaturalStep):
    """TRPO: maximise E[r A] subject to mean KL(old||new) <= delta (arXiv:1502.05477 Eq. 14).

    The natural step with quadratic KL delta is shortened by `backtrack` until the TRUE objective
    rises and the TRUE mean KL is at most delta; when no fraction passes, the parameters stay
    bit-identical.

    Attributes:
        backtrack: Factor between candidates, in (0, 1).
        max_backtracks: Number of candidates.
    """

    backtrack: float = 0.8
    max_backtracks: int = 10
    needs_value = True
    judges_all = True

    def _move(self, at: _Direction) -> Metrics:
        delta = self.delta * at.decay
        scale = curvature.trust_region_scale(at.quadratic, delta)
        fractions = [self.backtrack**k for k in range(self.max_backtracks)]
        start = at.policy.snapshot()
        trial = _trial(at, start, scale * at.x, self.fisher)
        found = curvature.backtrack(trial, fractions, delta)
        if found is None:
            at.policy.restore(start)
            return {}
        fraction, outcome = found
        return {
            "train/step_size": scale * fraction,
            "train/line_search_fraction": fraction,
            "train/surrogate_gain": outcome.gain,
        }


def _full_gradient(policy: Policy, batch: Batch, objective: Objective) -> tuple[Batch, Metrics]:
    recorder = Recorder()
    prepared = objective.prepare(batch)
    objective.gradient(
        policy, prepared, lambda read, w, log_prob: recorder.record(read, w, log_prob, of=prepared)
    )
    length = norm(policy.gradient_buffer)
    require_finite("the gradient norm", length)
    recorder.grad_norm.append(length)
    return prepared, recorder.metrics()


def _trial(
    at: _Direction, start: Array, step: Array, fisher: FisherSolve
) -> Callable[[float], curvature.Trial]:
    """Candidate fraction -> true gain and KL there; leaves the policy at the candidate."""
    policy, batch, objective = at.policy, at.batch, at.objective
    # Not at old_log_prob: a stale rollout was sampled by another policy than the one that moves.
    before = objective.value(policy, batch, policy.evaluate(batch).log_prob)

    def trial(fraction: float) -> curvature.Trial:
        policy.parameters[:] = start + fraction * step
        evaluation = policy.evaluate(batch)
        gain = objective.value(policy, batch, evaluation.log_prob) - before
        return curvature.Trial(gain, fisher.mean_kl(policy, batch, evaluation))

    return trial
