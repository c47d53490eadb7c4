"""One update of any method: rollout -> advantages -> batch -> rule -> critic -> metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from redline.algorithms.core.advantages import Advantage, bound
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.arrays import host
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.contracts import Critic, Policy
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.distributions import Distribution
from redline.algorithms.core.episodes import by_episode, require_whole_episodes
from redline.algorithms.core.estimation import Evaluated
from redline.algorithms.core.objective import Objective, Watch
from redline.algorithms.core.penalties import Penalties, kl_estimate
from redline.algorithms.core.schedules import ClipState
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.telemetry import (
    after_update,
    bounds_in_force,
    group_spread,
    mean_ratio,
    sampling_gap,
)
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
        shaping: What is added to rewards and advantages.
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
    shaping: Shaping = field(default_factory=Shaping)
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
        if self.clip is not None and self.clip.per_element and self.surrogate.of_sequence:
            raise ValueError(
                f"clip.schedule {self.clip.schedule!r} gives every token bounds of its own, and "
                f"{self.surrogate.name} clips one ratio per sequence"
            )
        if self.clip is not None and self.clip.of_groups and self.need.group_size < 2:
            raise ValueError(
                f"clip.schedule {self.clip.schedule!r} compares rewards within groups, and this "
                "method has none"
            )
        if self.advantage.needs_whole_episodes and self.need.steps is not None:
            raise ValueError(
                "this advantage needs whole episodes; ask for a number of episodes, not of steps"
            )

    @property
    def needs_critic(self) -> bool:
        """A value function must be there."""
        return self.advantage.needs_critic

    def require_space(self, distribution: Distribution) -> None:
        """Refuse an action space on which the method means nothing.

        Raises:
            ValueError: With the reason.
        """
        if self.clip is not None and self.clip.per_element and distribution.most_entropy is None:
            raise ValueError(
                f"clip.schedule {self.clip.schedule!r} reads the probability of an action, and a "
                "Box action has a density, which is no probability and may be above 1"
            )

    @property
    def needs_entropy(self) -> bool:
        """Some part reads the entropy of pi_old at every element."""
        return self.shaping.entropy > 0.0 or (self.clip is not None and self.clip.of_entropy)

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
        watch: Looks on; None: nothing does.
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
        self.watch: Watch | None = None
        self.advantage = bound(algorithm.advantage)
        self.clip_state = ClipState(algorithm.clip.window if algorithm.clip else 1)
        algorithm.require_space(self.policy.distribution)

    @property
    def critic(self) -> Critic | None:
        """The network behind the values."""
        return None if self.value is None else self.value.critic

    def update(self, rollout: Rollout, progress: Progress) -> Metrics:
        """Learn from one rollout.

        Raises:
            FloatingPointError: A gradient is not finite; the policy is as before that step.
        """
        rollout = self.algorithm.shaping.rewards(rollout)
        evaluated = Evaluated(self, rollout, progress)
        batch, start = self._batch(rollout, evaluated.advantage())
        clip = self.algorithm.clip
        bounds = None if clip is None else clip.bounds(progress, self.clip_state)
        if clip is not None and bounds is not None and clip.per_element:
            batch = self._with_bounds(batch, clip, bounds)
        if self.watch is not None:
            self.watch.begin(batch)
        light = replace(batch, reference=())
        self.seen = Seen(light, None)
        objective = Objective(
            self.algorithm.surrogate,
            self.algorithm.aggregate,
            self.algorithm.penalties,
            bounds,
            self.algorithm.standardise == "minibatch",
            shaping=self.algorithm.shaping,
            watch=self.watch,
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
        if self.watch is not None:
            metrics |= self.watch.metrics(self.policy, batch, objective)
        if bounds is not None:
            metrics |= bounds_in_force(batch, bounds)
            self._observe(batch, evaluation.log_prob, rollout)
        return (
            rollout.metrics
            | metrics
            | start
            | self._anchor_metrics(batch, evaluation.log_prob)
            | evaluated.finish()
        )

    def _batch(self, rollout: Rollout, advantage: Array) -> tuple[Batch, Metrics]:
        """What the policy learns from, and what there is to say before it does."""
        known = (rollout.log_prob, rollout.sampled_log_prob)
        fields = (rollout.observation, rollout.action, advantage, *known)
        (observation, action, advantage, behaviour, sampled), mask = self.arranged(rollout, fields)
        batch, log_prob = self._with_old_policy(observation, action, advantage, behaviour, mask)
        reported = sampled if behaviour is None else behaviour
        start = {} if reported is None else sampling_gap(log_prob, reported, mask)
        if self.algorithm.need.group_size > 1:
            start |= group_spread(rollout)
        return batch, start

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
    ) -> tuple[Batch, Array]:
        """The batch, and the log-probabilities of the policy that learns, before it does."""
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
        batch = Batch(
            batch.observation,
            batch.action,
            old_log_prob,
            batch.advantage,
            batch.mask,
            evaluation.params,
            anchor,
            evaluation.entropy if self.algorithm.needs_entropy else None,
        )
        return batch, evaluation.log_prob

    def _with_bounds(self, batch: Batch, clip: Clip, bounds: tuple[float, float]) -> Batch:
        most = self.policy.distribution.most_entropy or 1.0
        return replace(batch, bounds=clip.element_bounds(self.policy.xp, batch, bounds, most))

    def _observe(self, batch: Batch, log_prob: Array, rollout: Rollout) -> None:
        clip, mask = self.algorithm.clip, host(batch.mask)
        log_ratio = host(log_prob - batch.old_log_prob)[mask]
        self.clip_state.observe(log_ratio, rollout, clip is not None and clip.of_groups)

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
        drift = host(batch.old_log_prob - batch.anchor_log_prob)[mask]
        return {
            "train/kl_reference": float(host(estimate)[mask].mean()),
            "train/ratio_reference": mean_ratio(drift),
        }

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, parameters, reference policy and memories; RNG excluded (the run owns it)."""
        return {
            "advantage": self.advantage.state_dict(),
            "clip": self.clip_state.state_dict(),
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
        self.advantage.load_state_dict(state["advantage"])
        self.clip_state.load_state_dict(state["clip"])
        if self.value is not None:
            self.value.load_state_dict(state["value"])
