"""GRPO: group-relative advantages, no critic, clipped ratio."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redline.algorithms.core.advantages import GroupRelative
from redline.algorithms.core.aggregation import Aggregate
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.learner import Algorithm
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.core.types import Need
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.registry import register


@dataclass(frozen=True)
class GroupConfig:
    """Settings of every method that compares the episodes of a group.

    Attributes:
        groups: Groups per rollout (initial states on control, prompts on a language model).
        group_size: Episodes per group.
        gamma: Discount inside the return.
        std: Divide by the group's standard deviation.
        grouping: Compare episodes with the same "start", or the whole "batch".
        per: Compare returns per "episode", or returns-to-go per "timestep".
        aggregate: Coefficient of an element: "token_mean" or "seq_mean" (the paper's).
        lr: Learning rate.
        lr_decay: Let it fall linearly to 0 over the budget.
        epochs: Passes over a rollout.
        minibatch_size: Elements (completions on a language model, episodes for "seq_mean") per
            optimiser step; None: all.
        target_kl: End the passes when approx_kl exceeds 1.5 times this; None: never.
        max_grad_norm: Clip of the gradient norm, None for no clip.
        entropy_coef: Entropy bonus.
        kl_coef: Penalty on the KL to the policy at the start of the run.
        kl_estimator: How that KL is estimated.

    Raises:
        ValueError: A group of fewer than two.
    """

    groups: int = 2
    group_size: int = 8
    gamma: float = 1.0
    std: bool = True
    grouping: Literal["start", "batch"] = "start"
    per: Literal["episode", "timestep"] = "episode"
    aggregate: Literal["token_mean", "seq_mean"] = "token_mean"
    lr: float = 2e-3
    lr_decay: bool = True
    epochs: int = 10
    minibatch_size: int | None = 256
    target_kl: float | None = None
    max_grad_norm: float | None = 0.5
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise ValueError(
                f"group_size must be at least 2 (an episode is judged against the others of its "
                f"group), got {self.group_size}"
            )


@register("grpo")
@dataclass(frozen=True)
class GRPO(GroupConfig):
    """GRPO (arXiv:2402.03300): A = (R - mean) / std over the group, PPO's clip, no critic.

    Differs from the paper: elements are averaged over all tokens by default (`aggregate`), and
    the KL penalty is off by default.
    """

    clip: Clip = field(default_factory=Clip)

    def build(self) -> Algorithm:
        """The method as parts."""
        return Algorithm(
            need=Need(groups=self.groups, group_size=self.group_size),
            advantage=GroupRelative(self.gamma, self.std, self.grouping, self.per),
            surrogate=CLIPPED_RATIO,
            clip=self.clip,
            aggregate=Aggregate(self.aggregate),
            update=FirstOrder(
                self.lr,
                self.lr_decay,
                self.epochs,
                self.minibatch_size,
                self.max_grad_norm,
                self.target_kl,
            ),
            penalties=Penalties(self.entropy_coef, self.kl_coef, self.kl_estimator),
        )
