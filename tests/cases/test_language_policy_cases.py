"""Language-model policies as public reports describe them going wrong."""

from typing import Any

import numpy as np
import pytest
import torch
from batches import AGGREGATES
from closeness import close, identical
from micro import MODELS, llama, micro_batch, micro_rollout

from redline.algorithms.core.objective import Objective
from redline.algorithms.core.penalties import Penalties
from redline.algorithms.core.surrogates import CLIPPED_RATIO, SCORE_FUNCTION
from redline.algorithms.core.telemetry import Recorder
from redline.algorithms.core.types import Batch
from redline.llm_track.critic import HeadCritic
from redline.llm_track.policy import CausalLMPolicy


def whole_batch(policy: Any, rows: Any, attention: Any, mask: Any) -> Batch:
    """Rows of token ids whose last T columns are the completion; pi_old is the policy."""
    observation = torch.tensor(np.stack([rows, attention], axis=-1))
    mask = torch.tensor(mask).bool()
    action = observation[:, -mask.shape[1] :, 0]
    ones = torch.ones(mask.shape, dtype=policy.dtype)
    plain = Batch(observation, action, ones, ones, mask)
    return Batch(observation, action, policy.evaluate(plain).log_prob, ones, mask)


def objective(kind: str, surrogate: Any = SCORE_FUNCTION) -> Objective:
    return Objective(surrogate, AGGREGATES[kind], Penalties(), (0.8, 1.2), False)


@pytest.mark.parametrize(
    ("kind", "coefficient"),
    [("token_mean", [1 / 4, 1 / 4]), ("seq_mean", [1 / 2, 1 / 6]), ("fixed_length", [1 / 20] * 2)],
)
def test_case_23_micro_batches_add_up_to_the_aggregate(kind: str, coefficient: list[float]) -> None:
    # huggingface/trl#3021: A has 1 token, B has 3; also A = [+1, -1], where losses may vanish.
    rows, attention = [[3, 4, 5, 6, 7], [3, 4, 5, 6, 7]], [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    expected = torch.tensor(coefficient, dtype=torch.float64)[:, None].expand(2, 3)
    gradients = []
    for size in (1, 2):
        policy = CausalLMPolicy(llama(torch.float64), rows=size)
        batch = whole_batch(policy, rows, attention, [[1, 0, 0], [1, 1, 1]])
        batch = batch.with_advantage(torch.tensor([[1.0] * 3, [-1.0] * 3]).double())
        seen: list[Any] = []

        def weigh(log_prob: Any, batch: Batch = batch, seen: list[Any] = seen) -> Any:
            seen.append(log_prob)
            return torch.where(batch.mask, expected * batch.advantage, 0.0)

        objective(kind).gradient(policy, batch)
        gradients.append(policy.gradient_buffer.clone())
        policy.gradient(batch, weigh)
        close(policy.gradient_buffer, gradients[-1], rtol=1e-10, atol=1e-12)
        assert len(seen) == 1 and seen[0].shape == (2, 3)
    close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)
    assert gradients[0].abs().max() > 1e-2


def test_case_25_temperature_is_in_log_probs_and_entropy() -> None:
    # huggingface/trl#4159: logits [2, 1, 0] at T = 0.5, token 0.
    policy = CausalLMPolicy(llama(torch.float64, vocabulary=3), temperature=0.5)
    state = policy.hidden(np.array([[[1, 1], [0, 1]]]), np.ones((1, 1), dtype=bool))[0, 0]
    logits = torch.tensor([2.0, 1.0, 0.0]).double()
    policy.output.weight.data.copy_(logits[:, None] * state / (state @ state))
    tempered = policy.evaluate(whole_batch(policy, [[1, 0]], [[1, 1]], [[1]]))
    close(tempered.log_prob, np.array([[-0.142932]]), rtol=4e-6)
    close(tempered.entropy, np.array([[0.441057]]), rtol=2e-6)
    plain = CausalLMPolicy(policy.model, temperature=1.0)
    evaluation = plain.evaluate(whole_batch(plain, [[1, 0]], [[1, 1]], [[1]]))
    close(evaluation.log_prob, np.array([[-0.407606]]), rtol=2e-6)
    close(evaluation.entropy, np.array([[0.832396]]), rtol=2e-6)
    close((evaluation.log_prob - tempered.log_prob).exp(), np.array([[0.767456]]), rtol=2e-6)
    close(policy.predict(np.array([[[1, 1]]]))[0][0, 0], -0.142932, rtol=4e-6)
    with pytest.raises(ValueError, match="temperature of a policy that learns must be positive"):
        CausalLMPolicy(llama(), temperature=0.0)


