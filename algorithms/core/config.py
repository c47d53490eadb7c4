"""Settings that several recipes share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from redline.algorithms.core.advantages import GAE
from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.natural import FisherSolve
from redline.algorithms.core.penalties import Estimator, Penalties
from redline.algorithms.core.shaping import Shaping
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.token_surrogates import RatioLimits
from redline.algorithms.core.types import Need
from redline.algorithms.core.updates import FirstOrder, UpdateRule


@dataclass(frozen=True)
class CriticConfig:
    """Settings of every method with a critic and GAE.

    Attributes:
        n_steps: Elements per environment and rollout.
        episodes: Collect this many whole episodes instead of `n_steps`; None: by steps.
        gamma: Discount.
        gae_lambda: Lambda of GAE.
        standardise_advantage: Advantages to mean 0 and std 1.
        entropy_coef: Entropy bonus.
        scale_returns: The critic predicts returns divided by their running std.
        critic_every: Rollouts from one fit of the critic to the next; where its squared error is
            more than twice that of the first rollout it is fitted at once.
        shaping: Changes of rewards and advantages.
    """

    n_steps: int = 256
    episodes: int | None = None
    gamma: float = 0.99
    gae_lambda: float = 0.95
    standardise_advantage: bool = True
    entropy_coef: float = 0.0
    scale_returns: bool = False
    critic_every: int = 1
    shaping: Shaping = field(default_factory=Shaping)

    def algorithm(
        self,
        *,
        surrogate: Surrogate,
        update: UpdateRule,
        standardise: Literal["batch", "minibatch"],
        clip: Clip | None = None,
    ) -> Algorithm:
        """GAE, the critic that it needs, and the given parts."""
        by_steps = self.episodes is None
        return Algorithm(
            need=Need(self.n_steps if by_steps else None, groups=self.episodes),
            advantage=GAE(self.gamma, self.gae_lambda),
            surrogate=surrogate,
            update=update,
            clip=clip,
            penalties=Penalties(entropy=self.entropy_coef),
            standardise=standardise if self.standardise_advantage else "none",
            shaping=self.shaping,
            critic=replace(
                self.critic_fit(), scale_returns=self.scale_returns, every=self.critic_every
            ),
        )

    def critic_fit(self) -> CriticFit:
        """How the critic is fitted."""
        return CriticFit()


@dataclass(frozen=True)
class FirstOrderConfig(CriticConfig):
    """Settings of the methods that take optimiser steps, policy and critic alike.

    Attributes:
        lr: Learning rate of the policy, and of the critic where `critic_lr` is None.
        lr_decay: Let it fall linearly to 0 over the budget.
        epochs: Passes over a rollout.
        minibatch_size: Elements (completions on a language model) per optimiser step.
        target_kl: End the policy's passes when approx_kl exceeds 1.5 times this; None: never.
        max_grad_norm: Clip of the gradient norms (policy and critic apart), None for no clip.
        critic_lr: Learning rate of the critic; None: as the policy's.
        critic_epochs: The critic's passes over a rollout; None: as many as the policy's.
    """

    lr: float = 3e-4
    lr_decay: bool = False
    epochs: int = 10
    minibatch_size: int = 64
    target_kl: float | None = None
    max_grad_norm: float | None = 0.5
    critic_lr: float | None = None
    critic_epochs: int | None = None

    def first_order(self) -> FirstOrder:
        """How the policy is stepped."""
        return FirstOrder(
            lr=self.lr,
            lr_decay=self.lr_decay,
            epochs=self.epochs,
            minibatch_size=self.minibatch_size,
            max_grad_norm=self.max_grad_norm,
            target_kl=self.target_kl,
        )

    def critic_fit(self) -> CriticFit:
        """How the critic is fitted."""
        return CriticFit(
            lr=self.lr if self.critic_lr is None else self.critic_lr,
            lr_decay=self.lr_decay,
            epochs=self.epochs if self.critic_epochs is None else self.critic_epochs,
            minibatch_size=self.minibatch_size,
            max_grad_norm=self.max_grad_norm,
        )


@dataclass(frozen=True)
class EpochsConfig(FirstOrderConfig):
    """Settings of the methods that pass over the same elements several times.

    Attributes:
        recompute_advantage: Fit the critic between the passes, one pass each, and estimate the
            advantages anew with it; otherwise it is fitted after them.
        kl_coef: Penalty on the KL to the policy at the start of the run.
        kl_estimator: How that KL is estimated.
        ratio: Limits on the ratio beside the clip.
    """

    recompute_advantage: bool = False
    kl_coef: float = 0.0
    kl_estimator: Estimator = "k3"
    ratio: RatioLimits = field(default_factory=RatioLimits)

    def algorithm(self, *, surrogate: Surrogate, **parts: Any) -> Algorithm:
        """As for every method with a critic."""
        return replace(
            super().algorithm(surrogate=self.ratio.of(surrogate), **parts),
            recompute_advantage=self.recompute_advantage,
            penalties=Penalties(self.entropy_coef, self.kl_coef, self.kl_estimator),
        )


@dataclass(frozen=True)
class OwnCriticConfig(CriticConfig):
    """Settings of the methods whose critic is fitted in its own way.

    Attributes:
        critic_lr: Learning rate of the critic.
        critic_lr_decay: Let it fall linearly to 0 over the budget.
        critic_epochs: Its passes over a rollout.
        critic_minibatch_size: Its elements (or completions) per optimiser step.
    """

    critic_lr: float = 1e-3
    critic_lr_decay: bool = False
    critic_epochs: int = 10
    critic_minibatch_size: int = 128

    def critic_fit(self) -> CriticFit:
        """How the critic is fitted."""
        return CriticFit(
            lr=self.critic_lr,
            lr_decay=self.critic_lr_decay,
            epochs=self.critic_epochs,
            minibatch_size=self.critic_minibatch_size,
        )


@dataclass(frozen=True)
class NaturalConfig(OwnCriticConfig):
    """Settings of the methods that solve F x = g.

    Attributes:
        delta: Limit on the mean KL(old||new) of a step, in nats.
        delta_decay: Let delta fall linearly to 0 over the budget.
        solver: "cg" (conjugate gradient) or "dense" (builds F; refused above 20,000 parameters).
        cg_iterations: Fisher products per solve.
        damping: Added to F's diagonal.
        fisher_rows: Estimate F on this many random elements (or completions); None: all.
        kl_convention: "true" (KL(old||new), summed over action dimensions) or "sb3" (as
            sb3-contrib: KL(new||old), averaged over the dimensions of a Box action).
    """

    delta: float = 0.01
    delta_decay: bool = False
    solver: Literal["cg", "dense"] = "cg"
    cg_iterations: int = 10
    damping: float = 0.1
    fisher_rows: int | None = None
    kl_convention: Literal["true", "sb3"] = "true"

    def fisher_solve(self) -> FisherSolve:
        """How F^-1 g is computed."""
        return FisherSolve(
            self.solver, self.cg_iterations, self.damping, self.fisher_rows, self.kl_convention
        )
