"""The language-model track behind the interface of the training loop."""

from typing import Any

import numpy as np
import pytest
import torch

from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Batch, Need, Progress, Rollout
from redline.algorithms.grpo import GRPO
from redline.llm_track import assembly
from redline.llm_track.checks import CheckFailed
from redline.llm_track.generation import SamplingError
from redline.llm_track.pretrained import ModelError
from redline.llm_track.settings import LanguageSettings
from redline.llm_track.split import TaskError
from redline.llm_track.track import LanguageTrack, language_track

NEED = Need(groups=2, group_size=2)


def track(seed: int = 0, needs_critic: bool = False, **settings: Any) -> LanguageTrack:
    chosen = LanguageSettings(**{"max_completion": 40, "eval_problems": 4} | settings)
    return language_track("llm:arithmetic", chosen, needs_critic=needs_critic, seed=seed)


def log_prob(policy: Any, rollout: Rollout) -> Any:
    fields = (rollout.observation, rollout.action, rollout.reward, rollout.reward, rollout.mask)
    evaluated = policy.evaluate(Batch(*map(policy.asarray, fields)))
    return np.where(rollout.mask, evaluated.log_prob.numpy(), 0.0)


def test_an_update_through_the_learner() -> None:
    made = track(seed=1)
    algorithm = GRPO(groups=4, group_size=4, epochs=1, minibatch_size=8, lr=1e-5).build()
    learner = Learner(algorithm, made.policy, made.critic, np.random.default_rng(0))
    before = made.policy.snapshot()
    rollout = made.collect(learner.policy, algorithm.need)
    metrics = learner.update(rollout, Progress(0, 100))
    assert rollout.steps == 16 and made.unit == "completions"
    assert not torch.equal(before, made.policy.parameters)
    assert metrics["train/ratio_max"] < 1.5 and 0.0 <= rollout.metrics["llm/accuracy"] <= 1.0
    assert made.evaluate(learner.policy).keys() >= {
        "eval/accuracy",
        "eval/accuracy_greedy",
        "eval/answer_length",
        "eval/pass@4",
    }
    made.load_state_dict(made.state_dict())
    made.close()


def test_the_seed_decides_the_rollouts_but_not_the_evaluation() -> None:
    first, again, other = (track(seed) for seed in (0, 0, 1))
    rollouts = [made.collect(made.policy, NEED).observation for made in (first, again, other)]
    assert rollouts[0].tolist() == rollouts[1].tolist() != rollouts[2].tolist()
    assert first.evaluate(first.policy) == other.evaluate(other.policy)


def test_a_critic_where_one_is_needed() -> None:
    assert track().critic is None
    made = track(needs_critic=True)
    assert made.critic is not None
    rollout = made.collect(made.policy, NEED)
    assert made.critic.values(rollout.observation, rollout.mask).shape == rollout.mask.shape


def test_stale_rollouts_come_from_the_policy_of_so_many_updates_ago() -> None:
    made = track(stale=2)
    policy, versions, rng = made.policy, [], np.random.default_rng(0)
    for update in range(5):
        versions.append(policy.snapshot())
        rollout = made.collect(policy, NEED)
        # The policy that learns is as it was.
        assert torch.equal(policy.parameters, versions[-1])
        behaviour = policy.copy()
        behaviour.restore(versions[max(0, update - 2)])
        np.testing.assert_allclose(rollout.log_prob, log_prob(behaviour, rollout), atol=1e-4)
        if update:
            assert np.abs(rollout.log_prob - log_prob(policy, rollout)).max() > 1e-3
        noise = torch.as_tensor(rng.normal(0.0, 1e-3, len(versions[-1]))).float()
        policy.restore(versions[-1] + noise)
    assert track().collect(policy, NEED).log_prob is None


def test_recomputed_activations_change_no_gradient() -> None:
    gradients = []
    for recompute in (False, True):
        made = track(gradient_checkpointing=recompute)
        rollout = made.collect(made.policy, NEED)
        fields = (rollout.observation, rollout.action, rollout.mask * 1.0, rollout.mask * 1.0)
        batch = Batch(*map(made.policy.asarray, (*fields, rollout.mask)))
        made.policy.gradient(batch, torch.ones_like)
        gradients.append(made.policy.gradient_buffer.clone())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_a_policy_of_another_temperature_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = assembly.CausalLMPolicy
    monkeypatch.setattr(
        assembly, "CausalLMPolicy", lambda model, temperature: policy(model, temperature=1.0)
    )
    track(temperature=1.0)
    with pytest.raises(CheckFailed, match="sampling and scoring disagree"):
        track(temperature=0.7)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model": "/no/such/folder"}, ModelError, "there is no such folder"),
        ({"max_completion": 600}, SamplingError, "exceed the context of tiny"),
        ({"temperature": 0.0}, SamplingError, "temperature must be above 0"),
        ({"digits": 0}, TaskError, "digits"),
        ({"stale": -1}, ValueError, "stale must be at least 0, got -1"),
        ({"eval_problems": 0}, ValueError, "an evaluation needs problems"),
    ],
)
def test_what_does_not_fit_is_said_before_any_work(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        track(**settings)


def test_the_temperature_goes_to_its_end_and_evaluations_keep_theirs() -> None:
    scheduled = track(temperature=1.0, temperature_end=0.5)
    sampler: Any = scheduled.sampler
    sampler.keep_log_prob = True
    before = scheduled.evaluate(scheduled.policy)
    for fraction, expected in ((0.0, 1.0), (0.5, 0.75), (1.0, 0.5)):
        scheduled.advance(scheduled.policy, fraction)
        rollout = scheduled.collect(scheduled.policy, NEED)
        assert scheduled.policy.temperature == expected
        # Scored as it was sampled: at another temperature the two would differ.
        sampled = np.where(rollout.mask, rollout.log_prob, 0.0)
        assert np.abs(log_prob(scheduled.policy, rollout) - sampled).max() < 1e-4
    assert scheduled.evaluate(scheduled.policy) == before
    plain = track()
    plain.advance(plain.policy, 1.0)
    assert plain.policy.temperature == 1.0
