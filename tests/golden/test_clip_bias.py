"""What a clip adds to the gradient when the advantage says nothing about the action.

With A independent of a and of mean 0, E[grad of the clipped objective] - E[grad of r A] =
mu E[grad r if r < lo; 0 inside; -grad r if r > hi], mu = P(A > 0) E[A | A > 0] (arXiv:2506.10947),
and the second expectation is 0. One state, a softmax over twelve actions.
"""

from typing import Any

import numpy as np
import pytest
from closeness import close

from redline.algorithms.core.surrogates import CLIPPED_RATIO, RATIO, Surrogate

BOUNDS = (0.8, 1.28)
ACTIONS = 12
# (value, probability) of a reward that the action does not change.
ADVANTAGES = {"even": ((1.0, 0.5), (-1.0, 0.5)), "rare": ((3.0, 0.25), (-1.0, 0.75))}
advantages = pytest.mark.parametrize("advantage", ADVANTAGES.values(), ids=ADVANTAGES)


class Bandit:
    """Old and new policy, and what the theorem says of them."""

    def __init__(self, seed: int, apart: float = 0.8) -> None:
        rng = np.random.default_rng(seed)
        old = rng.normal(size=ACTIONS)
        self.log_old = log_softmax(old)
        self.log_new = log_softmax(old + rng.normal(0.0, apart, ACTIONS))
        self.ratio = np.exp(self.log_new - self.log_old)
        # Row a: grad log pi(a) by the logits.
        self.score = np.eye(ACTIONS) - np.exp(self.log_new)

    def gradients(self, surrogate: Surrogate, action: Any, advantage: Any) -> Any:
        """[N, ACTIONS] gradient of every sample."""
        w = surrogate.weights(
            np,
            log_prob=self.log_new[action][None],
            old_log_prob=self.log_old[action][None],
            advantage=advantage[None],
            mask=np.ones((1, len(action)), dtype=bool),
            bounds=BOUNDS if surrogate.clips else None,
        ).w[0]
        return w[:, None] * self.score[action]

    def expected(self, surrogate: Surrogate, advantage: Any) -> Any:
        """Over all actions and values of A."""
        every = np.arange(ACTIONS)
        return sum(
            p * np.exp(self.log_old) @ self.gradients(surrogate, every, np.full(ACTIONS, a))
            for a, p in advantage
        )

    def theorem(self, advantage: Any) -> Any:
        push = np.where(self.ratio < BOUNDS[0], 1.0, np.where(self.ratio > BOUNDS[1], -1.0, 0.0))
        mu = sum(p * a for a, p in advantage if a > 0)
        return mu * (np.exp(self.log_old) * push * self.ratio) @ self.score


def log_softmax(logits: Any) -> Any:
    return logits - np.log(np.exp(logits).sum())


@advantages
@pytest.mark.parametrize("seed", range(10))
def test_a_random_reward_is_pushed_into_the_band(seed: int, advantage: Any) -> None:
    bandit = Bandit(seed)
    assert (bandit.ratio < BOUNDS[0]).any() and (bandit.ratio > BOUNDS[1]).any()
    found = bandit.expected(CLIPPED_RATIO, advantage)
    close(found, bandit.theorem(advantage), atol=1e-12)
    assert abs(found).max() > 1e-3


@advantages
def test_there_is_no_push_without_a_clip_or_at_the_first_step(advantage: Any) -> None:
    close(Bandit(0).expected(RATIO, advantage), np.zeros(ACTIONS), atol=1e-12)
    close(Bandit(0, apart=0.0).expected(CLIPPED_RATIO, advantage), np.zeros(ACTIONS), atol=1e-12)


@advantages
def test_samples_agree_within_three_standard_errors(advantage: Any) -> None:
    bandit, rng, count = Bandit(3), np.random.default_rng(0), 200_000
    action = rng.choice(ACTIONS, size=count, p=np.exp(bandit.log_old))
    values, probabilities = zip(*advantage, strict=True)
    drawn = rng.choice(values, size=count, p=probabilities)
    samples = bandit.gradients(CLIPPED_RATIO, action, drawn)
    error = samples.std(axis=0) / np.sqrt(count)
    gap = abs(samples.mean(axis=0) - bandit.theorem(advantage))
    assert (gap <= 3.0 * error).all()
