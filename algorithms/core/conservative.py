"""Conservative policy iteration in its mixture form (Kakade & Langford 2002)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.curvature import Trial, backtrack
from redline.algorithms.core.masked import masked_mean
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalised import has_bound, largest_advantage, require_horizon
from redline.algorithms.core.penalties import OldPolicyPenalty
from redline.algorithms.core.surrogates import MAX_LOG_RATIO
from redline.algorithms.core.types import Batch, Evaluation, Metrics, Progress
from redline.algorithms.core.updates import FirstOrder


def conservative_step(
    policy_advantage: float, eps: float, gamma: float, horizon: int | None = None
) -> float:
    """alpha* that maximises the lower bound on the improvement of (1 - alpha) pi + alpha pi'.

    alpha* = min(1, (1 - gamma) Abar / (4 gamma eps)) (Kakade & Langford 2002, Theorem 4.1); without
    a discount and with at most T steps alpha* = min(1, Abar / (2 eps (T - 1))). Abar <= 0: 0.

    Args:
        policy_advantage: Abar = E[A] under pi', a mean over steps.
        eps: max_s |E_pi'[A]|; max |A| is an upper bound on it.
        gamma: Discount in [0, 1].
        horizon: T; needed at gamma = 1.

    Raises:
        ValueError: gamma is 1 and no horizon is given.
    """
    if not policy_advantage > 0.0:
        return 0.0
    if gamma < 1.0:
        slope = 4.0 * gamma * eps / (1.0 - gamma)
    else:
        slope = 2.0 * eps * (require_horizon(gamma, horizon) - 1)
    return min(1.0, policy_advantage / slope) if slope > 0.0 else 1.0


@dataclass(frozen=True)
class Distillation:
    """Fits one network to a mixture: min mean KL(mixture||network) by Adam.

    Attributes:
        lr: Learning rate.
        epochs: Passes over the states of a batch.
        minibatch_size: Elements (rows of a [B, T] batch) per step; None: the whole batch.
    """

    lr: float = 1e-3
    epochs: int = 30
    minibatch_size: int | None = 256

    def __call__(
        self, mixture: MixturePolicy, batch: Batch, rng: np.random.Generator
    ) -> tuple[MixturePolicy, Metrics]:
        """The student as a mixture of one, and KL(mixture||student) on the batch's states.

        It is train/distillation_kl, or an estimate train/distillation_kl_sampled where the
        mixture is not of the family.
        """
        student = mixture.heaviest.copy()
        optimizer = student.optimizer(1e-5)
        size = self.minibatch_size or len(batch)
        for _ in range(self.epochs):
            shuffled = batch.take(rng.permutation(len(batch)))
            for start in range(0, len(batch), size):
                _towards(student, mixture, shuffled.take(slice(start, start + size)))
                optimizer.step(self.lr)
        result = MixturePolicy([student])
        return result, _distance(mixture, result, batch)


def _distance(mixture: MixturePolicy, student: MixturePolicy, batch: Batch) -> Metrics:
    """Mean KL(mixture||student), exact or estimated at the batch's actions."""
    xp = mixture.xp
    before = mixture.evaluate(batch)
    divergence = student.kl(_sampled_by(batch, before))
    name = "train/distillation_kl"
    if not before.params:
        # The estimate is a mean over actions of the mixture; those at hand are pi_old's.
        log_ratio = xp.minimum(before.log_prob - batch.old_log_prob, MAX_LOG_RATIO)
        divergence, name = xp.exp(log_ratio) * divergence, f"{name}_sampled"
    return {name: float(masked_mean(xp, divergence, batch.mask))}


def _sampled_by(batch: Batch, evaluation: Evaluation) -> Batch:
    """The batch with another policy as pi_old."""
    return replace(batch, old_log_prob=evaluation.log_prob, reference=evaluation.params)


def _towards(student: Policy, mixture: MixturePolicy, batch: Batch) -> None:
    """Fill the student's gradient with that of -mean KL(mixture||student).

    Up to a constant KL(mixture||student) = sum_k w_k KL(pi_k||student), which every family has.
    """
    xp = student.xp
    evaluation = mixture.evaluate(batch)
    targets = [(1.0, evaluation)]
    if not evaluation.params:
        found = [part.evaluate(batch) for part in mixture.components]
        targets = list(zip(mixture.weights, found, strict=True))
    total = student.gradient_buffer * 0.0
    for weight, target in targets:
        penalty = OldPolicyPenalty(weight).term(xp, batch.mask)
        student.gradient(_sampled_by(batch, target), xp.zeros_like, kl=penalty)
        total = total + student.gradient_buffer
    student.gradient_buffer[:] = total


