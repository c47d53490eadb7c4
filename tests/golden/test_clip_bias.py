"""What a clip adds to the gradient when the advantage says nothing about the action.

With A independent of a and of mean 0, E[grad of the clipped objective] =
mu E[grad r if r < lo; 0 inside; -grad r if r > hi], mu = P(A > 0) E[A | A > 0] (arXiv:2506.10947).
Expectations are sums over all actions and both signs of A.
"""

import numpy as np
import pytest
from closeness import close

from redline.algorithms.core.surrogates import CLIPPED_RATIO, RATIO


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum())


def expected_gradient(surrogate, new, old, advantages, bounds) -> np.ndarray:
    """Over the logits of one state; advantages: (value, probability) pairs."""
    log_new, log_old = log_softmax(new), log_softmax(old)
    total = np.zeros_like(new)
    score = np.eye(len(new)) - np.exp(log_new)  # row a: grad log pi(a)
    for value, probability in advantages:
        w = surrogate.weights(
            np,
            log_prob=log_new[None],
            old_log_prob=log_old[None],
            advantage=np.full((1, len(new)), value),
            mask=np.ones((1, len(new)), dtype=bool),
            bounds=bounds,
        ).w[0]
        total += probability * (np.exp(log_old) * w) @ score
    return total


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("advantages", [[(1.0, 0.5), (-1.0, 0.5)], [(3.0, 0.25), (-1.0, 0.75)]])
def test_a_random_reward_is_pushed_into_the_band(seed, advantages) -> None:
    rng = np.random.default_rng(seed)
    old, bounds = rng.normal(size=12), (0.8, 1.28)
    new = old + rng.normal(0.0, 0.8, 12)
    log_new, log_old = log_softmax(new), log_softmax(old)
    ratio = np.exp(log_new - log_old)
    assert (ratio < bounds[0]).any() and (ratio > bounds[1]).any()
    grad_ratio = ratio[:, None] * (np.eye(12) - np.exp(log_new))
    push = np.where(ratio < bounds[0], 1.0, np.where(ratio > bounds[1], -1.0, 0.0))
    mu = sum(p * a for a, p in advantages if a > 0)
    expected = mu * (np.exp(log_old) * push) @ grad_ratio
    close(
        expected_gradient(CLIPPED_RATIO, new, old, advantages, bounds),
        expected,
        rtol=1e-9,
        atol=1e-12,
    )
    assert abs(expected).max() > 1e-3
    close(expected_gradient(RATIO, new, old, advantages, None), np.zeros(12), atol=1e-12)
