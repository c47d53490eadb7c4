"""What the core asks of a policy, a critic and an optimiser, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np

from redline.algorithms.core.distributions import Distribution
from redline.algorithms.core.types import Array, Batch, Evaluation, KLTerm, Namespace, Params


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
