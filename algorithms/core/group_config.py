"""Settings that the methods without a critic share: those that compare the episodes of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redline.algorithms.core.advantages import Advantage, GroupRelative
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.penalties import Estimator, Penalties
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.token_surrogates import RatioLimits
from redline.algorithms.core.types import Need
from redline.algorithms.core.updates import FirstOrder, UpdateRule


@dataclass(frozen=True)
class GroupConfig:
    """Settings of the methods that compare the episodes of a group.

    Attributes:
        groups: Groups per rollout (initial states on control, prompts on a language model).
        group_size: Episodes per group.
        mixed: Replace groups whose outcomes are all equal by others (dynamic sampling).
        starts: Draw groups from this many initial states (or prompts) of the run, so that they
            come back; None: ever new ones.
        gamma: Discount inside the return.
        std: Divide by the group's standard deviation.
        grouping: Compare episodes with the same "start", or the whole "batch".
        per: Compare returns per "episode", or returns-to-go per "timestep".
        aggregate: Coefficient of an element: "token_mean", "seq_mean" (the GRPO paper's) or
            "fixed_length" (Dr. GRPO's, over `length`).
        length: Elements of "fixed_length".
        lr: Learning rate.
        lr_decay: Let it fall linearly to 0 over the budget.
        max_grad_norm: Clip of the gradient norm, None for no clip.
        entropy_coef: Entropy bonus.
        kl_coef: Penalty on the KL to the policy at the start of the run.
        kl_estimator: How that KL is estimated.
        shaping: Changes of rewards and advantages.

    Raises:
        ValueError: A group of fewer than two, or a length below 1.
    """

    groups: int = 2
    group_size: int = 8
    mixed: bool = False
    starts: int | None = None
    gamma: float = 1.0
    std: bool = True
    grouping: Literal["start", "batch"] = "start"
    per: Literal["episode", "timestep"] = "episode"
    aggregate: Literal["token_mean", "seq_mean", "fixed_length"] = "token_mean"
    length: int = 500
    lr: float = 2e-3
    lr_decay: bool = True
    max_grad_norm: float | None = 0.5
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_estimator: Estimator = "k3"
    shaping: Shaping = field(default_factory=Shaping)

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise ValueError(
                f"group_size must be at least 2 (an episode is judged against the others of its "
                f"group), got {self.group_size}"
            )

    def advantage(self) -> Advantage:
        """How an episode is judged."""
        return GroupRelative(self.gamma, self.std, self.grouping, self.per)

    def coefficients(self) -> Aggregate:
        """How elements are averaged."""
        return Aggregate(self.aggregate, self.length)

    def algorithm(
        self, *, surrogate: Surrogate, update: UpdateRule, clip: Clip | None = None
    ) -> Algorithm:
        """Group-relative advantages and the given parts."""
        return Algorithm(
            need=Need(
                groups=self.groups,
                group_size=self.group_size,
                mixed=self.mixed,
                starts=self.starts,
            ),
            advantage=self.advantage(),
            surrogate=surrogate,
            update=update,
            clip=clip,
            aggregate=self.coefficients(),
            penalties=Penalties(self.entropy_coef, self.kl_coef, self.kl_estimator),
            shaping=self.shaping,
        )


@dataclass(frozen=True)
class RatioGroupConfig(GroupConfig):
    """Settings of those that pass over a rollout several times, and so have a ratio.

    Attributes:
        epochs: Passes over a rollout.
        minibatch_size: Elements (completions on a language model; episodes where rows stay whole)
            per optimiser step; None: all.
        target_kl: End the passes when approx_kl exceeds 1.5 times this; None: never.
        ratio: Limits on the ratio beside the clip.
    """

    epochs: int = 10
    minibatch_size: int | None = 256
    target_kl: float | None = None
    ratio: RatioLimits = field(default_factory=RatioLimits)

    def of(self, surrogate: Surrogate, clip: Clip | None = None) -> Algorithm:
        """The method with this surrogate."""
        steps = (self.epochs, self.minibatch_size, self.max_grad_norm, self.target_kl)
        return self.algorithm(
            surrogate=self.ratio.of(surrogate),
            clip=clip,
            update=FirstOrder(self.lr, self.lr_decay, *steps),
        )


@dataclass(frozen=True)
class ClippedGroupConfig(RatioGroupConfig):
    """Settings of those that clip the ratio.

    Attributes:
        clip: Bounds on the ratio.
    """

    clip: Clip = field(default_factory=Clip)
