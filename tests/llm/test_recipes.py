"""Every recipe trains models that transformers made, through the learner of both tracks."""

from typing import Any

import numpy as np
import pytest
import torch
from micro import MODELS, MicroSampler
from small import small

from redline.algorithms import registry
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.natural import TrustRegion
from redline.algorithms.core.types import Progress
from redline.llm_track.critic import HeadCritic
from redline.llm_track.policy import CausalLMPolicy

NAMES = registry.names()
START = Progress(0, 1_000_000)
SIZES = {"episodes": 6, "groups": 2, "group_size": 3}


LAZY = {"rows": 2, "chunk": 7, "full": False}


# A mixture needs log-probabilities over the whole vocabulary; test_head sees the others refused.
@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, {}) for name in NAMES] + [(name, LAZY) for name in NAMES if name != "cpi"],
)
@pytest.mark.parametrize("kind", MODELS)
def test_every_recipe_updates_the_model(name: str, kind: str, settings: dict[str, Any]) -> None:
    policy = CausalLMPolicy(MODELS[kind](), temperature=0.9, **settings)
    algorithm = small(name, **SIZES)
    learner = Learner(algorithm, policy, HeadCritic(policy), np.random.default_rng(3))
    before = policy.snapshot()
    rollout = MicroSampler(np.random.default_rng(6)).collect(policy, algorithm.need)
    metrics = learner.update(rollout, START)
    assert np.isfinite(list(metrics.values())).all(), metrics
    unmoved = torch.equal(learner.policy.parameters, before)
    assert unmoved == (metrics.get("train/step_accepted") == 0.0)
    assert metrics["train/kl"] >= 0.0
    if isinstance(algorithm.update, TrustRegion):
        assert 0.0 < metrics["train/kl"] <= algorithm.update.delta


@pytest.mark.parametrize("name", ["reinforce", "grpo", "ppo", "trpo"])
def test_the_way_of_computing_changes_no_update(name: str) -> None:
    results = []
    for settings in ({}, LAZY):
        policy = CausalLMPolicy(MODELS["llama"](torch.float64), **settings)
        algorithm = small(name, **SIZES)
        learner = Learner(algorithm, policy, HeadCritic(policy), np.random.default_rng(3))
        rollout = MicroSampler(np.random.default_rng(6)).collect(policy, algorithm.need)
        metrics = learner.update(rollout, START)
        results.append((policy.snapshot(), metrics))
    (one, first), (other, second) = results
    assert (one - other).abs().max() < 1e-7
    for key, value in first.items():
        assert second[key] == pytest.approx(value, rel=1e-5, abs=1e-7), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo", {"groups": 4, "group_size": 8, "epochs": 2, "lr": 3e-3}),
        ("reinforce", {"episodes": 32, "gamma": 1.0, "lr": 3e-3}),
        ("ppo", {"episodes": 32, "gamma": 1.0, "epochs": 2, "lr": 3e-3}),
        ("trpo", {"episodes": 32, "gamma": 1.0, "delta": 0.02}),
    ],
)
def test_the_reward_is_learned(name: str, settings: dict[str, Any]) -> None:
    policy = CausalLMPolicy(MODELS["llama"]())
    algorithm = small(name, **settings, minibatch_size=None)
    learner = Learner(algorithm, policy, HeadCritic(policy), np.random.default_rng(3))
    sampler = MicroSampler(np.random.default_rng(4))
    rewards = []
    for _ in range(60):
        rollout = sampler.collect(policy, algorithm.need)
        learner.update(rollout, START)
        rewards.append(np.mean(rollout.episode_return))
    assert np.mean(rewards[:3]) < 0.2
    assert np.mean(rewards[-5:]) > 0.6
