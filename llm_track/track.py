"""Everything that one language-model run needs, behind the interface that the loop knows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from redline.algorithms.core.contracts import Critic
from redline.algorithms.core.types import Metrics, Need, Rollout
from redline.llm_track import checks
from redline.llm_track.critic import HeadCritic
from redline.llm_track.evaluate import LanguageEvaluator
from redline.llm_track.models import checkpoint_layers, load_model
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.sampler import Generation, LanguageSampler
from redline.llm_track.settings import LanguageSettings
from redline.llm_track.tasks import language_task


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
