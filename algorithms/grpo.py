"""GRPO: group-relative advantages, no critic, clipped ratio."""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.config import GroupConfig
from redline.algorithms.core.learner import Algorithm
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.registry import register


@register("grpo")
@dataclass(frozen=True)
class GRPO(GroupConfig):
    """GRPO (arXiv:2402.03300): A = (R - mean) / std over the group, PPO's clip, no critic.

    Differs from the paper: elements are averaged over all tokens by default (`aggregate`), and
    the KL penalty is off by default.

    Attributes:
        clip: Bounds on the ratio.
        epochs: Passes over a rollout.
        minibatch_size: Elements (completions on a language model, episodes for "seq_mean") per
            optimiser step; None: all.
        target_kl: End the passes when approx_kl exceeds 1.5 times this; None: never.
    """

    clip: Clip = field(default_factory=Clip)
    epochs: int = 10
    minibatch_size: int | None = 256
    target_kl: float | None = None

    def build(self) -> Algorithm:
        """The method as parts."""
        steps = (self.epochs, self.minibatch_size, self.max_grad_norm, self.target_kl)
        return self.algorithm(
            surrogate=CLIPPED_RATIO,
            clip=self.clip,
            update=FirstOrder(self.lr, self.lr_decay, *steps),
        )
