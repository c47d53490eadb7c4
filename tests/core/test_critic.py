"""Regression of a critic: what one fit does, and what it refuses to do."""

from typing import Any

import numpy as np
import pytest
from batches import START
from closeness import close, identical

from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.types import Metrics, Progress
from redline.envs.policies import MLPCritic


class Recorded(MLPCritic):
    """A critic that notes its minibatches and, as its own optimiser, its steps."""

    def __init__(self) -> None:
        super().__init__(2, (), "tanh", np.random.default_rng(0), dtype=np.float64)
        self.batches: list[Any] = []
        self.steps: list[tuple[float, Any]] = []

    def gradient(self, observation: Any, returns: Any, mask: Any) -> float:
        self.batches.append(returns[mask])
        return super().gradient(observation, returns, mask)

    def step(self, lr: float) -> None:
        self.steps.append((lr, self.gradient_buffer.copy()))


RNG = np.random.default_rng(1)
MASK = np.array([[True, True, True, True, False], [True, True, False, False, False]])
OBSERVATION = np.where(MASK[..., None], RNG.normal(size=(2, 5, 2)), 1e6)
RETURNS = np.where(MASK, RNG.normal(size=(2, 5)), 1e6)


def fit(critic: Any, optimizer: Any, progress: Progress = START, **settings: Any) -> Metrics:
    return CriticFit(**settings).fit(
        critic,
        optimizer,
        observation=OBSERVATION,
        returns=RETURNS,
        mask=MASK,
        progress=progress,
        rng=np.random.default_rng(2),
    )


@pytest.mark.parametrize(("size", "steps"), [(None, 1), (6, 1), (4, 2), (1, 6)])
def test_every_epoch_sees_every_valid_element(size: int | None, steps: int) -> None:
    critic = Recorded()
    metrics = fit(critic, critic, epochs=3, minibatch_size=size)
    assert len(critic.steps) == 3 * steps
    for epoch in range(3):
        seen = np.concatenate(critic.batches[epoch * steps : (epoch + 1) * steps])
        identical(np.sort(seen), np.sort(RETURNS[MASK]))
    if size is None:
        error = critic.values(OBSERVATION, MASK)[MASK] - RETURNS[MASK]
        close(metrics["train/value_loss"], np.mean(error**2))


def test_the_factor_and_the_clip() -> None:
    plain, halved, clipped = Recorded(), Recorded(), Recorded()
    fit(plain, plain, epochs=1, minibatch_size=None, coef=1.0, max_grad_norm=None)
    fit(halved, halved, epochs=1, minibatch_size=None, coef=0.5, max_grad_norm=None)
    fit(clipped, clipped, epochs=1, minibatch_size=None, coef=1.0, max_grad_norm=0.1)
    gradient = plain.steps[0][1]
    close(halved.steps[0][1], 0.5 * gradient)
    close(clipped.steps[0][1], 0.1 * gradient / np.linalg.norm(gradient), rtol=1e-5)


@pytest.mark.parametrize(("decay", "expected"), [(False, 0.2), (True, 0.15)])
def test_the_learning_rate(decay: bool, expected: float) -> None:
    critic = Recorded()
    fit(critic, critic, Progress(25, 100), epochs=1, lr=0.2, lr_decay=decay)
    close(critic.steps[0][0], expected)


def test_a_target_that_is_not_a_number_moves_nothing() -> None:
    critic = Recorded()
    start = critic.snapshot()
    returns = np.where(MASK, np.nan, RETURNS)
    with pytest.raises(FloatingPointError, match="critic's gradient norm is nan: step not applied"):
        CriticFit().fit(
            critic,
            critic.optimizer(1e-5),
            observation=OBSERVATION,
            returns=returns,
            mask=MASK,
            progress=START,
            rng=np.random.default_rng(0),
        )
    identical(critic.parameters, start)


def test_a_linear_target_is_learned() -> None:
    rng = np.random.default_rng(3)
    critic = MLPCritic(2, (), "tanh", rng, dtype=np.float64)
    observation = rng.normal(size=(4, 50, 2))
    target = observation @ np.array([2.0, -1.0]) + 3.0
    mask, optimizer = np.ones((4, 50), dtype=bool), critic.optimizer(1e-8)
    rule = CriticFit(lr=0.05, lr_decay=True, epochs=5, max_grad_norm=None)
    for update in range(100):
        rule.fit(
            critic,
            optimizer,
            observation=observation,
            returns=target,
            mask=mask,
            progress=Progress(update, 100),
            rng=rng,
        )
    close(critic.values(observation, mask), target, atol=1e-3, rtol=0.0)
