"""What samples a run's completions: the same parts from the same settings, in any process."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from redline.llm_track.attention import AttentionClip, install
from redline.llm_track.freeze import freeze
from redline.llm_track.generation import Generation
from redline.llm_track.lora import add_adapters
from redline.llm_track.models import checkpoint_layers, load_model
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.pretrained import ModelError
from redline.llm_track.problems import LanguageTask
from redline.llm_track.ranks import Ranks, RanksError, join
from redline.llm_track.sampler import LanguageSampler
from redline.llm_track.settings import Freeze, LanguageSettings
from redline.llm_track.tasks import language_task


class Parts(NamedTuple):
    """Of one run, before its first update.

    Attributes:
        problems: What is asked.
        policy: What answers.
        generation: How.
        rng: Draws problems and tokens of the rollouts.
        trial: Those of the checks before.
        note: What the user should know of the model, "" where there is nothing.
        clip: Of its attention; None where it attends as it always does.
    """

    problems: LanguageTask
    policy: CausalLMPolicy
    generation: Generation
    rng: np.random.Generator
    trial: np.random.Generator
    note: str
    clip: AttentionClip | None

    def sampler(self, keep_log_prob: bool) -> LanguageSampler:
        """The source of all rollouts."""
        return LanguageSampler(self.problems, self.generation, self.rng, keep_log_prob)


def _learning(model: Any, settings: LanguageSettings, seed: int) -> str:
    """Decide what of a model learns; one sentence about it, "" for all."""
    frozen = settings.freeze != Freeze()
    if settings.lora is None:
        return freeze(model, settings.freeze) if frozen else ""
    if frozen:
        raise ModelError("lora leaves the whole model as it is: leave out what freeze names")
    return add_adapters(model, settings.lora, seed)


def assemble(task: str, settings: LanguageSettings, seed: int) -> Parts:
    """Load the model and make the task.

    Raises:
        TaskError: There is no such task.
        ModelError: There is no such model, dtype or device, or it has no such parts to freeze.
        SamplingError: Settings that no completion can be made with.
        RanksError: The processes of a launcher cannot train together.
    """
    ranks = join(settings.device)
    problems = language_task(task, settings.task_settings())
    sampling = settings.sampling_settings()
    language_model = load_model(settings.model, settings.dtype, settings.device)
    clip = _attention(language_model.model, settings, ranks)
    note = _learning(language_model.model, settings, seed)
    policy = _policy(language_model.model, settings.temperature, ranks)
    if settings.gradient_checkpointing:
        checkpoint_layers(policy.model)
    rng, trial = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    generation = Generation(language_model, sampling, ranks)
    return Parts(problems, policy, generation, rng, trial, note, clip)


def _policy(model: Any, temperature: float, ranks: Ranks) -> CausalLMPolicy:
    if ranks.in_step:
        from redline.llm_track.sharding import ShardedLMPolicy

        return ShardedLMPolicy(model, temperature, ranks=ranks)
    policy = CausalLMPolicy(model, temperature)
    policy.ranks = ranks
    return policy


def _attention(model: Any, settings: LanguageSettings, ranks: Ranks) -> AttentionClip | None:
    if settings.attention_clip is None and settings.ratio_weight == "none":
        return None
    if ranks.count > 1:
        raise RanksError(
            "attention_clip and ratio_weight need one process: each of several would have "
            "statistics of its own rows"
        )
    if settings.sampler_process:
        raise ModelError(
            "sampler_process must be off with attention_clip and ratio_weight: statistics of the "
            "attention are kept in one process"
        )
    try:
        return install(model, settings.attention_clip)
    except ValueError as error:
        raise ModelError(str(error)) from error
