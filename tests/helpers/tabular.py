"""Small Markov decision processes solved exactly, and policies that are tables.

Shapes: S states, A actions, T steps. A policy's table is pi [S, A].
"""

from typing import Any, NamedTuple

import numpy as np

from redline.algorithms.core.distributions import Categorical
from redline.envs.policies import MLPPolicy


class MDP(NamedTuple):
    """transition [S, A, S], reward [S, A], distribution of the first state [S]."""

    transition: Any
    reward: Any
    start: Any


class Solution(NamedTuple):
    """What a policy is worth.

    Attributes:
        value: Expected (discounted) sum of rewards from the start.
        advantage: A = Q - V, [S, A]; [T, S, A] with a horizon.
        visits: Distribution of the state over steps (normalised to sum 1), [S]; [T, S] with a
            horizon, where every row sums to 1.
    """

    value: float
    advantage: Any
    visits: Any


def random_mdp(rng: np.random.Generator, states: int = 4, actions: int = 3) -> MDP:
    """Few likely successors per state and action, rewards of either sign."""
    transition = rng.dirichlet(np.full(states, 0.5), size=(states, actions))
    return MDP(transition, rng.normal(size=(states, actions)), rng.dirichlet(np.ones(states)))


def solve(mdp: MDP, pi: Any, gamma: float) -> Solution:
    """By linear equations: V = (I - gamma P)^-1 r, visits = (1 - gamma) (I - gamma P')^-1 start."""
    chain = np.einsum("sa,san->sn", pi, mdp.transition)
    system = np.eye(len(chain)) - gamma * chain
    value = np.linalg.solve(system, (pi * mdp.reward).sum(axis=1))
    advantage = mdp.reward + gamma * mdp.transition @ value - value[:, None]
    visits = (1.0 - gamma) * np.linalg.solve(system.T, mdp.start)
    return Solution(float(mdp.start @ value), advantage, visits)


def solve_horizon(mdp: MDP, pi: Any, steps: int) -> Solution:
    """By backward and forward recursion over `steps` steps without a discount."""
    value, visits = np.zeros(len(pi)), [mdp.start]
    advantages = []
    for _ in range(steps):
        q = mdp.reward + mdp.transition @ value
        value = (pi * q).sum(axis=1)
        advantages.append(q - value[:, None])
        visits.append(visits[-1] @ np.einsum("sa,san->sn", pi, mdp.transition))
    return Solution(float(mdp.start @ value), np.array(advantages[::-1]), np.array(visits[:-1]))


def table_policy(logits: Any) -> MLPPolicy:
    """softmax(logits [S, A]) on one-hot states, in float64."""
    states, actions = logits.shape
    rng = np.random.default_rng(0)
    policy = MLPPolicy(states, Categorical(actions), (), "tanh", rng, dtype=np.float64)
    policy.parameters[:] = np.concatenate([logits.ravel(), np.zeros(actions)])
    return policy


def table_of(policy: Any, states: int) -> Any:
    """pi [S, A] of a policy on one-hot states."""
    return np.exp(policy.predict(np.eye(states))[0])


def softmax(logits: Any) -> Any:
    """Row by row."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