@pytest.mark.parametrize("full", [True, False])
def test_case_26_pi_old_stays_where_it_was(full: bool) -> None:
    # huggingface/trl#3120: the first ratio is exactly 1, that of a second pass is not.
    policy = CausalLMPolicy(llama(), full=full)
    drawn = micro_batch(policy)
    old = policy.evaluate(drawn)
    batch = Batch(
        drawn.observation, drawn.action, old.log_prob, drawn.advantage, drawn.mask, old.params
    )
    ratios: list[Any] = []
    optimizer = policy.optimizer(1e-5)
    for _ in range(2):
        objective("token_mean", CLIPPED_RATIO).gradient(
            policy, batch, lambda _, weights, __: ratios.append(weights.ratio[batch.mask])
        )
        optimizer.step(0.01)
    identical(ratios[0], torch.ones_like(ratios[0]))
    assert (ratios[1] != 1.0).all()
    assert policy.kl(batch)[batch.mask].min() > 0.0


def test_case_28_padding_with_the_eos_id() -> None:
    # huggingface/trl PR#4970: pad = eos = 2, a prompt that holds a 2, and three endings.
    policy = CausalLMPolicy(llama(torch.float64))
    prompt = [[2, 2, 9, 2], [8, 2, 5, 4], [2, 2, 2, 6]]
    attention = [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]]
    completion = [[5, 7, 2, 2, 2], [5, 7, 9, 4, 6], [2, 2, 2, 2, 2]]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    batch = whole_batch(policy, np.hstack([prompt, completion]), np.hstack([attention, mask]), mask)
    log_prob = policy.evaluate(batch).log_prob
    rows = (([9, 2], [5, 7, 2]), ([8, 2, 5, 4], [5, 7, 9, 4, 6]), ([6], [2]))
    for found, (before, tokens) in zip(log_prob, rows, strict=True):
        with torch.no_grad():
            log_p = policy.model(torch.tensor([before + tokens])).logits[0].log_softmax(-1)
        expected = log_p[range(len(before) - 1, len(before + tokens) - 1), tokens]
        close(found[: len(tokens)], expected, rtol=1e-10)
        assert (found[len(tokens) :] == 0.0).all()

    # Stopping is learned: the gradient raises the probability of the first EOS.
    weight = torch.zeros(3, 5).double()
    weight[0, 2] = 1.0
    policy.gradient(batch, lambda _: weight)
    policy.parameters += 1e-3 * policy.gradient_buffer
    assert policy.evaluate(batch).log_prob[0, 2] > log_prob[0, 2]


@pytest.mark.parametrize("kind", MODELS)
def test_case_29_a_short_prompt_beside_a_longer_one(kind: str) -> None:
    # huggingface/trl#6800: attention [0, 0, 1, 1, 1], absolute positions or rotary.
    policy = CausalLMPolicy(MODELS[kind]())
    alone = whole_batch(policy, [[5, 6, 7]], [[1, 1, 1]], [[1]])
    beside = whole_batch(
        policy, [[0, 0, 5, 6, 7], [3, 4, 5, 6, 7]], [[0, 0, 1, 1, 1], [1] * 5], [[1], [1]]
    )
    first, second = (policy.evaluate(batch).log_prob for batch in (alone, beside))
    close(second[0], first[0], rtol=0.0, atol=1e-5)
    assert abs(second[1, 0] - first[0, 0]) > 1e-3
    moved = whole_batch(
        policy, [[5, 0, 6, 0, 7], [0, 5, 6, 0, 7]], [[1, 0, 1, 0, 1], [0, 1, 1, 0, 1]], [[1], [1]]
    )
    close(policy.evaluate(moved).log_prob[:, 0], first[0].expand(2), rtol=0.0, atol=1e-5)


def test_case_30_clip_fractions_are_pooled_over_the_tokens_of_all_passes() -> None:
    # huggingface/trl PR#6380: 2 of 10 tokens clipped, then 3 of 5: 5 of 15.
    policy = CausalLMPolicy(llama(), rows=1)
    recorder = Recorder()
    for tokens, clipped in ((10, 2), (5, 3)):
        row = [[3, *range(4, 4 + tokens)]]
        batch = whole_batch(policy, row, [[1] * (tokens + 1)], [[1] * tokens])
        old = batch.old_log_prob.clone()
        old[0, :clipped] -= 1.0
        batch = Batch(batch.observation, batch.action, old, batch.advantage, batch.mask)

        objective("token_mean", CLIPPED_RATIO).gradient(policy, batch, recorder.record)
    assert recorder.metrics()["train/clip_fraction"] == pytest.approx(5 / 15)


def test_case_32_the_value_of_padding_is_nothing() -> None:
    # NovaSky-AI/SkyRL#1305: what stands in padding reaches neither values nor their gradient.
    policy = CausalLMPolicy(llama(torch.float64))
    critic = HeadCritic(policy)
    critic.parameters += 0.3
    rollout = micro_rollout(policy)
    dirty = rollout.observation.copy()
    dirty[dirty[..., 1] == 0, 0] = 10**6
    returns = np.where(rollout.mask, 1.5, 1e6)
    found = []
    for observation in (rollout.observation, dirty):
        values = critic.values(observation, rollout.mask)
        assert (values[~rollout.mask] == 0.0).all()
        critic.gradient(observation, returns, rollout.mask)
        found.append((values, critic.gradient_buffer.clone()))
    for clean, filled in zip(*found, strict=True):
        close(filled, clean, rtol=1e-12)
