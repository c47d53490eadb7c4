"""Completions of prompts by a policy, their scores and their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redline.algorithms.core.types import Metrics
from redline.llm_track.decoding import Completions, Prompts, decoder_of, generate, pad_left
from redline.llm_track.extraction import Reading
from redline.llm_track.models import LanguageModel
from redline.llm_track.problems import Problem
from redline.llm_track.ranks import ALONE, Ranks
from redline.llm_track.rewards import Answered, Rewards, Score, score


class SamplingError(ValueError):
    """A rollout that cannot be had, in one sentence."""


@dataclass(frozen=True)
class SamplingSettings:
    """How completions are made.

    Attributes:
        temperature: Divides the logits; must be the policy's own.
        max_completion: Most tokens of a completion, its end included; what is longer is cut.
        reward: What an answer is paid.
        reading: Which answer of a completion counts.

    Raises:
        SamplingError: No positive temperature, or no room for a token and the end.
    """

    temperature: float = 1.0
    max_completion: int = 64
    reward: Rewards = field(default_factory=Rewards)
    reading: Reading = "strict"

    def __post_init__(self) -> None:
        if not self.temperature > 0.0:
            raise SamplingError(
                f"temperature must be above 0 while training, got {self.temperature}: there the "
                "log-probabilities of a greedy choice have no gradient"
            )
        if self.max_completion < 2:
            raise SamplingError(f"max_completion must be at least 2, got {self.max_completion}")


class Generation:
    """Completes problems with a policy and scores what comes out.

    Args:
        language_model: Gives the tokenizer and the context; the weights are the policy's.
        settings: How.
        ranks: Processes that share the prompts.
    """

    def __init__(
        self, language_model: LanguageModel, settings: SamplingSettings, ranks: Ranks = ALONE
    ) -> None:
        self.ranks = ranks
        self.language_model, self.settings = language_model, settings

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """Tokens of prompts, [P, L].

        Raises:
            SamplingError: A prompt leaves no room for a completion.
        """
        rows = [self.language_model.tokenizer.prompt(text) for text in texts]
        longest, cap = max(map(len, rows)), self.settings.max_completion
        if longest + cap > self.language_model.context:
            raise SamplingError(
                f"a prompt of {longest} tokens and a completion of up to {cap} exceed the context "
                f"of {self.language_model.name} ({self.language_model.context} tokens): choose a "
                "smaller max_completion, shorter prompts or another model"
            )
        return pad_left(rows, self.language_model.tokenizer.pad_id)

    def complete(
        self,
        policy: Any,
        prompts: Prompts,
        repeat: int,
        rng: np.random.Generator | None,
        keep_states: bool = False,
    ) -> Completions:
        """`repeat` completions of every prompt; the greedy ones where `rng` is None."""
        tokenizer = self.language_model.tokenizer
        return generate(
            decoder_of(policy, self.settings.temperature),
            prompts,
            repeat=repeat,
            cap=self.settings.max_completion,
            eos_id=tokenizer.eos_id,
            pad_id=tokenizer.pad_id,
            rng=rng,
            ranks=self.ranks,
            keep_states=keep_states,
        )

    def scores(self, problems: Sequence[Problem], completions: Completions) -> list[Score]:
        """Score of every row; rows of one problem stand together.

        One process verifies: a comparison that takes too long for one of several may not for
        another.
        """
        repeat = len(completions.tokens) // len(problems)
        texts = self.texts(completions)
        return self.ranks.once(
            lambda: [
                score(text, bool(ended), problems[row // repeat].right, self.settings.reading)
                for row, (text, ended) in enumerate(zip(texts, completions.ended, strict=True))
            ]
        )

    def rewards(
        self, answered: Sequence[Answered], rng: np.random.Generator
    ) -> tuple[list[float], Metrics]:
        """Reward of every row, and means; one process computes them, whatever they depend on.

        Raises:
            RewardError: A function of the user failed.
        """
        reward, means, rng.bit_generator.state = self.ranks.once(
            lambda: (*self.settings.reward(answered, rng), rng.bit_generator.state)
        )
        return reward, means

    def texts(self, completions: Completions) -> list[str]:
        """Text of every row, without its end of sequence."""
        pairs = zip(completions.tokens, completions.mask, strict=True)
        return [self.language_model.tokenizer.decode(row[valid].tolist()) for row, valid in pairs]
