"""Everything that one language-model run needs, behind the interface that the loop knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from redline.algorithms.core.types import Critic, Metrics, Need, Rollout
from redline.llm_track import checks
from redline.llm_track.critic import HeadCritic
from redline.llm_track.evaluate import LanguageEvaluator
from redline.llm_track.models import checkpoint_layers, load_model
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.rewards import RewardWeights
from redline.llm_track.sampler import Generation, LanguageSampler, SamplingSettings
from redline.llm_track.tasks import TaskSettings, language_task


@dataclass(frozen=True)
class LanguageSettings:
    """Settings of the language-model track.

    Attributes:
        model: "tiny" (ships, one token per character), a local folder, or a hub id.
        dtype: "float32", "bfloat16" or "float64".
        device: As torch names it.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, slower.
        temperature: Of sampling and of the policy that learns.
        max_completion: Most tokens of a completion.
        digits: Of the numbers of llm:arithmetic.
        operands: Numbers in a sum of llm:arithmetic.
        prompt: Template of the prompt; None: the task's own.
        generator: Settings of a reasoning-gym generator.
        accuracy_reward: Paid for a right answer.
        format_reward: Paid for an ending in the asked form.
        eval_problems: Held-out problems of an evaluation.
        eval_samples: Sampled completions of each.
        stale: Rollouts come from the policy of this many updates ago.
    """

    model: str = "tiny"
    dtype: str = "float32"
    device: str = "cpu"
    gradient_checkpointing: bool = False
    temperature: float = 1.0
    max_completion: int = 64
    digits: int = 3
    operands: int = 2
    prompt: str | None = None
    generator: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    accuracy_reward: float = 1.0
    format_reward: float = 0.0
    eval_problems: int = 200
    eval_samples: int = 4
    stale: int = 0

    def task_settings(self) -> TaskSettings:
        """What concerns the task."""
        return TaskSettings(self.digits, self.operands, self.prompt, self.generator)

    def sampling_settings(self) -> SamplingSettings:
        """What concerns completions and their rewards."""
        reward = RewardWeights(self.accuracy_reward, self.format_reward)
        return SamplingSettings(self.temperature, self.max_completion, reward)


@dataclass
class LanguageTrack:
    """Policy, critic, sampler and evaluator of one run.

    Attributes:
        policy: Acts and learns.
        critic: V, None when the method has none.
        sampler: Source of rollouts.
        evaluator: Held-out problems.
        stale: Age in updates of the policy that collects.
        unit: What a step of the x-axis is.
    """

    policy: Any
    critic: Critic | None
    sampler: LanguageSampler
    evaluator: LanguageEvaluator
    stale: int = 0
    unit: str = field(default="completions", init=False)
    _past: deque[Any] = field(default_factory=deque, init=False)

    def collect(self, policy: Any, need: Need) -> Rollout:
        """One rollout, of the policy as it was `stale` calls ago (or at the first call)."""
        if not self.stale:
            return self.sampler.collect(policy, need)
        current = policy.snapshot()
        self._past.append(current)
        if len(self._past) > self.stale + 1:
            self._past.popleft()
        policy.restore(self._past[0])
        try:
            return self.sampler.collect(policy, need)
        finally:
            policy.restore(current)

    def evaluate(self, policy: Any) -> Metrics:
        """eval/* on the held-out problems."""
        return self.evaluator.metrics(policy)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: evaluation needs the parameters alone."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""

    def close(self) -> None:
        """Nothing is held."""


def language_track(
    task: str, settings: LanguageSettings, *, needs_critic: bool, seed: int
) -> LanguageTrack:
    """Build all parts of a run from one seed, and check that they fit together.

    Args:
        task: For example "llm:arithmetic" or "llm:rg:chain_sum".
        settings: How.
        needs_critic: The method needs V.
        seed: Of problems and tokens; held-out problems do not depend on it.

    Raises:
        TaskError: There is no such task.
        ModelError: There is no such model, dtype or device.
        SamplingError: Settings or prompts that do not fit the model.
        CheckFailed: Sampling and scoring do not agree.
    """
    if settings.stale < 0:
        raise ValueError(f"stale must be at least 0, got {settings.stale}")
    problems = language_task(task, settings.task_settings())
    sampling = settings.sampling_settings()
    language_model = load_model(settings.model, settings.dtype, settings.device)
    policy = CausalLMPolicy(language_model.model, temperature=settings.temperature)
    if settings.gradient_checkpointing:
        checkpoint_layers(policy.model)
    generation = Generation(language_model, sampling)
    noise, trial = np.random.SeedSequence(seed).spawn(2)
    checks.start_up(
        policy,
        LanguageSampler(problems, generation, np.random.default_rng(trial), keep_log_prob=True),
        coarse=torch.finfo(policy.parameters.dtype).bits < 32,
    )
    evaluator = LanguageEvaluator(
        problems, generation, settings.eval_problems, settings.eval_samples
    )
    sampler = LanguageSampler(
        problems, generation, np.random.default_rng(noise), keep_log_prob=settings.stale > 0
    )
    critic = HeadCritic(policy) if needs_critic else None
    return LanguageTrack(policy, critic, sampler, evaluator, settings.stale)
