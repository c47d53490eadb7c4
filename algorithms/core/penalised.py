"""Steps held back by a penalty on the divergence from pi_old: PPO's adaptive one, and CPI's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from redline.algorithms.core.arrays import host
from redline.algorithms.core.contracts import Policy
from redline.algorithms.core.curvature import Trial, backtrack
from redline.algorithms.core.masked import masked_mean
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import OldPolicyPenalty
from redline.algorithms.core.types import Array, Batch, Evaluation, Metrics, Params, Progress
from redline.algorithms.core.updates import FirstOrder

# Adam does not feel the size of a gradient: a target that its learning rate cannot meet doubles
# beta without end, until float32 overflows; and a policy at rest halves it to 0, for ever.
_BETA = (1e-6, 1e6)


class Coefficient:
    """A number that a rule carries from update to update."""

    def __init__(self, value: float) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        """The number."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.value = float(state["value"])


@dataclass(frozen=True)
class AdaptiveKL:
    """PPO's other variant: max E[r A] - beta KL(old||new) (arXiv:1707.06347 Eq. 8).

    After an update with mean KL d: beta is halved when d < target / 1.5, doubled when
    d > 1.5 target. It quickly finds its own value, within [1e-6, 1e6].

    Attributes:
        steps: Optimiser steps on the penalised objective.
        target: KL that an update should have, in nats.
        initial: beta of the first update.

    Raises:
        ValueError: The target or the first beta is not positive.
    """

    steps: FirstOrder
    target: float = 0.01
    initial: float = 1.0
    needs_value = False
    judges_all = True
    needs_whole = ""

    def __post_init__(self) -> None:
        for name, value in (("kl_target", self.target), ("kl_coef_init", self.initial)):
            if not value > 0.0:
                raise ValueError(f"{name} must be positive, got {value:g}")

    def bind(self, policy: Policy) -> tuple[Policy, dict[str, Any]]:
        policy, state = self.steps.bind(policy)
        return policy, state | {"kl_coef": Coefficient(self.initial)}

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        beta = state["kl_coef"]
        penalised = dataclasses.replace(objective, old_policy=OldPolicyPenalty(beta.value))
        policy, metrics = self.steps.update(state, policy, batch, penalised, progress, rng)
        metrics["train/kl_coef"] = beta.value
        beta.value = self.adapted(
            beta.value, float(masked_mean(policy.xp, policy.kl(batch), batch.mask))
        )
        return policy, metrics

    def adapted(self, beta: float, divergence: float) -> float:
        """beta for the next update, after one whose mean KL was `divergence`."""
        lowest, highest = _BETA
        if divergence < self.target / 1.5:
            return max(lowest, beta / 2.0)
        # Written so that nan tightens.
        return beta if divergence <= 1.5 * self.target else min(highest, beta * 2.0)


def penalty_coefficient(eps: float, gamma: float, horizon: int | None = None) -> float:
    """C with eta(new) >= eta(old) + [E[r A] - C max KL] / (1 - gamma), E a mean over steps.

    C = 4 eps gamma / (1 - gamma), eps = max |A| (arXiv:1502.05477 Eq. 9, there for the
    unnormalised sum over steps, hence with (1 - gamma)^2). Without a discount and with at most T
    steps: C = 2 eps (T - 1).

    Args:
        eps: In the units of A that the surrogate sees.
        gamma: Discount in [0, 1].
        horizon: T; needed at gamma = 1.

    Raises:
        ValueError: gamma is 1 and no horizon is given.
    """
    if gamma < 1.0:
        return 4.0 * eps * gamma / (1.0 - gamma)
    return 2.0 * eps * (require_horizon(gamma, horizon) - 1)


def require_horizon(gamma: float, horizon: int | None) -> int:
    """The horizon T of a method whose bound is infinite at gamma = 1 without one.

    Raises:
        ValueError: None is given, or it is below 1.
    """
    if horizon is None:
        raise ValueError(
            f"the bound of conservative policy iteration is infinite at gamma {gamma:g}; give "
            "--horizon, the largest number of steps of an episode"
        )
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    return horizon


def has_bound(gamma: float, horizon: int | None) -> bool:
    """The bounds of conservative policy iteration are finite."""
    return gamma < 1.0 or horizon is not None


def largest_advantage(batch: Batch) -> float:
    """max |A| over the valid elements: the sampled stand-in for max_s |E_pi'[A]|."""
    return float(abs(host(batch.advantage)[host(batch.mask)]).max())


