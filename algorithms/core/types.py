"""Data that flows through one update, the same on both tracks.

Arrays are [B, T] with one bool mask (True = the element counts). A row is one slot's stretch of
the rollout on control, and one completion on a language model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

# numpy, torch or any array-API array: the core never fixes the library.
Array = Any
Namespace = Any
Params = tuple[Array, ...]
Metrics = dict[str, float]


@dataclass(frozen=True)
class Need:
    """What one update asks of a sampler: `steps` per slot, or `groups` of whole episodes.

    Attributes:
        steps: Elements per slot; episodes may be cut at the end of the rollout.
        groups: Number of groups of whole episodes (all start from one state, or one prompt).
        group_size: Episodes in a group; 1 for methods that do not compare within a group.
        mixed: Groups whose outcomes are all equal are replaced by others (dynamic sampling).
        starts: Groups start from one of this many states (or prompts); None: from ever new ones.

    Raises:
        ValueError: Neither or both of `steps` and `groups` are set, or a count is below 1, or
            `starts` is below `groups`.
    """

    steps: int | None = None
    groups: int | None = None
    group_size: int = 1
    mixed: bool = False
    starts: int | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.groups is None):
            raise ValueError(
                "a rollout is either a number of steps or a number of episodes: "
                f"got steps={self.steps}, episodes={self.groups}"
            )
        for name in ("steps", "groups", "group_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.starts is not None and self.starts < (self.groups or 0):
            raise ValueError(
                f"starts must be at least groups, which is {self.groups}, got {self.starts}"
            )

    @property
    def episodes(self) -> int:
        """Whole episodes asked for (0 where a number of steps is asked for)."""
        return (self.groups or 0) * self.group_size


class Bootstrap(NamedTuple):
    """States whose value follows an element without being an element: time limits and cuts.

    Attributes:
        row: [K] row of the element that the state follows.
        column: [K] column of that element.
        observation: [K, ...] the real next observation (never one from after a reset).
    """

    row: Array
    column: Array
    observation: Array


@dataclass(frozen=True)
class Rollout:
    """Experience of one policy, numpy arrays [B, T] unless said otherwise.

    Attributes:
        observation: [B, T, ...] what the policy saw; [B, ...] where rows stay whole.
        action: [B, T, ...] the raw action that was sampled (never the clipped one).
        reward: What the learner is paid.
        mask: True where an element counts.
        terminated: True on the last element of an episode that reached an end state.
        truncated: True on the last element of an episode that was cut by a limit.
        episode_id: Number of the element's episode, -1 where masked.
        group_of_episode: [E] group number of every episode.
        bootstrap: Next states of elements that end without a terminal state.
        whole_episodes: Every episode runs from its start to its end.
        steps: Environment steps (or completions) spent, the x-axis of every curve.
        episode_return: Undiscounted raw returns of the episodes that ended.
        episode_length: Their lengths.
        log_prob: Behaviour log-probability where the sampler knows it (stale rollouts), else None.
        sampled_log_prob: Log-probability as the sampler computed it, only to be compared with the
            learner's; what the ratio is taken to is `log_prob`.
        metrics: What only the sampler can measure, logged beside the update's.
        outcome: [E] what tells a group that is all right or all wrong from a mixed one: whether
            the answer is right, or the raw return. None where the rollout goes by steps.
        start_of_group: What every group starts from, a name that comes back with the start.
        longest: Most elements that an episode may have, where a cap is part of the task.
    """

    observation: Array
    action: Array
    reward: Array
    mask: Array
    terminated: Array
    truncated: Array
    episode_id: Array
    group_of_episode: Array
    bootstrap: Bootstrap | None
    whole_episodes: bool
    steps: int
    episode_return: list[float] = field(default_factory=list)
    episode_length: list[int] = field(default_factory=list)
    log_prob: Array | None = None
    sampled_log_prob: Array | None = None
    metrics: Metrics = field(default_factory=dict)
    outcome: Array | None = None
    start_of_group: list[Hashable] = field(default_factory=list)
    longest: int | None = None


class Denominators(NamedTuple):
    """Counts over one OPTIMISER STEP, so that its micro-batches and ranks add up exactly."""

    elements: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What the policy learns from. Fields share their leading axes ([B, T], or flat [N]).

    Attributes:
        observation: [B, T, ...] or [N, ...]; [B, ...] where rows stay whole.
        action: [B, T, ...] or [N, ...].
        old_log_prob: log pi_old(a|s) of the behaviour policy.
        advantage: A.
        mask: True where an element counts.
        reference: Distribution parameters of pi_old per element (`Evaluation.params`).
        anchor_log_prob: log pi_ref(a|s) of the fixed reference policy, when a penalty needs it.
        entropy: H(pi_old(.|s)), when a shaping or a schedule needs it.
        bounds: (lo, hi) on the ratio of every element, for bounds that differ between them.
    """

    observation: Array
    action: Array
    old_log_prob: Array
    advantage: Array
    mask: Array
    reference: Params = ()
    anchor_log_prob: Array | None = None
    entropy: Array | None = None
    bounds: tuple[Array, ...] = ()

    def __len__(self) -> int:
        return int(self.mask.shape[0])

    def take(self, index: Any) -> Batch:
        """The rows `index` (an integer array or a slice) of every field."""
        anchor, entropy = self.anchor_log_prob, self.entropy
        return Batch(
            self.observation[index],
            self.action[index],
            self.old_log_prob[index],
            self.advantage[index],
            self.mask[index],
            tuple(part[index] for part in self.reference),
            None if anchor is None else anchor[index],
            None if entropy is None else entropy[index],
            tuple(part[index] for part in self.bounds),
        )

    def with_advantage(self, advantage: Array) -> Batch:
        """The same batch with another advantage of the same shape."""
        return replace(self, advantage=advantage)


class Evaluation(NamedTuple):
    """A policy's view of a batch.

    Attributes:
        log_prob: log pi(a|s), shaped like the mask.
        entropy: H(pi(.|s)), shaped like the mask.
        params: Distribution parameters, one entry per element along the leading axes. Kept as
            `Batch.reference` they are the frozen pi_old against which KL is measured. Empty for a
            policy of no such family (a mixture of densities): entropy and KL are then estimates at
            the sampled actions, and are logged under names that say so.
    """

    log_prob: Array
    entropy: Array
    params: Params


class KLTerm(NamedTuple):
    """A penalty on the exact divergence between pi_old and pi.

    Attributes:
        coefficient: Maps the divergence per element to the coefficients that it is taken times.
        reverse: KL(new||old) instead of KL(old||new).
    """

    coefficient: Callable[[Array], Array]
    reverse: bool = False


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `done` of `total` steps were spent before this rollout.

    Attributes:
        done: Steps.
        total: The budget.
        step_scale: What learning rates and trust regions are multiplied by; below 1 where a run
            goes on more carefully than its settings say.
    """

    done: int
    total: int
    step_scale: float = 1.0

    @property
    def fraction(self) -> float:
        """Share of the budget spent, in [0, 1]."""
        return min(1.0, self.done / self.total) if self.total else 0.0
