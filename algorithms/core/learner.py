"""One update of any method: rollout -> advantages -> batch -> rule -> critic -> metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from redline.algorithms.core.advantages import Advantage, Estimate
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.arrays import host
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.episodes import by_episode, require_whole_episodes
from redline.algorithms.core.masked import standardise
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties, kl_estimate
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.telemetry import after_update, explained_variance
from redline.algorithms.core.types import (
    Array,
    Batch,
    Critic,
    Metrics,
    Need,
    Policy,
    Progress,
    Rollout,
)
from redline.algorithms.core.updates import UpdateRule


@dataclass(frozen=True)
class Algorithm:
    """A method: five parts, and what it asks of the sampler.

    Attributes:
        need: What one rollout holds.
        advantage: Rollout -> advantage.
        surrogate: Weights on grad log pi.
        update: The rule that moves the policy.
        aggregate: Coefficient per element.
        clip: Bounds on the ratio; None for methods without a clip.
        penalties: Entropy bonus and KL to the policy at the start of the run.
        critic: How V is fitted, where the advantage needs it.
        standardise: Advantages to mean 0 and std 1 per "batch", per "minibatch" (optimiser step,
            as SB3 does), or "none".

    Raises:
        ValueError: Parts that do not fit together.
    """

    need: Need
    advantage: Advantage
    surrogate: Surrogate
    update: UpdateRule
    aggregate: Aggregate = field(default_factory=Aggregate)
    clip: Clip | None = None
    penalties: Penalties = field(default_factory=Penalties)
    critic: CriticFit = field(default_factory=CriticFit)
    standardise: Literal["none", "batch", "minibatch"] = "none"

    def __post_init__(self) -> None:
        if self.surrogate.clips and self.clip is None:
            raise ValueError(f"the surrogate {self.surrogate.name} needs clip bounds")
        if self.update.needs_value and not self.surrogate.meaningful_value:
            raise ValueError(
                f"a line search compares objective values, and {self.surrogate.name} has a right "
                "gradient but no meaningful value; use the ratio surrogate"
            )
        if self.advantage.needs_whole_episodes and self.need.steps is not None:
            raise ValueError(
                "this advantage needs whole episodes; ask for a number of episodes, not of steps"
            )

    @property
    def needs_critic(self) -> bool:
        """A value function must be there."""
        return self.advantage.needs_critic

    @property
    def level(self) -> Literal["token", "sequence"]:
        """Unit of the method; "sequence" when rows must be whole episodes."""
        parts = (self.surrogate.level, self.aggregate.level)
        return "sequence" if "sequence" in parts else "token"


class Learner:
    """Owns the policy, the critic and everything that must survive from update to update."""

    def __init__(
        self,
        algorithm: Algorithm,
        policy: Policy,
        critic: Critic | None,
        rng: np.random.Generator,
    ) -> None:
        if algorithm.needs_critic and critic is None:
            raise ValueError("this method needs a critic")
        self.algorithm = algorithm
        self.policy, self.state = algorithm.update.bind(policy)
        self.critic = critic if algorithm.needs_critic else None
        self.rng = rng
        self.critic_optimizer = (
            self.critic.optimizer(algorithm.critic.adam_eps) if self.critic is not None else None
        )
        self._anchor = self.policy.snapshot() if algorithm.penalties.kl else None

    def update(self, rollout: Rollout, progress: Progress) -> Metrics:
        """Learn from one rollout.

        Raises:
            FloatingPointError: A gradient is not finite; the policy is as before that step.
        """
        value, next_value = self._values(rollout)
        estimate = self.algorithm.advantage(rollout, value, next_value)
        batch = self._batch(rollout, estimate)
        bounds = self.algorithm.clip.bounds(progress) if self.algorithm.clip else None
        objective = Objective(
            self.algorithm.surrogate,
            self.algorithm.aggregate,
            self.algorithm.penalties,
            bounds,
            self.algorithm.standardise == "minibatch",
        )
        self.policy, metrics = self.algorithm.update.update(
            self.state, self.policy, batch, objective, progress, self.rng
        )
        evaluation = self.policy.evaluate(batch)
        metrics |= after_update(batch, evaluation, self.policy.kl(batch, evaluation))
        metrics["train/loss"] = -objective.value(
            self.policy, objective.prepare(batch), evaluation.log_prob
        )
        if bounds is not None:
            metrics |= {"train/clip_lo": bounds[0], "train/clip_hi": bounds[1]}
        metrics |= self._anchor_metrics(batch, evaluation.log_prob)
        return metrics | self._fit_critic(rollout, estimate, value, progress)

    def _values(self, rollout: Rollout) -> tuple[Array | None, Array | None]:
        """V(s_t) and V(s_{t+1}), the latter never from after a reset."""
        if self.critic is None:
            return None, None
        value = np.where(rollout.mask, self.critic.values(rollout.observation, rollout.mask), 0.0)
        next_value = np.zeros_like(value)
        next_value[:, :-1] = value[:, 1:]
        next_value[rollout.terminated | rollout.truncated] = 0.0
        if rollout.bootstrap is not None and len(rollout.bootstrap.row):
            row, column, observation = rollout.bootstrap
            every = np.ones(len(row), dtype=bool)
            next_value[row, column] = self.critic.values(observation, every)
        return value, next_value

    def _batch(self, rollout: Rollout, estimate: Estimate) -> Batch:
        advantage = estimate.advantage
        if self.algorithm.standardise == "batch":
            advantage = standardise(advantage, rollout.mask)
        fields = (rollout.observation, rollout.action, advantage, rollout.log_prob)
        (observation, action, advantage, behaviour), mask = self._arranged(rollout, fields)
        return self._with_old_policy(observation, action, advantage, behaviour, mask)

    def _arranged(
        self, rollout: Rollout, fields: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], Array]:
        """Fields and mask in the method's unit: rows that stay whole, or single elements [N]."""
        mask = rollout.mask
        if not self.policy.per_element:
            if self.algorithm.level == "sequence":
                require_whole_episodes(rollout)
            return fields, mask
        if self.algorithm.level == "sequence":
            return by_episode(rollout, fields)
        if mask.all():
            flat = tuple(None if x is None else x.reshape(-1, *x.shape[2:]) for x in fields)
            return flat, mask.reshape(-1)
        valid: tuple[Array, ...] = tuple(None if x is None else x[mask] for x in fields)
        return valid, np.ones(len(valid[2]), dtype=bool)

    def _with_old_policy(
        self,
        observation: Array,
        action: Array,
        advantage: Array,
        behaviour: Array | None,
        mask: Array,
    ) -> Batch:
        policy = self.policy
        placeholder = policy.asarray(advantage)
        batch = Batch(
            policy.asarray(observation),
            policy.asarray(action),
            placeholder,
            placeholder,
            policy.asarray(mask),
        )
        evaluation = policy.evaluate(batch)
        old_log_prob = evaluation.log_prob if behaviour is None else policy.asarray(behaviour)
        anchor = None
        if self._anchor is not None:
            current = policy.snapshot()
            policy.restore(self._anchor)
            anchor = policy.evaluate(batch).log_prob
            policy.restore(current)
        return Batch(
            batch.observation,
            batch.action,
            old_log_prob,
            batch.advantage,
            batch.mask,
            evaluation.params,
            anchor,
        )

    def _anchor_metrics(self, batch: Batch, log_prob: Array) -> Metrics:
        if batch.anchor_log_prob is None:
            return {}
        estimate = kl_estimate(
            self.policy.xp,
            self.algorithm.penalties.estimator,
            log_prob=log_prob,
            anchor_log_prob=batch.anchor_log_prob,
        )
        mask = host(batch.mask)
        return {"train/kl_reference": float(host(estimate)[mask].mean())}

    def _fit_critic(
        self, rollout: Rollout, estimate: Estimate, value: Array | None, progress: Progress
    ) -> Metrics:
        if self.critic is None or self.critic_optimizer is None or estimate.returns is None:
            return {}
        metrics = self.algorithm.critic.fit(
            self.critic,
            self.critic_optimizer,
            observation=rollout.observation,
            returns=estimate.returns,
            mask=rollout.mask,
            progress=progress,
            rng=self.rng,
        )
        explained = explained_variance(value=value, returns=estimate.returns, mask=rollout.mask)
        return metrics | {"train/explained_variance": explained}

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, parameters and the reference policy; RNG excluded (the run owns it)."""
        return {
            "parameters": self.policy.snapshot(),
            "rule": {key: part.state_dict() for key, part in self.state.items()},
            "anchor": self._anchor,
            "critic": None if self.critic is None else self.critic.snapshot(),
            "critic_optimizer": None
            if self.critic_optimizer is None
            else self.critic_optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.policy.restore(state["parameters"])
        for key, part in self.state.items():
            part.load_state_dict(state["rule"][key])
        self._anchor = state["anchor"]
        if self.critic is not None and self.critic_optimizer is not None:
            self.critic.restore(state["critic"])
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])
