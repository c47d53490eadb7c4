"""One update of any method: rollout -> advantages -> batch -> rule -> critic -> metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from redline.algorithms.core.advantages import bound
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.arrays import host
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.contracts import Critic, Policy
from redline.algorithms.core.episodes import by_episode, require_whole_episodes
from redline.algorithms.core.estimation import Evaluated
from redline.algorithms.core.objective import Objective, Watch
from redline.algorithms.core.penalties import kl_estimate
from redline.algorithms.core.schedules import ClipState
from redline.algorithms.core.telemetry import (
    after_update,
    bounds_in_force,
    group_spread,
    mean_ratio,
    sampling_gap,
)
from redline.algorithms.core.types import Array, Batch, Metrics, Progress, Rollout
from redline.algorithms.core.value import ValueFunction

# Rows (of a policy that reads whole rows) that are looked at after an update, unless its rule
# judges all of them itself, and before it to compare sampling with scoring: a look costs a forward
# pass, and ratios of so many rows tell.
_LOOKED_AT = 24
_COMPARED = 8


class Seen(NamedTuple):
    """What an update learned from.

    Attributes:
        batch: Without the distributions of pi_old.
        rows: Those that were looked at after the update, as a slice of the batch.
        log_prob: Of the policy after the update, of these rows; None while it has not come to an
            end.
    """

    batch: Batch
    rows: slice
    log_prob: Array | None

    @property
    def looked_at(self) -> Batch:
        """The rows of the batch that `log_prob` is of."""
        return self.batch.take(self.rows)


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
        every = self.policy.per_element or self.algorithm.update.judges_all
        rows = slice(None) if every else _spread(batch, _LOOKED_AT)
        light = replace(batch, reference=())
        self.seen = Seen(light, rows, None)
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
        part = batch.take(rows)
        evaluation = self.policy.evaluate(part)
        self.seen = Seen(light, rows, evaluation.log_prob)
        divergence = self.policy.kl(part, evaluation)
        metrics |= after_update(part, evaluation, divergence, None if every else light)
        metrics["train/loss"] = -objective.value_from(
            self.policy, objective.prepare(batch), rows, evaluation.log_prob
        )
        if self.watch is not None:
            metrics |= self.watch.metrics(self.policy, batch, objective)
        if bounds is not None:
            metrics |= bounds_in_force(batch, bounds)
            self._observe(part, evaluation.log_prob, rollout)
        return (
            rollout.metrics
            | metrics
            | start
            | self._anchor_metrics(part, evaluation.log_prob)
            | evaluated.finish()
        )

    def _batch(self, rollout: Rollout, advantage: Array) -> tuple[Batch, Metrics]:
        """What the policy learns from, and what there is to say before it does."""
        known = (rollout.log_prob, rollout.sampled_log_prob)
        fields = (rollout.observation, rollout.action, advantage, *known)
        (observation, action, advantage, behaviour, sampled), mask = self.arranged(rollout, fields)
        batch = self._with_old_policy(observation, action, advantage, behaviour, mask)
        reported = sampled if behaviour is None else behaviour
        start = {} if reported is None else self._sampling_gap(batch, reported)
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
    ) -> Batch:
        """The batch with what the policy that learns says of it, before it does."""
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
            evaluation.entropy if self.algorithm.needs_entropy else None,
        )

    def _sampling_gap(self, batch: Batch, reported: Array) -> Metrics:
        # Read anew: a policy may have kept from sampling what the batch's numbers are made of.
        rows = slice(None) if self.policy.per_element else _spread(batch, _COMPARED)
        part = batch.take(rows)
        log_prob = self.policy.evaluate(part).log_prob
        return sampling_gap(log_prob, reported[rows], part.mask)

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


def _spread(batch: Batch, count: int) -> slice:
    """At least so many rows, or all, evenly spread."""
    return slice(None, None, max(1, len(batch) // count))
