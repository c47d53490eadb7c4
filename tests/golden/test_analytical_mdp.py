"""Values that a known problem must have: reward 1 a step for ever is worth 1 / (1 - gamma)."""

from typing import Any

import numpy as np
import pytest
from closeness import close

from redline.algorithms.core.advantages import GAE
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Bootstrap, Progress, Rollout
from redline.algorithms.ppo import PPO
from redline.envs.policies import MLPCritic, MLPPolicy

GAMMA = 0.9
LENGTH, STEPS = 5, 17  # the last episode is cut by the end of the rollout, not by its limit
ENDS = np.arange(1, STEPS + 1) % LENGTH == 0


def experience(*, terminated: Any, truncated: Any) -> Rollout:
    """Reward 1 at every step round a ring of states; episodes last one round."""
    phase = np.arange(STEPS) % LENGTH
    observation = np.eye(LENGTH)[phase][None]
    column = np.flatnonzero(truncated | (np.arange(STEPS) == STEPS - 1))
    after = np.eye(LENGTH)[(phase[column] + 1) % LENGTH]
    return Rollout(
        observation=observation,
        action=np.zeros((1, STEPS), dtype=int),
        reward=np.ones((1, STEPS)),
        mask=np.ones((1, STEPS), dtype=bool),
        terminated=terminated[None],
        truncated=truncated[None],
        episode_id=np.cumsum(np.r_[0, ENDS[:-1]])[None],
        group_of_episode=np.arange(4),
        bootstrap=Bootstrap(np.zeros(len(column), dtype=int), column, after),
        whole_episodes=False,
        steps=STEPS,
    )


def learned_values(rollout: Rollout) -> Any:
    """V of every phase after many updates of a linear critic."""
    rng = np.random.default_rng(0)
    policy = MLPPolicy(LENGTH, Categorical(2), (4,), "tanh", rng)
    critic = MLPCritic(LENGTH, (), "tanh", rng, dtype=np.float64)
    recipe = PPO(n_steps=STEPS, gamma=GAMMA, gae_lambda=0.9, lr=0.1, lr_decay=True, epochs=20)
    learner = Learner(recipe.build(), policy, critic, rng)
    for update in range(150):
        learner.update(rollout, Progress(update, 150))
    return critic.values(np.eye(LENGTH), np.ones(LENGTH, dtype=bool))


def test_a_time_limit_does_not_change_the_value() -> None:
    rollout = experience(terminated=ENDS & False, truncated=ENDS)
    close(learned_values(rollout), np.full(LENGTH, 1.0 / (1.0 - GAMMA)), rtol=1e-3)


def test_an_end_state_does() -> None:
    # 1 + gamma + ... over the steps that are left; the cut at the end still bootstraps.
    rollout = experience(terminated=ENDS, truncated=ENDS & False)
    left = np.arange(LENGTH, 0, -1)
    close(learned_values(rollout), (1.0 - GAMMA**left) / (1.0 - GAMMA), rtol=1e-3)


@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_the_true_value_has_no_advantage(lam: float) -> None:
    rollout = experience(terminated=ENDS & False, truncated=ENDS)
    value = np.full((1, STEPS), 1.0 / (1.0 - GAMMA))
    estimate = GAE(GAMMA, lam)(rollout, value, value)
    close(estimate.advantage, np.zeros((1, STEPS)), atol=1e-13)
    close(estimate.returns, value, rtol=1e-13)
