"""One update of any method: rollout -> advantages -> batch -> rule -> critic -> metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from redline.algorithms.core.advantages import Advantage, Estimate
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.arrays import host
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.contracts import Critic, Policy
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.episodes import by_episode, require_whole_episodes
from redline.algorithms.core.masked import standardise
from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties, kl_estimate
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.telemetry import after_update, explained_variance
from redline.algorithms.core.types import Array, Batch, Metrics, Need, Progress, Rollout
from redline.algorithms.core.updates import UpdateRule
from redline.algorithms.core.value import ValueFunction


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
        recompute_advantage: The critic is fitted between the policy's passes over a rollout, one
            pass each, and the advantages are estimated anew with it.

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
    recompute_advantage: bool = False

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


class Seen(NamedTuple):
    """What an update learned from.

    Attributes:
        batch: Without the distributions of pi_old.
        log_prob: Of the policy after the update; None while it has not come to an end.
    """

    batch: Batch
    log_prob: Array | None


class Learner:
    """Owns the policy, the critic and everything that must survive from update to update.

    Attributes:
        seen: What the last update learned from, also of one that failed.
    """

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
        self.value = (
            ValueFunction(critic, algorithm.critic)
            if critic is not None and algorithm.needs_critic
            else None
        )
        self.rng = rng
        self._anchor = self.policy.snapshot() if algorithm.penalties.kl else None
        self.seen: Seen | None = None

    @property
    def critic(self) -> Critic | None:
        """The network behind the values."""
        return None if self.value is None else self.value.critic

    def update(self, rollout: Rollout, progress: Progress) -> Metrics:
        """Learn from one rollout.

        Raises:
            FloatingPointError: A gradient is not finite; the policy is as before that step.
        """
        evaluated = _Evaluated(self, rollout, progress)
        batch = self._batch(rollout, evaluated.advantage())
        light = replace(batch, reference=())
        self.seen = Seen(light, None)
        bounds = self.algorithm.clip.bounds(progress) if self.algorithm.clip else None
        objective = Objective(
            self.algorithm.surrogate,
            self.algorithm.aggregate,
            self.algorithm.penalties,
            bounds,
            self.algorithm.standardise == "minibatch",
            refresh=evaluated.refresh if self.algorithm.recompute_advantage else None,
        )
        self.policy, metrics = self.algorithm.update.update(
            self.state, self.policy, batch, objective, progress, self.rng
        )
        evaluation = self.policy.evaluate(batch)
        self.seen = Seen(light, evaluation.log_prob)
        metrics |= after_update(batch, evaluation, self.policy.kl(batch, evaluation))
        metrics["train/loss"] = -objective.value(
            self.policy, objective.prepare(batch), evaluation.log_prob
        )
        if bounds is not None:
            metrics |= {"train/clip_lo": bounds[0], "train/clip_hi": bounds[1]}
        return metrics | self._anchor_metrics(batch, evaluation.log_prob) | evaluated.finish()

    def _batch(self, rollout: Rollout, advantage: Array) -> Batch:
        fields = (rollout.observation, rollout.action, advantage, rollout.log_prob)
        (observation, action, advantage, behaviour), mask = self.arranged(rollout, fields)
        return self._with_old_policy(observation, action, advantage, behaviour, mask)

    def arranged(
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

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, parameters and the reference policy; RNG excluded (the run owns it)."""
        return {
            "parameters": self.policy.snapshot(),
            "rule": {key: part.state_dict() for key, part in self.state.items()},
            "anchor": self._anchor,
            "value": None if self.value is None else self.value.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.policy.restore(state["parameters"])
        for key, part in self.state.items():
            part.load_state_dict(state["rule"][key])
        self._anchor = state["anchor"]
        if self.value is not None:
            self.value.load_state_dict(state["value"])


class _Evaluated:
    """A rollout's advantages, from a critic that is fitted on the way."""

    def __init__(self, learner: Learner, rollout: Rollout, progress: Progress) -> None:
        self._learner, self._rollout, self._progress = learner, rollout, progress
        self._first = self._estimate = self._judged()
        self._first_values = self._values
        self._losses: list[float] = []
        value, returns = learner.value, self._estimate.returns
        if value is not None and returns is not None:
            value.observe(returns, rollout.mask)

    def _judged(self) -> Estimate:
        value = self._learner.value
        before, after = (None, None) if value is None else value(self._rollout)
        self._values = before
        return self._learner.algorithm.advantage(self._rollout, before, after)

    def advantage(self) -> Array:
        """[B, T], standardised where that is done per batch."""
        whole = self._learner.algorithm.standardise == "batch"
        advantage = self._estimate.advantage
        return standardise(advantage, self._rollout.mask) if whole else advantage

    def refresh(self) -> Array:
        """The advantages after one more pass of the critic, in the shape of the policy's batch."""
        self._fit(1)
        self._estimate = self._judged()
        (advantage,), _ = self._learner.arranged(self._rollout, (self.advantage(),))
        return self._learner.policy.asarray(advantage)

    def _fit(self, epochs: int) -> None:
        learner, returns = self._learner, self._estimate.returns
        if learner.value is None or returns is None or epochs < 1:
            return
        fitted = learner.value.fit(
            self._rollout, returns, self._progress, learner.rng, epochs=epochs
        )
        self._losses += epochs * [fitted["train/value_loss"]]

    def finish(self) -> Metrics:
        """The critic's remaining passes; what all of them did."""
        value, returns = self._first_values, self._first.returns
        if value is None or returns is None:
            return {}
        self._fit(self._learner.algorithm.critic.epochs - len(self._losses))
        return {
            "train/value_loss": float(np.mean(self._losses)),
            "train/explained_variance": explained_variance(
                value=value, returns=returns, mask=self._rollout.mask
            ),
        }
