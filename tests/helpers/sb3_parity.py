"""The same experience and weights for stable-baselines3 and for a learner of ours."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.distributions import Categorical, Distribution
from redline.algorithms.core.gaussians import DiagGaussian
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Bootstrap, Rollout
from redline.envs.policies import MLPCritic, MLPPolicy

SLOTS, STEPS, WIDTH = 4, 32, 4
HIDDEN = (16, 8)
# sb3-contrib's TRPO averages the Gaussian KL over action dimensions: equal to ours with one only.
ACTIONS: dict[str, tuple[spaces.Space[Any], Distribution]] = {
    "categorical": (spaces.Discrete(3), Categorical(3)),
    "gaussian": (spaces.Box(-1.0, 1.0, (2,)), DiagGaussian(2)),
    "gaussian of six": (spaces.Box(-1.0, 1.0, (6,)), DiagGaussian(6)),
    "gaussian of one": (spaces.Box(-1.0, 1.0, (1,)), DiagGaussian(1)),
}
POLICY_SETTINGS = {
    "net_arch": {"pi": list(HIDDEN), "vf": list(HIDDEN)},
    "activation_fn": torch.nn.Tanh,
    "optimizer_kwargs": {"eps": 1e-5},
}


class Still(gym.Env[Any, Any]):
    """Carries the spaces; nothing is ever played."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (WIDTH,))
        self.action_space = action_space

    def reset(self, **_: Any) -> Any:
        return np.zeros(WIDTH, np.float32), {}


class Experience:
    """Random steps [STEPS, SLOTS] with episode ends, time-major as SB3 stores them."""

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        shape = (STEPS, SLOTS)
        self.observation = rng.normal(size=(*shape, WIDTH)).astype(np.float32)
        self.after = rng.normal(size=(SLOTS, WIDTH)).astype(np.float32)
        self.reward = rng.normal(size=shape).astype(np.float32)
        self.done = rng.random(shape) < 0.15
        self.done[-1] = [True, False, True, False]
        if isinstance(space, spaces.Discrete):
            self.action = rng.integers(0, int(space.n), shape)
        else:
            self.action = rng.normal(size=(*shape, *(space.shape or ()))).astype(np.float32)


def rollout_of(data: Experience, *, terminated: Any, truncated: Any) -> Rollout:
    """The experience with a row for every slot; slots that were cut bootstrap."""
    row = np.flatnonzero(~(terminated | truncated)[:, -1])
    return Rollout(
        observation=data.observation.swapaxes(0, 1),
        action=data.action.swapaxes(0, 1),
        reward=data.reward.T.astype(np.float64),
        mask=np.ones((SLOTS, STEPS), dtype=bool),
        terminated=terminated,
        truncated=truncated,
        episode_id=np.zeros((SLOTS, STEPS), dtype=int),
        group_of_episode=np.zeros(1, dtype=int),
        bootstrap=Bootstrap(row, np.full(len(row), STEPS - 1), data.after[row]),
        whole_episodes=False,
        steps=SLOTS * STEPS,
    )


def fill(model: Any, data: Experience) -> None:
    """Put the experience into SB3's buffer, with its own values and log-probabilities."""
    buffer = model.rollout_buffer
    buffer.reset()
    start = np.ones(SLOTS, dtype=bool)
    for t in range(STEPS):
        observation = torch.as_tensor(data.observation[t])
        action = torch.as_tensor(data.action[t])
        with torch.no_grad():
            value, log_prob, _ = model.policy.evaluate_actions(observation, action)
        buffer.add(
            data.observation[t],
            data.action[t].reshape(SLOTS, -1),
            data.reward[t],
            start,
            value.flatten(),
            log_prob,
        )
        start = data.done[t]
    with torch.no_grad():
        last_value = model.policy.predict_values(torch.as_tensor(data.after))
    buffer.compute_returns_and_advantage(last_value, data.done[-1])


def flat_parameters(model: Any, body: str, head: str) -> np.ndarray:
    """SB3's layers in the order of `Network`: W [in, out], b, layer after layer, then log std."""
    policy = model.policy
    layers = [*getattr(policy.mlp_extractor, body), getattr(policy, head)]
    parts = []
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            parts += [layer.weight.detach().numpy().T, layer.bias.detach().numpy()]
    if head == "action_net" and hasattr(policy, "log_std"):
        parts.append(policy.log_std.detach().numpy())
    return np.concatenate([part.ravel() for part in parts])


def our_learner(model: Any, distribution: Distribution, algorithm: Algorithm) -> Learner:
    """A learner that starts with the weights of an SB3 model."""
    rng = np.random.default_rng(0)
    policy = MLPPolicy(WIDTH, distribution, HIDDEN, "tanh", rng)
    critic = MLPCritic(WIDTH, HIDDEN, "tanh", rng)
    policy.restore(flat_parameters(model, "policy_net", "action_net"))
    critic.restore(flat_parameters(model, "value_net", "value_net"))
    return Learner(algorithm, policy, critic, rng)
