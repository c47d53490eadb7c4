"""TRL's GRPOTrainer at the settings of a row."""

from __future__ import annotations

import gc
import tempfile
import time
import warnings
from typing import Any

import numpy as np

from redline.benchmark.bench.comparisons_llm import LanguageComparison
from redline.benchmark.bench.llm import Curve
from redline.llm_track.models import load_model
from redline.llm_track.rewards import score
from redline.llm_track.tasks import language_task


class _Graded:
    """TRL's reward function: our verifier, and what it found rollout by rollout."""

    __name__ = "accuracy"

    def __init__(self, row: LanguageComparison, problems: list[Any], eos_id: int) -> None:
        self.right = {problem.prompt: problem.right for problem in problems}
        self.size, self.eos_id = row.prompts * row.group_size, eos_id
        self.accuracy: list[float] = []

    def __call__(self, **given: Any) -> list[float]:
        rows = zip(given["prompts"], given["completions"], given["completion_ids"], strict=True)
        found = [
            float(score(text, self.eos_id in list(ids), self.right[prompt]).correct)
            for prompt, text, ids in rows
        ]
        self.accuracy.append(float(np.mean(found)))
        return found


def trl(row: LanguageComparison, seed: int, rollouts: int) -> Curve:
    """One run of TRL.

    Its optimiser is AdamW without weight decay, with the epsilon that ours has.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model = load_model("tiny")
    tokenizer = model.tokenizer.tokenizer
    task = language_task(row.task)
    problems = task.training(np.random.default_rng(seed), rollouts * row.prompts)
    graded = _Graded(row, problems, model.tokenizer.eos_id)
    completions = row.prompts * row.group_size
    seconds: list[float] = []
    begun: list[float] = []

    class Clock(TrainerCallback):
        """CPU time at the end of every rollout's last step."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            begun.append(time.process_time())

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % row.steps_per_rollout == 0:
                seconds.append(time.process_time() - begun[0])

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = GRPOConfig(
            output_dir=folder,
            seed=seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=completions // row.steps_per_rollout,
            steps_per_generation=row.steps_per_rollout,
            num_generations=row.group_size,
            num_iterations=1,
            max_steps=rollouts * row.steps_per_rollout,
            max_completion_length=row.max_completion,
            learning_rate=row.lr,
            lr_scheduler_type="constant",
            adam_epsilon=1e-5,
            weight_decay=0.0,
            max_grad_norm=row.max_grad_norm,
            beta=0.0,
            epsilon=row.clip,
            loss_type="bnpo",
            scale_rewards="group",
            temperature=1.0,
            shuffle_dataset=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            log_level="error",
        )
        trainer = GRPOTrainer(
            model=model.model,
            reward_funcs=graded,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": each.prompt} for each in problems]),
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        gc.collect()
        trainer.train()
    return Curve(seconds, graded.accuracy, completions)
