"""Settings that several recipes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.advantages import GAE
from redline.algorithms.core.clipping import Clip
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.learner import Algorithm
from redline.algorithms.core.natural import FisherSolve
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import Surrogate
from redline.algorithms.core.types import Need
from redline.algorithms.core.updates import UpdateRule


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
    """

    n_steps: int = 256
    episodes: int | None = None
    gamma: float = 0.99
    gae_lambda: float = 0.95
    standardise_advantage: bool = True
    entropy_coef: float = 0.0

    def algorithm(
        self,
        *,
        surrogate: Surrogate,
        update: UpdateRule,
        critic: CriticFit,
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
            critic=critic,
        )


@dataclass(frozen=True)
class NaturalConfig(CriticConfig):
    """Settings of the methods that solve F x = g.

    Attributes:
        delta: Limit on the mean KL(old||new) of a step, in nats.
        delta_decay: Let delta fall linearly to 0 over the budget.
        solver: "cg" (conjugate gradient) or "dense" (builds F; refused above 20,000 parameters).
        cg_iterations: Fisher products per solve.
        damping: Added to F's diagonal.
        fisher_rows: Estimate F on this many random elements (or completions); None: all.
        critic_lr: Learning rate of the critic.
        critic_lr_decay: Let it fall linearly to 0 over the budget.
        critic_epochs: Its passes over a rollout.
        critic_minibatch_size: Its elements (or completions) per optimiser step.
    """

    delta: float = 0.01
    delta_decay: bool = False
    solver: Literal["cg", "dense"] = "cg"
    cg_iterations: int = 10
    damping: float = 0.1
    fisher_rows: int | None = None
    critic_lr: float = 1e-3
    critic_lr_decay: bool = False
    critic_epochs: int = 10
    critic_minibatch_size: int = 128

    def fisher_solve(self) -> FisherSolve:
        """How F^-1 g is computed."""
        return FisherSolve(self.solver, self.cg_iterations, self.damping, self.fisher_rows)

    def critic_fit(self) -> CriticFit:
        """How the critic is fitted."""
        return CriticFit(
            lr=self.critic_lr,
            lr_decay=self.critic_lr_decay,
            epochs=self.critic_epochs,
            minibatch_size=self.critic_minibatch_size,
        )
