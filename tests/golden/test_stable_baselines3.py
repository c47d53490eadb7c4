"""GAE and whole updates against stable-baselines3 and sb3-contrib, on the same data and weights.

Both sides compute in float32, in a different order. After 24 Adam steps the parameters of PPO,
moved by 0.1, agree to 5e-6; a step of TRPO, a conjugate gradient apart, to 1e-3 of its length.
"""

import numpy as np
import pytest
import torch
from batches import START
from closeness import close
from gymnasium import spaces
from sb3_contrib import TRPO as SB3TRPO
from sb3_parity import (
    ACTIONS,
    POLICY_SETTINGS,
    SLOTS,
    STEPS,
    WIDTH,
    Experience,
    Still,
    fill,
    flat_parameters,
    our_learner,
    rollout_of,
)
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv

from redline.algorithms.core.advantages import GAE
from redline.algorithms.ppo import PPO
from redline.algorithms.trpo import TRPO

GAMMA, LAM = 0.97, 0.9
ENTROPY = 0.01
EPOCHS, LR = 24, 5e-3
DELTA = 0.02


@pytest.mark.parametrize("space", ["categorical", "gaussian of six"])
@pytest.mark.parametrize("seed", range(3))
def test_gae(seed: int, space: str) -> None:
    action_space, _ = ACTIONS[space]
    data = Experience(action_space, seed)
    rng = np.random.default_rng(100 + seed)
    value = rng.normal(size=(STEPS, SLOTS)).astype(np.float32)
    last_value = rng.normal(size=SLOTS).astype(np.float32)
    final_value = rng.normal(size=(STEPS, SLOTS)).astype(np.float32)
    truncated = data.done & (rng.random(data.done.shape) < 0.5)

    box = spaces.Box(-np.inf, np.inf, (WIDTH,))
    buffer = RolloutBuffer(STEPS, box, action_space, "cpu", LAM, GAMMA, n_envs=SLOTS)
    # SB3 knows one kind of end; at a time limit it adds gamma V(final observation) to the reward.
    buffer.rewards[:] = data.reward + np.where(truncated, GAMMA * final_value, 0.0)
    buffer.values[:] = value
    buffer.episode_starts[1:] = data.done[:-1]
    buffer.compute_returns_and_advantage(torch.as_tensor(last_value), data.done[-1])

    next_value = np.concatenate([value[1:], last_value[None]])
    next_value = np.where(truncated, final_value, next_value)
    terminated = data.done & ~truncated
    rollout = rollout_of(data, terminated=terminated.T, truncated=truncated.T)
    estimate = GAE(GAMMA, LAM)(rollout, value.T, next_value.T)
    assert truncated.any() and terminated.any()
    close(estimate.advantage, buffer.advantages.T, rtol=1e-4, atol=1e-6)
    close(estimate.returns, buffer.returns.T, rtol=1e-4, atol=1e-6)


def environments(space: spaces.Space) -> DummyVecEnv:
    return DummyVecEnv([lambda: Still(space)] * SLOTS)


@pytest.mark.parametrize("space", ACTIONS)
def test_a_ppo_update(space: str) -> None:
    action_space, distribution = ACTIONS[space]
    data = Experience(action_space, seed=7)
    torch.manual_seed(0)
    model = SB3PPO(
        "MlpPolicy",
        environments(action_space),
        learning_rate=LR,
        n_steps=STEPS,
        batch_size=SLOTS * STEPS,
        n_epochs=EPOCHS,
        gamma=GAMMA,
        gae_lambda=LAM,
        ent_coef=ENTROPY,
        vf_coef=0.5,
        max_grad_norm=1e9,  # SB3 clips actor and critic jointly, which we do not
        policy_kwargs=POLICY_SETTINGS,
        device="cpu",
    )
    model.set_logger(Logger(None, []))
    recipe = PPO(
        n_steps=STEPS,
        gamma=GAMMA,
        gae_lambda=LAM,
        entropy_coef=ENTROPY,
        lr=LR,
        epochs=EPOCHS,
        minibatch_size=SLOTS * STEPS,
        max_grad_norm=None,
    )
    learner = our_learner(model, distribution, recipe.build())
    assert learner.critic is not None
    start = learner.policy.snapshot(), learner.critic.snapshot()

    fill(model, data)
    model.train()
    rollout = rollout_of(data, terminated=data.done.T, truncated=data.done.T & False)
    metrics = learner.update(rollout, START)

    assert metrics["train/clip_fraction"] > 0.05  # otherwise the clip would not be compared
    actor = flat_parameters(model, "policy_net", "action_net")
    critic = flat_parameters(model, "value_net", "value_net")
    assert np.abs(actor - start[0]).max() > 0.05 and np.abs(critic - start[1]).max() > 0.05
    close(learner.policy.parameters, actor, rtol=0.0, atol=5e-6)
    close(learner.critic.parameters, critic, rtol=0.0, atol=5e-6)


@pytest.mark.parametrize("space", ["categorical", "gaussian of one"])
def test_a_trpo_step(space: str) -> None:
    action_space, distribution = ACTIONS[space]
    data = Experience(action_space, seed=11)
    torch.manual_seed(1)
    model = SB3TRPO(
        "MlpPolicy",
        environments(action_space),
        n_steps=STEPS,
        batch_size=SLOTS * STEPS,
        gamma=GAMMA,
        gae_lambda=LAM,
        cg_max_steps=15,
        cg_damping=0.1,
        target_kl=DELTA,
        n_critic_updates=1,
        policy_kwargs=POLICY_SETTINGS,
        device="cpu",
    )
    model.set_logger(Logger(None, []))
    recipe = TRPO(n_steps=STEPS, gamma=GAMMA, gae_lambda=LAM, delta=DELTA, cg_iterations=15)
    learner = our_learner(model, distribution, recipe.build())
    start = learner.policy.snapshot()

    fill(model, data)
    model.train()
    rollout = rollout_of(data, terminated=data.done.T, truncated=data.done.T & False)
    metrics = learner.update(rollout, START)

    assert metrics["train/step_accepted"] == 1.0
    theirs = flat_parameters(model, "policy_net", "action_net") - start
    ours = learner.policy.parameters - start
    assert np.linalg.norm(theirs) > 0.01
    assert np.linalg.norm(ours - theirs) < 1e-3 * np.linalg.norm(theirs)
