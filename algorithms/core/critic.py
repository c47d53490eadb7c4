"""Regression of a critic on its targets, whatever network it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from redline.algorithms.core.contracts import Critic, Optimizer
from redline.algorithms.core.types import Array, Metrics, Progress


@dataclass(frozen=True)
class CriticFit:
    """Adam on coef * mean (V(s) - returns)^2 over shuffled minibatches.

    Attributes:
        lr: Learning rate.
        lr_decay: Let the rate fall linearly to 0 over the budget.
        epochs: Passes over the rollout.
        minibatch_size: Elements (rows where an observation is a sequence) per step; None: all.
        coef: Factor on the loss (matters for gradient clipping and Adam's epsilon only).
        max_grad_norm: Clip of the gradient's Euclidean norm, None for no clip.
        adam_eps: Adam's epsilon.
        scale_returns: The critic predicts returns divided by their running std (never centred).
        every: Rollouts from one fit to the next; see `redline.algorithms.core.value.LAGS`.
    """

    lr: float = 1e-3
    lr_decay: bool = False
    epochs: int = 10
    minibatch_size: int | None = 64
    coef: float = 0.5
    max_grad_norm: float | None = 0.5
    adam_eps: float = 1e-5
    scale_returns: bool = False
    every: int = 1

    def fit(
        self,
        critic: Critic,
        optimizer: Optimizer,
        *,
        observation: Array,
        returns: Array,
        mask: Array,
        progress: Progress,
        rng: np.random.Generator,
        epochs: int | None = None,
    ) -> Metrics:
        """Fit on the valid elements of one rollout.

        Args:
            critic: What is fitted.
            optimizer: Its optimiser.
            observation: [B, T, ...].
            returns: [B, T] targets.
            mask: [B, T].
            progress: For the learning rate.
            rng: Shuffles.
            epochs: Passes; None: the setting's.

        Returns:
            train/value_loss: the mean squared error over the passes, as the optimiser saw it (in
            units of the targets given).

        Raises:
            FloatingPointError: The gradient is not finite.
        """
        if critic.per_element:
            observation, returns = observation[mask], returns[mask]
            mask = np.ones(len(returns), dtype=bool)
        observation, returns, mask = map(critic.asarray, (observation, returns, mask))
        size = self.minibatch_size or len(mask)
        lr = self.lr * (1.0 - progress.fraction) if self.lr_decay else self.lr
        lr *= progress.step_scale
        losses = []
        for _ in range(self.epochs if epochs is None else epochs):
            if size < len(mask):
                order = rng.permutation(len(mask))
                observation, returns, mask = observation[order], returns[order], mask[order]
            for start in range(0, len(mask), size):
                part = slice(start, start + size)
                losses.append(critic.gradient(observation[part], returns[part], mask[part]))
                self._scale(critic.gradient_buffer)
                optimizer.step(lr)
        return {"train/value_loss": float(np.mean(losses))}

    def _scale(self, gradient: Array) -> None:
        gradient *= self.coef
        length = math.sqrt(float(gradient @ gradient))
        if not math.isfinite(length):
            raise FloatingPointError(f"the critic's gradient norm is {length}: step not applied")
        if self.max_grad_norm is not None and length > self.max_grad_norm:
            gradient *= self.max_grad_norm / (length + 1e-6)