def sensitive_kl(
    policy: Policy, batch: Batch, evaluation: Evaluation, reverse: bool = False
) -> Array:
    """KL(old||new) per element, or KL(new||old), in float64 and of renormalised probabilities.

    In float32 the log-probabilities sum to 1 only within 1e-7, which is then the noise of the
    divergence; times a C of 1e3 it is larger than any gain that the penalty allows.
    """
    xp, dist = policy.xp, policy.distribution

    def renormalised(params: Params) -> Params:
        # Log-probabilities are network outputs of the same distribution.
        return dist.params(xp, tuple(xp.astype(part, xp.float64) for part in params))

    old, new = renormalised(batch.reference), renormalised(evaluation.params)
    return dist.kl(xp, new, old) if reverse else dist.kl(xp, old, new)


@dataclass(frozen=True)
class KLPenalty:
    """Conservative policy iteration as a penalty: max E[r A] - C KL(old||new).

    The step of the optimiser is shortened by halves until the penalised objective of the whole
    batch has risen, so it never falls; when no fraction passes, the policy stays as it is.

    Attributes:
        steps: Optimiser steps on the penalised objective.
        gamma: Discount, for the theoretical C.
        horizon: Longest episode, for the theoretical C at gamma = 1.
        coefficient: C; None for the theoretical one (`penalty_coefficient`).
        over: "max" over the elements (the bound), or their "mean" (a heuristic).
        reverse: KL(new||old), as some texts have it.
        max_halvings: Candidates after the full step.

    Raises:
        ValueError: The theoretical C at gamma 1 without a horizon, or C is negative.
    """

    steps: FirstOrder
    gamma: float
    horizon: int | None = None
    coefficient: float | None = None
    over: Literal["mean", "max"] = "max"
    reverse: bool = False
    max_halvings: int = 15
    needs_value = True
    judges_all = True
    needs_whole = ""

    def __post_init__(self) -> None:
        if self.gamma == 1.0 and (self.coefficient is None or self.horizon is not None):
            require_horizon(self.gamma, self.horizon)
        if self.coefficient is not None and not self.coefficient >= 0.0:
            raise ValueError(f"penalty must be at least 0, got {self.coefficient:g}")

    def bind(self, policy: Policy) -> tuple[Policy, dict[str, Any]]:
        return self.steps.bind(policy)

    def update(
        self,
        state: dict[str, Any],
        policy: Policy,
        batch: Batch,
        objective: Objective,
        progress: Progress,
        rng: np.random.Generator,
    ) -> tuple[Policy, Metrics]:
        theoretical = {}
        in_force = self.coefficient
        if has_bound(self.gamma, self.horizon):
            eps = largest_advantage(batch)
            bound = penalty_coefficient(eps, self.gamma, self.horizon)
            theoretical = {"train/kl_coef_theoretical": bound}
            in_force = bound if in_force is None else in_force
        assert in_force is not None
        penalty = OldPolicyPenalty(in_force, self.over, self.reverse)
        penalised = dataclasses.replace(objective, old_policy=penalty)
        start = policy.snapshot()
        # Now, not after the steps: a language model still remembers what it said of the batch.
        before = _value(policy, batch, penalised)
        _, metrics = self.steps.update(state, policy, batch, penalised, progress, rng)
        gain = self._shorten(policy, batch, penalised, start, before)
        return policy, metrics | theoretical | {
            "train/kl_coef": in_force,
            "train/step_accepted": float(gain > 0.0),
            "train/penalised_gain": gain,
        }

    def _shorten(
        self, policy: Policy, batch: Batch, objective: Objective, start: Array, before: float
    ) -> float:
        """Leave the policy at the accepted fraction of its step; the penalised gain there."""
        step = policy.snapshot() - start

        def gain(fraction: float) -> float:
            policy.restore(start + fraction * step)
            return _value(policy, batch, objective) - before

        found = backtrack(
            lambda fraction: Trial(gain(fraction), 0.0),
            [0.5**k for k in range(self.max_halvings + 1)],
            max_kl=0.0,
        )
        if found is None:
            policy.restore(start)
            return 0.0
        return found[1].gain


def _value(policy: Policy, batch: Batch, objective: Objective) -> float:
    """The objective less its penalty, on the whole batch."""
    penalty = objective.old_policy
    assert penalty is not None
    evaluation = policy.evaluate(batch)
    divergence = sensitive_kl(policy, batch, evaluation, penalty.reverse)
    return objective.value(policy, batch, evaluation.log_prob) - penalty.value(
        policy.xp, divergence=divergence, mask=batch.mask
    )
