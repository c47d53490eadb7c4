"""Everything that one language-model run needs, behind the interface that the loop knows."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch

from redline.algorithms.core.contracts import Critic
from redline.algorithms.core.types import Metrics, Need, Rollout
from redline.llm_track import checks
from redline.llm_track.assembly import Parts, assemble
from redline.llm_track.attention import AttentionClip
from redline.llm_track.critic import HeadCritic
from redline.llm_track.evaluate import LanguageEvaluator
from redline.llm_track.generation import Generation
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.ranks import RanksError, join
from redline.llm_track.ratio_weights import WeightedSampler
from redline.llm_track.settings import LanguageSettings
from redline.llm_track.stale import ProcessSampler, StaleSampler, Worker


class Sampler(Protocol):
    """A source of rollouts."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Questions passed over so far, as the task has them."""

    def collect(self, policy: Any, need: Need) -> Rollout:
        """One rollout of the policy, or of what it was some updates ago."""

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides the policy."""

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`."""


@dataclass
class LanguageTrack:
    """Policy, critic, sampler and evaluator of one run.

    Attributes:
        policy: Acts and learns.
        critic: V, None when the method has none.
        sampler: Source of rollouts.
        evaluator: Held-out problems.
        note: What the user should know of the model, "" where there is nothing.
        schedule: Temperature at the end of the budget, and how the rollouts' completions are made;
            None: the temperature stays as it is.
        clip: Of the attention; its statistics move between rounds. None: there is none.
        unit: What a step of the x-axis is.
    """

    policy: Any
    critic: Critic | None
    sampler: Sampler
    evaluator: LanguageEvaluator
    note: str = ""
    schedule: tuple[float, Generation] | None = None
    clip: AttentionClip | None = None
    unit: str = field(default="completions", init=False)

    def advance(self, policy: Any, fraction: float) -> None:
        """Sampling and policy take the temperature of a moment of the budget, 0 to 1."""
        if self.clip is not None:
            self.clip.commit()
        if self.schedule is None:
            return
        end, generation = self.schedule
        start = self.evaluator.generation.settings.temperature
        temperature = (1.0 - fraction) * start + fraction * end
        generation.settings = replace(generation.settings, temperature=temperature)
        for part in getattr(policy, "components", [policy]):
            part.temperature = temperature

    def collect(self, policy: Any, need: Need) -> Rollout:
        """One rollout; see the sampler."""
        if self.clip is None:
            return self.sampler.collect(policy, need)
        self.clip.observing = True
        try:
            return self.sampler.collect(policy, need)
        finally:
            self.clip.observing = False

    def texts(self, rollout: Rollout, rows: Sequence[int]) -> list[tuple[str, str]]:
        """Prompt and completion of some rows of a rollout, without special tokens."""
        decode = self.evaluator.generation.language_model.tokenizer.decode
        width = rollout.mask.shape[1]
        found = []
        for row in rows:
            tokens, real = rollout.observation[row, :-width].T
            completion = rollout.action[row][rollout.mask[row]]
            found.append((decode(tokens[real != 0].tolist()), decode(completion.tolist())))
        return found

    def evaluate(self, policy: Any) -> Metrics:
        """eval/* on the held-out problems."""
        return self.evaluator.metrics(policy)

    @property
    def left_out(self) -> dict[str, str]:
        """Questions passed over, since nothing can be compared with their gold: place -> gold."""
        return {**self.evaluator.left_out, **self.sampler.left_out}

    def state_dict(self) -> dict[str, Any]:
        """What evaluation needs besides the parameters: the statistics of the attention's clip."""
        return {} if self.clip is None else {"attention": self.clip.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        if self.clip is not None:
            self.clip.load_state_dict(state["attention"])

    @property
    def exact(self) -> bool:
        """A run goes on from `progress` bit for bit."""
        return True

    def progress(self) -> dict[str, Any]:
        """What the next rollout depends on besides the policy."""
        return self.sampler.progress()

    def resume(self, progress: dict[str, Any]) -> None:
        """Go on from `progress`."""
        self.sampler.resume(progress)

    def close(self) -> None:
        """Nothing is held."""


def language_track(
    task: str,
    settings: LanguageSettings,
    *,
    needs_critic: bool,
    seed: int,
    worker: Worker | None = None,
) -> LanguageTrack:
    """Build all parts of a run from one seed, and check that they fit together.

    Args:
        task: For example "llm:arithmetic" or "llm:rg:chain_sum".
        settings: How.
        needs_critic: The method needs V.
        seed: Of problems and tokens; held-out problems do not depend on it.
        worker: Samples the rollouts; None: this process does, and they are the same.

    Raises:
        TaskError: There is no such task.
        ModelError: There is no such model, dtype or device.
        SamplingError: Settings or prompts that do not fit the model.
        CheckFailed: Sampling and scoring do not agree.
        SamplerProcessError: The worker failed.
        RanksError: The processes of a launcher cannot train together.
        ValueError: A negative staleness, or 0 with a worker.
    """
    least = 0 if worker is None else 1
    if settings.stale < least:
        raise ValueError(f"stale must be at least {least}, got {settings.stale}")
    if worker is not None and join(settings.device).count > 1:
        raise RanksError(
            "sampler_process must be off where several processes train together: each samples its "
            "share of the prompts"
        )
    # First, so that it loads the model while this process does.
    remote = None if worker is None else ProcessSampler(worker, task, settings, seed)
    parts = assemble(task, settings, seed)
    checks.start_up(
        parts.policy,
        parts._replace(rng=parts.trial).sampler(keep_log_prob=True),
        coarse=torch.finfo(parts.policy.parameters.dtype).bits < 32,
    )
    evaluator = LanguageEvaluator(
        # Its own, for its temperature stays.
        parts.problems,
        copy.copy(parts.generation),
        settings.eval_problems,
        settings.eval_samples,
    )
    critic = _critic(parts.policy, settings, seed) if needs_critic else None
    if remote is not None:
        remote.wait()
    sampler = remote or _local(parts, settings)
    end = settings.temperature_end
    schedule = None if end is None else (end, parts.generation)
    return LanguageTrack(parts.policy, critic, sampler, evaluator, parts.note, schedule, parts.clip)


def _critic(policy: CausalLMPolicy, settings: LanguageSettings, seed: int) -> HeadCritic:
    # A stream beside those of `assemble`.
    weights = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
    return HeadCritic(policy, settings.value_hidden, weights)


def _local(parts: Parts, settings: LanguageSettings) -> Sampler:
    stale = settings.stale
    fresh = parts.sampler(keep_log_prob=stale > 0)
    sampler = StaleSampler(fresh, stale) if stale else fresh
    reading = settings.ratio_weight
    return sampler if reading == "none" else WeightedSampler(sampler, reading)
