"""Supervised training on demonstrations, before any reward: what a policy starts from."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from redline.llm_track.characters import character_tokenizer
from redline.llm_track.demonstrations import Demonstration, DemonstrationError, Habits
from redline.llm_track.models import LanguageModel, tiny_model, wrap

Report = Callable[[int, float], None]

# Steps whose mean loss says how far a model has come.
_WINDOW = 100


class Diverged(RuntimeError):
    """A training that has come to nothing, in one sentence."""


@dataclass(frozen=True)
class Supervised:
    """How demonstrations are imitated: AdamW, a linear warm-up, then a cosine to 0.

    Attributes:
        steps: Optimiser steps.
        batch: Demonstrations per step.
        lr: Highest learning rate.
        warmup: Steps until it is reached.
        weight_decay: Of AdamW.
        max_grad_norm: Clip of the gradient norm.
        parts: A batch is sorted by length and run through in so many parts, which wastes less
            on padding; the gradient is the same.
        stop_below: End once the mean loss of the last 100 steps is below this, in nats per token;
            None: after all steps. How far a model has come then depends little on the processor's
            rounding, which a number of steps does not ensure where learning is sudden.
    """

    steps: int = 300
    batch: int = 32
    lr: float = 1e-4
    warmup: int = 50
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    parts: int = 2
    stop_below: float | None = None

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * done))

    def enough(self, losses: Collection[float]) -> bool:
        """Whether the last losses are low enough to end early."""
        if self.stop_below is None or len(losses) < _WINDOW:
            return False
        return math.fsum(losses) / len(losses) < self.stop_below


def imitate(
    language_model: LanguageModel,
    batches: Iterator[Sequence[Demonstration]],
    settings: Supervised,
    report: Report | None = None,
) -> None:
    """Train a model in place: -log-likelihood of the completions, mean over their tokens.

    Args:
        language_model: What learns.
        batches: Demonstrations of every step.
        settings: How.
        report: Called with the step, counted from 1, and its loss in nats per token.

    Raises:
        Diverged: The loss is not finite any more.
    """
    model, encode = language_model.model, Encoder(language_model)
    losses: deque[float] = deque(maxlen=_WINDOW)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    for step in range(settings.steps):
        rows = sorted(map(encode, next(batches)), key=lambda row: len(row.tokens))
        count = sum(len(row.tokens) - row.prompt for row in rows)
        size = math.ceil(len(rows) / settings.parts)
        total = 0.0
        for start in range(0, len(rows), size):
            loss = negative_log_likelihood(model, rows[start : start + size]) / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        if not math.isfinite(total):
            raise Diverged(
                f"the loss is {total} at step {step + 1}: lr {settings.lr:g} is too large"
            )
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for group in optimiser.param_groups:
            group["lr"] = settings.rate(step)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(total)
        if report is not None:
            report(step + 1, total)
        if settings.enough(losses):
            break


def require_fit(language_model: LanguageModel, demonstrations: Iterable[Demonstration]) -> None:
    """See to it that the model can read and write every demonstration.

    Raises:
        DemonstrationError: One is longer than the context.
        TextError: The tokenizer lacks a character.
    """
    encode = Encoder(language_model)
    for demonstration in demonstrations:
        encode(demonstration)


class Encoded(NamedTuple):
    """Tokens of prompt and completion, and how many belong to the prompt."""

    tokens: list[int]
    prompt: int


class Encoder:
    """Demonstrations as tokens."""

    def __init__(self, language_model: LanguageModel) -> None:
        self._model = language_model

    def __call__(self, demonstration: Demonstration) -> Encoded:
        tokenizer = self._model.tokenizer
        prompt = tokenizer.prompt(demonstration.prompt)
        tokens = prompt + tokenizer.completion(demonstration.completion)
        if len(tokens) > self._model.context:
            raise DemonstrationError(
                f"a demonstration has {len(tokens)} tokens and the model's context is "
                f"{self._model.context}: {demonstration.prompt[:40]!r}"
            )
        return Encoded(tokens, len(prompt))


def negative_log_likelihood(model: Any, rows: Sequence[Encoded]) -> Tensor:
    """Sum over the completions' tokens, in nats."""
    longest = max(len(row.tokens) for row in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    target = torch.full((len(rows), longest), -100)
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens)] = torch.tensor(row.tokens)
        target[i, row.prompt : len(row.tokens)] = tokens[i, row.prompt : len(row.tokens)]
    tokens, target = (x.to(model.device) for x in (tokens, target))
    # Padding on the right needs no attention mask: no target looks at it.
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
    return functional.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )


# What the checkpoint that ships was trained with, from seed 0. It stops while answers at once are
# still mostly wrong and worked ones mostly right: 500 steps later both would be right.
SHIPPED = Supervised(steps=3600, lr=2e-3, stop_below=0.2)


def warm_tiny(
    habits: Habits, settings: Supervised, seed: int, report: Report | None = None
) -> LanguageModel:
    """A tiny model from random weights, trained on both habits.

    The same bits for the same seed on the same type of processor with one thread.
    """
    made = wrap("tiny", tiny_model(seed), character_tokenizer())
    imitate(made, habits.batches(np.random.default_rng(seed), settings.batch), settings, report)
    return made
