"""The output layer of a language model: log-probabilities over a vocabulary, in chunks of tokens.

Logits of all tokens at once would take N x V numbers (4096 tokens of a vocabulary of 49152: 0.8 GB
in float32, and a backward pass several times that). What is kept instead are hidden states [N, D];
everything over the vocabulary is computed for a chunk of tokens and dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn import functional

from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.types import Array, Namespace, Params
from redline.llm_track.completions import slices

# Numbers in one [chunk, V] tensor by default: 32 MB in float32. A backward pass holds six of them,
# and with an entropy and an exact KL term up to thirty.
_CHUNK_NUMBERS = 2**23


def default_chunk(vocabulary: int) -> int:
    """Tokens per chunk."""
    return max(1, _CHUNK_NUMBERS // vocabulary)


def gradient_of(leaf: Tensor) -> Tensor:
    """What a backward pass left in a leaf's `grad`."""
    assert leaf.grad is not None
    return leaf.grad


@dataclass(frozen=True)
class Head:
    """Hidden states [N, D] -> log pi [N, V] = log softmax((W h + b) / temperature).

    Attributes:
        weight: [V, D].
        bias: [V] or None.
        temperature: Of the distribution that is sampled.
    """

    weight: Tensor
    bias: Tensor | None
    temperature: float

    def logits(self, hidden: Tensor) -> Tensor:
        """(W h + b) / temperature, [N, V]."""
        bias = None if self.bias is None else self.bias / self.temperature
        return functional.linear(hidden / self.temperature, self.weight, bias)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """[N, V]."""
        return self.logits(hidden).log_softmax(-1)

    def tangent(self, hidden: Tensor, direction: Tensor | None, moved: Head | None) -> Tensor:
        """Derivative [N, V] of the logits.

        Args:
            hidden: [N, D].
            direction: [N, D] along which the hidden states move; None: they do not.
            moved: The direction along which this head's own parameters move; None: they do not.
        """
        steps = [] if direction is None else [replace(self, bias=None).logits(direction)]
        if moved is not None:
            steps.append(moved.logits(hidden))
        return sum(steps[1:], steps[0])

    def to(self, dtype: torch.dtype) -> Head:
        """In another precision."""
        bias = None if self.bias is None else self.bias.to(dtype)
        return Head(self.weight.to(dtype), bias, self.temperature)

    def clone(self) -> Head:
        """With storage of its own."""
        bias = None if self.bias is None else self.bias.clone()
        return Head(self.weight.clone(), bias, self.temperature)


@dataclass(frozen=True)
class LazyLogProbs:
    """log pi [..., V] of a frozen policy, kept as its hidden states [..., D] and its head.

    It stands in `Evaluation.params` and `Batch.reference` where the array itself would; taking
    rows and changing precision are what the core does with either.
    """

    hidden: Tensor
    head: Head

    def __getitem__(self, index: Any) -> LazyLogProbs:
        return LazyLogProbs(self.hidden[index], self.head)

    def to(self, *, dtype: torch.dtype, copy: bool = False) -> LazyLogProbs:
        """In another precision; nothing is ever written to, so it need not be copied."""
        return LazyLogProbs(self.hidden.to(dtype), self.head.to(dtype))

    def flat(self) -> LazyLogProbs:
        """One leading axis instead of any."""
        return LazyLogProbs(self.hidden.flatten(end_dim=-2), self.head)

    def dense(self) -> Tensor:
        """[..., V]."""
        return self.head.log_probs(self.hidden)

    def __radd__(self, other: Any) -> NoReturn:
        vocabulary = self.head.weight.shape[0]
        raise ValueError(
            f"a mixture of language models (cpi) holds log-probabilities over the vocabulary for "
            f"every token, and {vocabulary} tokens are too many for that; use a model with a small "
            "vocabulary, or another method"
        )


def dense(log_probs: Tensor | LazyLogProbs) -> Tensor:
    """log pi [..., V], computed where it is not held."""
    return log_probs.dense() if isinstance(log_probs, LazyLogProbs) else log_probs


@dataclass(frozen=True)
class Vocabulary(Categorical):
    """One token among `n`, whose log-probabilities may be lazy.

    Attributes:
        chunk: Tokens whose log-probabilities are held at once.
    """

    chunk: int = 1

    def params(self, xp: Namespace, raw: Params) -> Params:
        return raw if isinstance(raw[0], LazyLogProbs) else super().params(xp, raw)

    def kl(self, xp: Namespace, old: Params, new: Params) -> Array:
        if not isinstance(old[0], LazyLogProbs):
            return super().kl(xp, old, new)
        before, after = old[0].flat(), new[0].flat()
        pieces = [
            super(Vocabulary, self).kl(xp, (before[at].dense(),), (after[at].dense(),))
            for at in slices(len(before.hidden), self.chunk)
        ]
        return torch.cat(pieces).view(old[0].hidden.shape[:-1])
