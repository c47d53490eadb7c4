"""The value head on a language model's hidden states."""

from typing import Any

import numpy as np
import pytest
import torch
from closeness import close, identical
from double import fit_critic
from micro import MODELS, llama, micro_batch, micro_rollout
from torch.func import functional_call

from redline.algorithms.core.types import Progress
from redline.llm_track.critic import HeadCritic
from redline.llm_track.policy import CausalLMPolicy

START = Progress(0, 100)


@pytest.mark.parametrize("hidden", [None, 8])
@pytest.mark.parametrize("full", [True, False])
def test_a_step_leaves_the_policy_as_it_is_and_learns(hidden: int | None, full: bool) -> None:
    policy = CausalLMPolicy(llama(), full=full)
    critic = HeadCritic(policy, hidden, np.random.default_rng(0))
    rollout = micro_rollout(policy)
    batch = micro_batch(policy)
    before, log_prob = policy.snapshot(), policy.evaluate(batch).log_prob
    policy.gradient_buffer.fill_(3.0)
    assert (critic.values(rollout.observation, rollout.mask) == 0.0).all()
    optimizer = critic.optimizer(1e-5)
    losses = [fit_critic(critic, optimizer, rollout) for _ in range(3)]
    assert losses[2] < 0.5 * losses[0]
    identical(policy.parameters, before)
    identical(policy.evaluate(batch).log_prob, log_prob)
    assert (policy.gradient_buffer == 3.0).all()


@pytest.mark.parametrize("kind", MODELS)
def test_the_value_is_of_the_state_before_the_token(kind: str) -> None:
    policy = CausalLMPolicy(MODELS[kind](torch.float64), rows=2)
    critic = HeadCritic(policy)
    critic.parameters += torch.linspace(-1.0, 1.0, len(critic.parameters)).double()
    rollout = micro_rollout(policy)
    values = critic.values(rollout.observation, rollout.mask)
    assert values.dtype == np.float64 and not values[~rollout.mask].any()
    last = rollout.mask.shape[1]
    for row, valid, value in zip(rollout.observation, rollout.mask, values, strict=True):
        prompt = row[:-last][row[:-last, 1] == 1, 0]
        for t in np.flatnonzero(valid):
            tokens = torch.as_tensor(np.append(prompt, row[-last:, 0][:t]))[None]
            with torch.no_grad():
                state = policy.model.base_model(input_ids=tokens).last_hidden_state[0, -1]
                close(value[t], critic.module(state)[0], rtol=1e-9, atol=1e-12)


def test_the_gradient_is_autograds() -> None:
    policy = CausalLMPolicy(llama(torch.float64))
    critic = HeadCritic(policy, 5, np.random.default_rng(0))
    critic.parameters += 0.1
    rollout = micro_rollout(policy)
    returns = np.random.default_rng(1).normal(size=rollout.mask.shape)
    loss = critic.gradient(rollout.observation, returns, rollout.mask)
    states = policy.hidden(rollout.observation, rollout.mask)
    flat = critic.snapshot().requires_grad_(True)
    sizes = [tensor.numel() for tensor in critic.tensors]
    pieces = (
        piece.view(tensor.shape)
        for piece, tensor in zip(flat.split(sizes), critic.tensors, strict=True)
    )
    value = functional_call(critic.module, dict(zip(critic.names, pieces, strict=True)), states)
    error = (value[..., 0] - torch.as_tensor(returns))[torch.as_tensor(rollout.mask)]
    expected = torch.autograd.grad(-(error * error).mean(), flat)[0]
    close(critic.gradient_buffer, expected, rtol=1e-10, atol=1e-12)
    close(loss, float((error * error).mean().detach()), rtol=1e-10)


def test_states_are_kept_until_the_policy_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = CausalLMPolicy(llama(), rows=2)
    critic = HeadCritic(policy)
    rollout = micro_rollout(policy)
    calls, hidden = [], policy.hidden

    def spy(observation: Any, mask: Any) -> Any:
        calls.append(len(mask))
        return hidden(observation, mask)

    monkeypatch.setattr(policy, "hidden", spy)
    critic.values(rollout.observation, rollout.mask)
    critic_optimizer = critic.optimizer(1e-5)
    fit_critic(critic, critic_optimizer, rollout)
    assert calls == [6]
    moves = {
        "an optimiser's step": lambda: policy.optimizer(1e-5).step(0.01),
        "a restored snapshot": lambda: policy.restore(policy.snapshot() + 0.01),
        "a natural step": lambda: policy.parameters.__setitem__(
            slice(None), policy.parameters + 0.01
        ),
    }
    policy.gradient_buffer.fill_(1.0)
    for name, move in moves.items():
        calls.clear()
        move()
        fit_critic(critic, critic_optimizer, rollout, epochs=2)
        assert sum(calls) == 6, name


def test_a_hidden_layer_needs_a_random_generator() -> None:
    with pytest.raises(ValueError, match="the hidden layer of a critic is random: give rng"):
        HeadCritic(CausalLMPolicy(llama()), 8)


def test_the_head_of_a_bfloat16_model_learns_in_float32() -> None:
    policy = CausalLMPolicy(llama(torch.bfloat16))
    critic = HeadCritic(policy)
    rollout = micro_rollout(policy)
    assert critic.parameters.dtype == torch.float32
    optimizer = critic.optimizer(1e-5)
    losses = [fit_critic(critic, optimizer, rollout) for _ in range(2)]
    assert losses[1] < losses[0]
