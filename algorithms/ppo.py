"""PPO with a clipped ratio."""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.config import CriticConfig
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.learner import Algorithm
from redline.algorithms.core.surrogates import CLIPPED_RATIO
from redline.algorithms.core.updates import FirstOrder
from redline.algorithms.registry import register


@register("ppo")
@dataclass(frozen=True)
class PPO(CriticConfig):
    """PPO-clip (arXiv:1707.06347 Eq. 7): min(r A, clip(r, 1-low, 1+high) A), several epochs.

    Attributes:
        clip: Bounds on the ratio.
        lr: Learning rate of policy and critic.
        lr_decay: Let it fall linearly to 0 over the budget.
        epochs: Passes over a rollout.
        minibatch_size: Elements (completions on a language model) per optimiser step.
        target_kl: End the policy's passes when approx_kl exceeds 1.5 times this; None: never.
        max_grad_norm: Clip of the gradient norms (policy and critic apart), None for no clip.
    """

    clip: Clip = field(default_factory=Clip)
    lr: float = 3e-4
    lr_decay: bool = False
    epochs: int = 10
    minibatch_size: int = 64
    target_kl: float | None = None
    max_grad_norm: float | None = 0.5

    def build(self) -> Algorithm:
        """The method as parts."""
        return self.algorithm(
            surrogate=CLIPPED_RATIO,
            clip=self.clip,
            update=FirstOrder(
                lr=self.lr,
                lr_decay=self.lr_decay,
                epochs=self.epochs,
                minibatch_size=self.minibatch_size,
                max_grad_norm=self.max_grad_norm,
                target_kl=self.target_kl,
            ),
            critic=CriticFit(
                lr=self.lr,
                lr_decay=self.lr_decay,
                epochs=self.epochs,
                minibatch_size=self.minibatch_size,
                max_grad_norm=self.max_grad_norm,
            ),
            standardise="minibatch",
        )