@dataclass(frozen=True)
class ConservativeMixture:
    """pi <- (1 - alpha) pi + alpha pi', a mixture of distributions.

    pi' starts as a copy of the newest component and is trained, with an optimiser of its own, to
    be greedy: it maximises E[(pi'/pi) A]. Its Abar is then measured on elements that it was not
    trained on, for on its own it is flattered. With Abar <= 0 there is no step.

    Attributes:
        steps: Optimiser steps that train pi'.
        gamma: Discount, for the bound.
        horizon: Longest episode, for the bound at gamma = 1.
        alpha: "bound" (`conservative_step`, with eps = max |A|), or "line_search": the largest
            candidate whose mean KL(old||new) is at most delta (the objective is linear in alpha,
            so it gives no reason to stop).
        delta: That limit, in nats.
        holdout: Share of the elements that judge pi', in (0, 1).
        max_components: A larger mixture is distilled into one network.
        distillation: How.

    Raises:
        ValueError: The bound at gamma 1 without a horizon; delta, the holdout or the cap is out of
            range; or a batch of fewer than two rows.
    """

    steps: FirstOrder
    gamma: float
    horizon: int | None = None
    alpha: Literal["bound", "line_search"] = "bound"
    delta: float = 0.01
    holdout: float = 0.25
    max_components: int = 16
    distillation: Distillation = field(default_factory=Distillation)
    needs_value = True
    judges_all = True
    needs_whole = "a mixture is made of whole copies of the policy"

    def __post_init__(self) -> None:
        if self.gamma == 1.0 and (self.alpha == "bound" or self.horizon is not None):
            require_horizon(self.gamma, self.horizon)
        if not self.delta > 0.0:
            raise ValueError(f"delta must be positive, got {self.delta:g}")
        if not 0.0 < self.holdout < 1.0:
            raise ValueError(f"holdout must lie between 0 and 1, got {self.holdout}")
        if self.max_components < 2:
            raise ValueError(
                f"max_components must be at least 2 (a mixture), got {self.max_components}"
            )

    def bind(self, policy: Policy) -> tuple[Policy, dict[str, Any]]:
        return MixturePolicy([policy]), {}

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        assert isinstance(policy, MixturePolicy)
        judging, training = self._split(batch, rng)
        candidate, optimizer = self.steps.bind(policy.newest.copy())
        _, metrics = self.steps.update(optimizer, candidate, training, objective, progress, rng)
        gain = _policy_advantage(objective, policy, candidate, judging)
        metrics |= self._bound(batch, gain)
        if self.alpha == "line_search":
            alpha = self._search(policy, candidate, batch, gain)
        else:
            alpha = metrics["train/mixture_alpha_bound"]
        alpha *= progress.step_scale
        metrics |= {
            "train/policy_advantage": gain,
            "train/mixture_alpha": alpha,
            "train/step_accepted": float(alpha > 0.0),
        }
        mixture = policy
        if alpha > 0.0:
            mixture = policy.with_component(candidate, alpha)
            if len(mixture.components) > self.max_components:
                mixture, distilled = self.distillation(mixture, batch, rng)
                metrics |= distilled
        return mixture, metrics | {"train/mixture_components": float(len(mixture.components))}

    def _bound(self, batch: Batch, gain: float) -> Metrics:
        """The bound's alpha where there is one."""
        if not has_bound(self.gamma, self.horizon):
            return {}
        alpha = conservative_step(gain, largest_advantage(batch), self.gamma, self.horizon)
        return {"train/mixture_alpha_bound": alpha}

    def _split(self, batch: Batch, rng: np.random.Generator) -> tuple[Batch, Batch]:
        """Elements (rows) that judge pi', and those that train it."""
        if len(batch) < 2:
            raise ValueError(
                "cpi needs two elements (completions on a language model) or more in a rollout: "
                "some train a policy and the others judge it"
            )
        order = rng.permutation(len(batch))
        judges = min(max(1, round(self.holdout * len(batch))), len(batch) - 1)
        return batch.take(order[:judges]), batch.take(order[judges:])

    def _search(
        self, mixture: MixturePolicy, candidate: Policy, batch: Batch, gain: float
    ) -> float:
        def trial(alpha: float) -> Trial:
            divergence = mixture.with_component(candidate, alpha).kl(batch)
            return Trial(alpha * gain, float(masked_mean(mixture.xp, divergence, batch.mask)))

        # KL(old||new) <= -log(1 - alpha) whatever pi' is, so this one passes where KL is exact;
        # an estimate has no such limit.
        surest = -math.expm1(-self.delta)
        candidates = sorted([surest, *(0.8**k for k in range(100))], reverse=True)
        found = backtrack(trial, candidates, self.delta)
        return 0.0 if found is None else found[0]


def _policy_advantage(
    objective: Objective, policy: Policy, candidate: Policy, batch: Batch
) -> float:
    """Abar = E_pi[(pi'/pi - 1) A]; the -1 adds nothing on average and much less noise."""
    at = [
        objective.value(policy, batch, one.evaluate(batch).log_prob) for one in (candidate, policy)
    ]
    return at[0] - at[1]
