"""A language model in miniature that goes through the same learner as the control policies.

A row is a completion: the observation is the whole row of tokens [B, L] (prompt padded on the
left, completion on the right), the actions are its last T tokens.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from batches import START, bounds_of
from torch import Tensor, nn

from redline.algorithms.core.algorithm import Algorithm
from redline.algorithms.core.autograd import AutogradCritic, AutogradPolicy
from redline.algorithms.core.critic import CriticFit
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.types import Batch, Need, Rollout

PAD, EOS, TARGET = 0, 1, 7


class Block(nn.Module):
    """Causal self-attention and a multilayer perceptron, written out so that jvp works."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        b, length, width = x.shape
        split = (b, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norms[0](x)).view(split).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        # Finite, so that a row of padding that may look at nothing is no nan.
        attention = score.masked_fill(~allowed[:, None], -1e9).softmax(-1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(b, length, width))
        return x + self.mlp(self.norms[1](x))


class TinyLM(nn.Module):
    """A decoder-only transformer."""

    def __init__(
        self, vocabulary: int = 20, width: int = 32, heads: int = 2, layers: int = 2, room: int = 24
    ) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(room, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def hidden(self, tokens: Tensor) -> Tensor:
        """States [B, L, width]; padding is what comes before a row's first token."""
        real = (tokens != PAD).cumsum(-1) > 0
        length = tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        x = self.token(tokens) + self.place((real.cumsum(-1) - 1).clamp(min=0))
        for block in self.blocks:
            x = block(x, causal & real[:, None, :])
        return self.norm(x)

    def forward(self, tokens: Tensor, keep: int) -> Tensor:
        """Logits [B, keep, vocabulary] of each row's last `keep` tokens."""
        return self.head(self.hidden(tokens)[:, -keep - 1 : -1])


class LMPolicy(AutogradPolicy):
    """pi(token | row up to it)."""

    per_element = False

    def network(self, batch: Batch, call: Callable[..., Tensor]) -> Tensor:
        return call(batch.observation, keep=batch.action.shape[1])

    def outputs(self, observation: Any) -> Tensor:
        """Logits of the token that stands last in every row."""
        return self.module(self.asarray(observation), keep=1)[:, 0]


class HeadCritic(AutogradCritic):
    """A linear value head on the policy's hidden states, which it does not move."""

    per_element = False

    def __init__(self, policy: LMPolicy) -> None:
        self.policy = policy
        trunk = policy.module.head.weight
        super().__init__(nn.Linear(trunk.shape[1], 1).to(trunk))

    def network(self, observation: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.policy.module.hidden(observation)[:, -mask.shape[1] - 1 : -1]
        return self.module(hidden)[..., 0]


def lm_policy(seed: int = 0, dtype: torch.dtype = torch.float32, **sizes: int) -> LMPolicy:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = TinyLM(**sizes).to(dtype)
    return LMPolicy(module, Categorical(module.head.out_features))


def target_share(completion: Any) -> float:
    """The part of a completion's tokens that are the target."""
    return float(np.mean(completion == TARGET))


class PromptSampler:
    """Groups of sampled completions to random prompts, scored at their last token.

    Args:
        rng: Draws prompts and tokens.
        length: Most tokens of a completion.
        reward: Tokens of one completion, its EOS included -> score.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        length: int = 8,
        reward: Callable[[Any], float] = target_share,
    ) -> None:
        self.rng, self.length, self.reward = rng, length, reward

    def prompts(self, count: int, vocabulary: int) -> Any:
        """[count, P] tokens, padded on the left to the longest."""
        lengths = self.rng.integers(2, 6, size=count)
        tokens = self.rng.integers(2, vocabulary, size=(count, lengths.max()))
        tokens[np.arange(lengths.max()) < lengths.max() - lengths[:, None]] = PAD
        return tokens

    def complete(self, policy: LMPolicy, tokens: Any) -> Any:
        """Rows with tokens sampled until EOS or the cap; after EOS comes padding."""
        ended = np.zeros(len(tokens), dtype=bool)
        for _ in range(self.length):
            tokens = np.pad(tokens, ((0, 0), (0, 1)), constant_values=PAD)
            tokens[:, -1] = np.where(ended, PAD, policy.act(tokens, self.rng))
            ended |= tokens[:, -1] == EOS
            if ended.all():
                break
        return tokens

    def collect(self, policy: LMPolicy, need: Need) -> Rollout:
        """One rollout of whole completions."""
        if need.groups is None:
            raise ValueError("completions are whole: ask for a number of episodes, not of steps")
        prompts = self.prompts(need.groups, policy.distribution.width)
        tokens = self.complete(policy, np.repeat(prompts, need.group_size, axis=0))
        action = tokens[:, prompts.shape[1] :]
        ended = action == EOS
        mask = np.cumsum(ended, axis=1) - ended == 0
        rows, length = np.arange(len(action)), mask.sum(axis=1)
        last = np.zeros_like(mask)
        last[rows, length - 1] = True
        score = [self.reward(row[valid]) for row, valid in zip(action, mask, strict=True)]
        return Rollout(
            observation=tokens,
            action=action,
            reward=np.where(last, np.array(score)[:, None], 0.0),
            mask=mask,
            terminated=last,  # the score is final at the cap too
            truncated=last & ~ended,
            episode_id=np.where(mask, rows[:, None], -1),
            group_of_episode=np.repeat(np.arange(need.groups), need.group_size),
            bootstrap=None,
            whole_episodes=True,
            steps=len(action),
            episode_return=score,
            episode_length=length.tolist(),
            outcome=np.array(score),
            start_of_group=[row.tobytes().hex() for row in prompts],
            longest=self.length,
        )


def collect(policy: LMPolicy, seed: int = 1, groups: int = 2, group_size: int = 3) -> Rollout:
    """A rollout in which some completions end early."""
    sampler = PromptSampler(np.random.default_rng(seed))
    rollout = sampler.collect(policy, Need(groups=groups, group_size=group_size))
    assert not rollout.mask.all()
    return rollout


def textbook_elements(algorithm: Algorithm, batch: Batch, log_p: Tensor) -> Tensor:
    """A recipe's objective with entropy 0.3 and k3 0.7 per token, from log pi [B, T, V]."""
    log_prob = log_p.gather(-1, batch.action[..., None])[..., 0]
    d = batch.anchor_log_prob - log_prob
    surrogate = algorithm.surrogate.objective(
        LMPolicy.xp,
        log_prob=log_prob,
        old_log_prob=batch.old_log_prob,
        advantage=batch.advantage,
        mask=batch.mask,
        bounds=bounds_of(algorithm),
    )
    return surrogate - 0.3 * (log_p.exp() * log_p).sum(-1) - 0.7 * (d.exp() - 1.0 - d)


def fit_critic(critic: Any, optimizer: Any, rollout: Rollout, epochs: int = 20) -> float:
    """The mean loss of some passes towards targets that count a row's tokens."""
    return CriticFit(lr=0.03, epochs=epochs, minibatch_size=4).fit(
        critic,
        optimizer,
        observation=rollout.observation,
        returns=np.cumsum(rollout.mask, axis=1) / 4.0,
        mask=rollout.mask,
        progress=START,
        rng=np.random.default_rng(0),
    )["train/value_loss"]


def lm_batch(policy: LMPolicy, rollout: Rollout, seed: int = 2) -> Batch:
    """The rollout with random advantages; pi_old and the reference are random steps away."""
    rng = np.random.default_rng(seed)
    start = policy.snapshot()
    fields = [policy.asarray(x) for x in (rollout.observation, rollout.action)]
    mask = policy.asarray(rollout.mask)
    advantage = policy.asarray(rng.normal(size=mask.shape))
    plain = Batch(*fields, advantage, advantage, mask)
    moved = []
    for _ in range(2):
        policy.restore(start + policy.asarray(rng.normal(0.0, 0.05, start.shape)))
        moved.append(policy.evaluate(plain))
    policy.restore(start)
    old, anchor = moved
    return Batch(*fields, old.log_prob, advantage, mask, old.params, anchor.log_prob)
