"""Data that flows through one update, the same on both tracks.

Arrays are [B, T] with one bool mask (True = the element counts). A row is one slot's stretch of
the rollout on control, and one completion on a language model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    import numpy as np

    from redline.algorithms.core.distributions import Distribution

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

    Raises:
        ValueError: Neither or both of `steps` and `groups` are set, or a count is below 1.
    """

    steps: int | None = None
    groups: int | None = None
    group_size: int = 1

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
        metrics: What only the sampler can measure, logged beside the update's.
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
    metrics: Metrics = field(default_factory=dict)


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
    """

    observation: Array
    action: Array
    old_log_prob: Array
    advantage: Array
    mask: Array
    reference: Params = ()
    anchor_log_prob: Array | None = None

    def __len__(self) -> int:
        return int(self.mask.shape[0])

    def take(self, index: Any) -> Batch:
        """The rows `index` (an integer array or a slice) of every field."""
        anchor = self.anchor_log_prob
        return Batch(
            self.observation[index],
            self.action[index],
            self.old_log_prob[index],
            self.advantage[index],
            self.mask[index],
            tuple(part[index] for part in self.reference),
            None if anchor is None else anchor[index],
        )

    def with_advantage(self, advantage: Array) -> Batch:
        """The same batch with another advantage of the same shape."""
        return Batch(
            self.observation,
            self.action,
            self.old_log_prob,
            advantage,
            self.mask,
            self.reference,
            self.anchor_log_prob,
        )


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
    """Where a run stands: `done` of `total` steps were spent before this rollout."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        """Share of the budget spent, in [0, 1]."""
        return min(1.0, self.done / self.total) if self.total else 0.0


class Optimizer(Protocol):
    """Ascends along the policy's (or critic's) flat gradient; created once per run."""

    def step(self, lr: float) -> None:
        """One step with learning rate `lr` along the gradient buffer."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


class Policy(Protocol):
    """The contract between the core and any policy (numpy MLP, torch module, language model).

    `parameters` and `gradient_buffer` are flat; the gradient is that of the objective, so
    adding a multiple of it to the parameters is an improvement.

    `per_element`: an observation belongs to one element, so a rollout may be flattened, shuffled
    and rearranged (control); otherwise a row is one observation and stays whole (a completion,
    whose tokens are all in its row), and a batch is always [B, T].
    """

    xp: Namespace
    per_element: bool

    @property
    def parameters(self) -> Array:
        """[P], live storage."""

    @property
    def gradient_buffer(self) -> Array:
        """[P], live storage."""

    @property
    def distribution(self) -> Distribution:
        """The family that actions are drawn from."""

    def asarray(self, value: Array) -> Array:
        """A numpy array as this policy's kind of array, on its device."""

    def act(self, observation: Array, rng: np.random.Generator | None) -> Array:
        """One numpy action per row of `observation`; the most probable one when `rng` is None."""

    def predict(self, observation: Array) -> Params:
        """Numpy parameters of the distribution that `act` draws from, one entry per row."""

    def copy(self) -> Self:
        """An independent policy with the same numbers."""

    def evaluate(self, batch: Batch) -> Evaluation:
        """Log-probability, entropy and parameters, without a gradient."""

    def gradient(
        self,
        batch: Batch,
        weigh: Callable[[Array], Array],
        entropy: Array | None = None,
        kl: KLTerm | None = None,
    ) -> None:
        """Fill `gradient_buffer` with the gradient of the objective; one forward, one backward.

        gradient = sum weigh(log_prob) * grad log pi + sum entropy * grad H
                   - sum kl.coefficient(KL) * grad KL

        Args:
            batch: Elements; `batch.reference` is read when `kl` is given.
            weigh: log_prob [B, T] -> coefficient * weight [B, T] (0 where masked).
            entropy: Coefficient of the entropy per element [B, T], None for no bonus.
            kl: Penalty on the exact divergence from `batch.reference`.
        """

    def kl(
        self, batch: Batch, evaluation: Evaluation | None = None, reverse: bool = False
    ) -> Array:
        """KL(old||new) per element, in nats, against `batch.reference`.

        Args:
            batch: Elements.
            evaluation: The current policy on `batch`, when it is at hand already.
            reverse: KL(new||old) instead.
        """

    def fisher_product(self, batch: Batch) -> Callable[[Array], Array]:
        """v -> F v with F the mean Gauss-Newton Fisher matrix over the valid elements."""

    def optimizer(self, eps: float) -> Optimizer:
        """An Adam optimiser on the flat buffers."""

    def snapshot(self) -> Array:
        """A copy of the parameters."""

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit."""


class Critic(Protocol):
    """V(s) with its own parameters and optimiser: fitting it never moves the policy.

    `per_element` as in `Policy`.
    """

    per_element: bool
    parameters: Array
    gradient_buffer: Array

    def asarray(self, value: Array) -> Array:
        """A numpy array as this critic's kind of array, on its device."""

    def values(self, observation: Array, mask: Array) -> Array:
        """V per element, numpy, shaped like `mask` (what it holds where False is undefined)."""

    def gradient(self, observation: Array, returns: Array, mask: Array) -> float:
        """Gradient of -mean (V - returns)^2 into `gradient_buffer`; gives the mean."""

    def optimizer(self, eps: float) -> Optimizer:
        """An Adam optimiser on the flat buffers."""

    def snapshot(self) -> Array:
        """A copy of the parameters."""

    def restore(self, snapshot: Array) -> None:
        """Put a snapshot back, bit for bit."""
