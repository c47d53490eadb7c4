"""The value function of a run: a critic, its optimiser, and the scale of what it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.algorithms.core.contracts import Critic
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.moments import RunningMoments
from redline.algorithms.core.types import Array, Metrics, Progress, Rollout

# A critic whose squared error is so many times that of the first rollout is fitted at once.
LAGS = 2.0


class ValueFunction:
    """V(s) in units of reward, from a critic that may predict V / std of the returns.

    Args:
        critic: The network.
        settings: How it is fitted, and whether its targets are scaled.
    """

    def __init__(self, critic: Critic, settings: CriticFit) -> None:
        self.critic, self.settings = critic, settings
        self.optimizer = critic.optimizer(settings.adam_eps)
        self.returns = RunningMoments(())
        self.rounds = 0
        self._start: float | None = None
        self._lags = False

    @property
    def due(self) -> bool:
        """The critic is fitted on this rollout."""
        return self.rounds % self.settings.every == 0 or self._lags

    def judge(self, returns: Array, value: Array, mask: Array) -> None:
        """Look whether the critic lags behind, where it is not fitted on every rollout."""
        if self.settings.every == 1:
            return
        error = self.error(returns, value, mask)
        if self._start is None:
            self._start = error
        self._lags = error > LAGS * self._start

    def error(self, returns: Array, value: Array, mask: Array) -> float:
        """Mean squared error of given values, in units of the scaled targets."""
        return float(np.mean(((returns - value)[mask] / self.scale) ** 2))

    @property
    def scale(self) -> float:
        """V is this times what the critic predicts: the std of all returns so far, or 1."""
        scaled = self.settings.scale_returns and self.returns.count > 0
        return float(np.sqrt(self.returns.variance + 1e-8)) if scaled else 1.0

    def __call__(self, rollout: Rollout) -> tuple[Array, Array]:
        """V(s_t) and V(s_{t+1}), [B, T]; the latter never from after a reset."""
        value = np.where(rollout.mask, self._predict(rollout.observation, rollout.mask), 0.0)
        next_value = np.zeros_like(value)
        next_value[:, :-1] = value[:, 1:]
        next_value[rollout.terminated | rollout.truncated] = 0.0
        if rollout.bootstrap is not None and len(rollout.bootstrap.row):
            row, column, observation = rollout.bootstrap
            next_value[row, column] = self._predict(observation, np.ones(len(row), dtype=bool))
        return value, next_value

    def _predict(self, observation: Array, mask: Array) -> Array:
        predicted = self.critic.values(observation, mask)
        return predicted * self.scale if self.scale != 1.0 else predicted

    def observe(self, returns: Array, mask: Array) -> None:
        """Add a rollout's targets [B, T] to the statistics; once per rollout, before any fit."""
        if self.settings.scale_returns:
            self.returns.update(returns[mask])

    def fit(
        self,
        rollout: Rollout,
        returns: Array,
        progress: Progress,
        rng: np.random.Generator,
        epochs: int,
    ) -> Metrics:
        """`epochs` passes towards the targets `returns`; see `CriticFit.fit`."""
        return self.settings.fit(
            self.critic,
            self.optimizer,
            observation=rollout.observation,
            returns=returns / self.scale,
            mask=rollout.mask,
            progress=progress,
            rng=rng,
            epochs=epochs,
        )

    def state_dict(self) -> dict[str, Any]:
        """Parameters, optimiser and statistics."""
        return {
            "critic": self.critic.snapshot(),
            "critic_optimizer": self.optimizer.state_dict(),
            "returns": self.returns.state_dict(),
            "rounds": self.rounds,
            "start": self._start,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.critic.restore(state["critic"])
        self.optimizer.load_state_dict(state["critic_optimizer"])
        self.returns.load_state_dict(state["returns"])
        self.rounds = int(state["rounds"])
        self._start = state.get("start")  # which older checkpoints have not got
