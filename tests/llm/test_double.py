"""Every recipe trains a language model through the learner that trains control policies."""

from typing import Any

import numpy as np
import pytest
import torch
from closeness import close, identical
from double import (
    EOS,
    PAD,
    HeadCritic,
    LMPolicy,
    PromptSampler,
    collect,
    fit_critic,
    lm_batch,
    lm_policy,
)
from small import small

from redline.algorithms import registry
from redline.algorithms.core.conservative import ConservativeMixture
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.natural import TrustRegion
from redline.algorithms.core.types import Batch, KLTerm, Need, Progress

NAMES = registry.names()
START = Progress(0, 1_000_000)
SIZES = {"episodes": 6, "groups": 2, "group_size": 3}


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_updates_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = lm_policy()
    algorithm = small(name, **SIZES)
    critic = HeadCritic(policy)
    learner = Learner(algorithm, policy, critic, np.random.default_rng(3))
    first, gradient = [], LMPolicy.gradient

    def spy(
        self: Any, batch: Batch, weigh: Any, entropy: Any = None, kl: KLTerm | None = None
    ) -> None:
        def seen(log_prob: Any) -> Any:
            first.append((log_prob - batch.old_log_prob)[batch.mask])
            return weigh(log_prob)

        gradient(self, batch, seen, entropy, kl)

    monkeypatch.setattr(LMPolicy, "gradient", spy)
    before = policy.snapshot()
    rollout = PromptSampler(np.random.default_rng(6)).collect(policy, algorithm.need)
    assert rollout.steps == 6
    metrics = learner.update(rollout, START)
    assert np.isfinite(list(metrics.values())).all(), metrics
    unmoved = torch.equal(learner.policy.parameters, before)
    assert unmoved == (metrics.get("train/step_accepted") == 0.0)
    assert (first[0] == 0.0).all()
    held_out = isinstance(algorithm.update, ConservativeMixture)
    # Rows without an advantage are left out by the methods that only look at it.
    assert 0 < len(first[0]) <= rollout.mask.sum() - held_out
    if isinstance(algorithm.update, TrustRegion):
        assert 0.0 < metrics["train/kl"] <= algorithm.update.delta


@pytest.mark.parametrize("rows", [3, None])
def test_the_fisher_matrix_may_be_estimated_on_some_rows(
    rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = lm_policy()
    algorithm = small("trpo", **SIZES, fisher_rows=rows)
    learner = Learner(algorithm, policy, HeadCritic(policy), np.random.default_rng(3))
    sizes, product = [], policy.fisher_product

    def spy(batch: Batch) -> Any:
        sizes.append(tuple(batch.mask.shape))
        return product(batch)

    monkeypatch.setattr(policy, "fisher_product", spy)
    rollout = collect(policy, groups=6, group_size=1)
    metrics = learner.update(rollout, START)
    assert sizes == [(rows or 6, rollout.mask.shape[1])]
    assert isinstance(algorithm.update, TrustRegion)
    assert 0.0 < metrics["train/kl"] <= algorithm.update.delta


def test_minibatches_are_whole_rows() -> None:
    policy = lm_policy()
    algorithm = small("grpo", groups=3, group_size=4, minibatch_size=5, epochs=2)
    learner = Learner(algorithm, policy, None, np.random.default_rng(3))
    metrics = learner.update(collect(policy, groups=3, group_size=4), START)
    assert metrics["train/n_updates"] == 2 * 3  # 12 rows in parts of 5, 5 and 2


def test_a_critic_step_leaves_the_policy_as_it_is_and_learns() -> None:
    policy = lm_policy()
    critic = HeadCritic(policy)
    rollout = collect(policy)
    batch = lm_batch(policy, rollout)
    before, log_prob = policy.snapshot(), policy.evaluate(batch).log_prob
    policy.gradient_buffer.fill_(3.0)
    optimizer = critic.optimizer(1e-5)
    start = critic.snapshot()
    losses = [fit_critic(critic, optimizer, rollout) for _ in range(2)]
    assert losses[1] < 0.5 * losses[0] and not torch.equal(critic.parameters, start)
    identical(policy.parameters, before)
    identical(policy.evaluate(batch).log_prob, log_prob)
    assert (policy.gradient_buffer == 3.0).all()


def test_log_probs_are_those_of_the_distribution_that_was_sampled() -> None:
    policy = lm_policy(dtype=torch.float64)
    rollout = collect(policy)
    evaluation = policy.evaluate(lm_batch(policy, rollout))
    start = rollout.observation.shape[1] - rollout.mask.shape[1]
    for t, valid in enumerate(rollout.mask.T):
        seen = np.pad(rollout.observation[:, : start + t], ((0, 0), (0, 1)), constant_values=PAD)
        with torch.no_grad():
            log_p = policy.module(policy.asarray(seen), keep=1)[:, 0].log_softmax(-1)
        chosen = log_p[np.arange(len(valid)), rollout.action[:, t]]
        close(evaluation.log_prob[:, t][valid], chosen[valid], rtol=1e-10)


def test_completions_end_at_eos_or_at_the_cap() -> None:
    policy = lm_policy()
    rollout = collect(policy, groups=20)
    last = rollout.terminated
    assert (last.sum(axis=1) == 1).all() and (rollout.reward[~last] == 0.0).all()
    at_end = rollout.action[last]
    np.testing.assert_array_equal(rollout.truncated.any(axis=1), at_end != EOS)
    assert 0 < rollout.truncated.sum() < len(at_end)
    assert (rollout.action[~rollout.mask] == PAD).all()
    assert not (rollout.action[rollout.mask & ~last] == EOS).any()
    with pytest.raises(ValueError, match="ask for a number of episodes"):
        PromptSampler(np.random.default_rng(0)).collect(policy, Need(steps=8))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo", {"groups": 4, "group_size": 8, "aggregate": "seq_mean", "epochs": 2}),
        ("grpo", {"groups": 4, "group_size": 8, "aggregate": "token_mean", "epochs": 2}),
        ("reinforce", {"episodes": 32, "gamma": 1.0}),
        ("ppo", {"episodes": 32, "gamma": 1.0, "epochs": 2}),
        ("reinforce_group", {"groups": 4, "group_size": 8}),
        ("reinforce_baseline", {"episodes": 32, "gamma": 1.0}),
        ("ppo_kl", {"episodes": 32, "gamma": 1.0, "epochs": 2, "kl_target": 0.05}),
        # The theoretical penalty of 8 tokens allows steps that show after thousands of updates.
        ("cpi_penalty", {"episodes": 32, "gamma": 1.0, "horizon": 8, "epochs": 2, "penalty": 1.0}),
        # By line search, for the same reason; slow, since every component is a model of its own.
        pytest.param(
            *("cpi", {"episodes": 32, "gamma": 1.0, "horizon": 8, "epochs": 4, "delta": 0.05}),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_reward_is_learned(name: str, settings: dict[str, Any]) -> None:
    policy = lm_policy()
    algorithm = small(name, **settings, lr=3e-3, minibatch_size=None)
    learner = Learner(algorithm, policy, HeadCritic(policy), np.random.default_rng(3))
    sampler = PromptSampler(np.random.default_rng(4))
    rewards = []
    for _ in range(40):
        rollout = sampler.collect(learner.policy, algorithm.need)
        learner.update(rollout, START)
        rewards.append(np.mean(rollout.episode_return))
    assert np.mean(rewards[:3]) < 0.15  # one token in 20
    assert np.mean(rewards[-5:]) > 0.7
