"""`make gpu-check`: GRPO, PPO and TRPO updates of a language model on a GPU, and whether it agrees.

Three parts, a few minutes in all:

1. Agreement: a small model in float32 on the device against the same on the CPU, and in bfloat16.
2. GRPO and PPO in bfloat16, TRPO in float32, on the shape of Qwen2.5-0.5B: tokens per second of
   sampling and learning, and peak memory. Weights are random unless --model names a folder.
3. After every update: nothing is nan, parameters have moved, TRPO's KL keeps to its bound.

It needs torch, numpy, transformers and array-api-compat alone, and no installation. Without a GPU
it checks a micro shape on the CPU, which shows no more than that it works. Exit code 1: something
disagrees.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "typing"))  # where redline is not installed

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from redline.algorithms.core.learner import Learner
from redline.algorithms.core.types import Batch, Need, Progress, Rollout
from redline.algorithms.grpo import GRPO
from redline.algorithms.ppo import PPO
from redline.algorithms.trpo import TRPO
from redline.llm_track.critic import HeadCritic
from redline.llm_track.decoding import Completions, decoder_of, generate, pad_left
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.sampler import observation

PAD, EOS = 0, 1
# Of |log ratio| between sampling with a cache and scoring, the largest in float32 and the mean in
# bfloat16: a run that finds more ends before its first update.
FLOAT32_TOLERANCE, BFLOAT16_TOLERANCE = 1e-4, 0.1
# Relative error of a gradient or a Fisher product in float32 against the CPU's.
DERIVATIVE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of a rollout.

    Attributes:
        model: Of Qwen2Config.
        groups: Prompts, each of `prompt` tokens at most.
        group_size: Completions of each, of `completion` tokens at most.
    """

    model: dict[str, int]
    groups: int
    group_size: int
    prompt: int
    completion: int


QWEN = Shape(
    {
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
    },
    groups=16,
    group_size=8,
    prompt=128,
    completion=256,
)
MICRO = Shape(
    {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    },
    groups=4,
    group_size=4,
    prompt=12,
    completion=16,
)


def random_model(shape: Shape) -> Any:
    """A Qwen2 with random weights, the same whatever the device."""
    config = Qwen2Config(
        **shape.model,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config)


class Prompts:
    """Random prompts and their completions, as rollouts.

    Args:
        shape: Sizes.
        seed: Of prompts, tokens and lengths.
    """

    def __init__(self, shape: Shape, seed: int) -> None:
        self._shape, self._rng = shape, np.random.default_rng(seed)
        self.seconds, self.tokens = 0.0, 0

    def collect(self, policy: CausalLMPolicy, need: Need) -> Rollout:
        """A rollout whose rewards are a coin that each completion's tokens decide."""
        assert need.groups is not None
        vocabulary = self._shape.model["vocab_size"]
        lengths = self._rng.integers(self._shape.prompt // 2, self._shape.prompt + 1, need.groups)
        rows = [self._rng.integers(2, vocabulary, length).tolist() for length in lengths]
        prompts, start = pad_left(rows, PAD), time.perf_counter()
        found = generate(
            decoder_of(policy, policy.temperature),
            prompts,
            repeat=need.group_size,
            cap=self._shape.completion,
            eos_id=EOS,
            pad_id=PAD,
            rng=self._rng,
        )
        self.seconds, self.tokens = time.perf_counter() - start, int(found.mask.sum())
        found = self._shortened(found)
        mask, numbers = found.mask, np.arange(len(found.mask))
        last = np.zeros_like(mask)
        last[numbers, mask.sum(axis=1) - 1] = True
        reward = np.where(mask, found.tokens, 0).sum(axis=1) % 2
        return Rollout(
            observation=observation(prompts, found, need.group_size),
            action=found.tokens,
            reward=np.where(last, reward[:, None].astype(float), 0.0),
            mask=mask,
            terminated=last,
            truncated=np.zeros_like(mask),
            episode_id=np.where(mask, numbers[:, None], -1),
            group_of_episode=numbers // need.group_size,
            bootstrap=None,
            whole_episodes=True,
            steps=len(mask),
            episode_return=reward.tolist(),
            episode_length=mask.sum(axis=1).tolist(),
            log_prob=found.log_prob,
            metrics={},
        )

    def _shortened(self, found: Completions) -> Completions:
        """Cut at random lengths: with random weights nearly no completion ends by itself."""
        width = found.mask.shape[1]
        length = self._rng.integers((width + 1) // 2, width + 1, len(found.mask))
        mask = found.mask & (np.arange(width) < length[:, None])
        return found._replace(mask=mask, log_prob=np.where(mask, found.log_prob, 0.0))


@dataclass
class Findings:
    """What was measured, and whether it is as it must be."""

    failed: int = 0

    def require(self, what: str, value: float, limit: float) -> None:
        """One line; a value that is not below its limit is a failure, nan too."""
        fine = value < limit
        self.failed += not fine
        print(f"  {what:58} {value:10.3g}  {'ok' if fine else f'NOT below {limit:g}'}", flush=True)


def batch_of(policy: CausalLMPolicy, rollout: Rollout) -> Batch:
    """The rollout with its rewards as advantages."""
    advantage = np.where(rollout.mask, rollout.reward.sum(axis=1, keepdims=True) - 0.5, 0.0)
    fields = (rollout.observation, rollout.action, advantage, rollout.log_prob, rollout.mask)
    return Batch(*(policy.asarray(field) for field in fields))


def log_ratio(policy: CausalLMPolicy, rollout: Rollout) -> Any:
    """|log pi(scored) - log pi(sampled)| of every token."""
    scored = policy.evaluate(batch_of(policy, rollout)).log_prob.cpu().numpy()
    return np.abs(scored - rollout.log_prob)[rollout.mask]


def agreement(device: torch.device, findings: Findings) -> None:
    """A small model on the device against the CPU, in float32 and bfloat16."""
    print(f"agreement of a small model on {device} with float32 on the CPU")
    model = random_model(MICRO)
    cpu = CausalLMPolicy(copy.deepcopy(model))
    there = CausalLMPolicy(copy.deepcopy(model).to(device))
    narrow = CausalLMPolicy(model.to(device, torch.bfloat16))
    rollout = Prompts(MICRO, seed=0).collect(cpu, Need(groups=4, group_size=4))
    found = log_ratio(there, rollout)
    findings.require(
        "float32: largest difference of a log-probability", found.max(), FLOAT32_TOLERANCE
    )
    found = log_ratio(narrow, rollout)
    findings.require("bfloat16: mean difference", found.mean(), BFLOAT16_TOLERANCE)
    direction = np.random.default_rng(0).normal(size=cpu.parameters.shape).astype(np.float32)
    results = []
    for policy in (cpu, there):
        batch = batch_of(policy, rollout)
        policy.gradient(batch, lambda log_prob, a=batch.advantage: a * torch.ones_like(log_prob))
        product = policy.fisher_product(batch)(policy.asarray(direction))
        results.append([x.cpu().double() for x in (policy.gradient_buffer, product)])
    for what, ours, theirs in zip(("gradient", "Fisher product"), *results, strict=True):
        error = float((ours - theirs).norm() / ours.norm())
        findings.require(f"float32: relative error of the {what}", error, DERIVATIVE_TOLERANCE)


@dataclass(frozen=True)
class Method:
    """One recipe as it is checked.

    Attributes:
        name: Of the line that is printed.
        dtype: Of the parameters.
        recipe: Settings for a rollout of `groups` x `group_size` completions.
    """

    name: str
    dtype: torch.dtype
    recipe: Callable[[Shape], Any]


def grpo(shape: Shape) -> GRPO:
    quarter = shape.groups * shape.group_size // 4
    return GRPO(
        groups=shape.groups,
        group_size=shape.group_size,
        epochs=1,
        minibatch_size=quarter,
        lr=1e-3,
        lr_decay=False,
    )


def ppo(shape: Shape) -> PPO:
    episodes = shape.groups * shape.group_size
    return PPO(
        n_steps=None,
        episodes=episodes,
        gamma=1.0,
        gae_lambda=1.0,
        epochs=1,
        minibatch_size=episodes // 4,
        lr=1e-3,
    )


def trpo(shape: Shape) -> TRPO:
    episodes = shape.groups * shape.group_size
    return TRPO(
        n_steps=None,
        episodes=episodes,
        gamma=1.0,
        gae_lambda=1.0,
        fisher_rows=max(1, episodes // 4),
        cg_iterations=4,
        damping=0.1,
        delta=0.005,
    )


METHODS = (
    Method("grpo", torch.bfloat16, grpo),
    Method("ppo", torch.bfloat16, ppo),
    Method("trpo", torch.float32, trpo),
)


def models(shape: Shape, folder: str | None, device: torch.device) -> Iterator[tuple[Method, Any]]:
    """A fresh model for every method."""
    for method in METHODS:
        if folder is None:
            model = random_model(shape)
        else:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        yield method, model.to(device, method.dtype)


def updates(method: Method, model: Any, shape: Shape, count: int, findings: Findings) -> None:
    """A first update, which compiles and allocates, then `count` that are measured."""
    policy = CausalLMPolicy(model)
    device, recipe = policy.parameters.device, method.recipe(shape)
    algorithm = recipe.build()
    critic = HeadCritic(policy, 64, np.random.default_rng(0)) if algorithm.needs_critic else None
    learner = Learner(algorithm, policy, critic, np.random.default_rng(0))
    source, before = Prompts(shape, seed=1), policy.snapshot()
    sampled = learned = rows = 0
    seconds = {"sampling": 0.0, "learning": 0.0}
    metrics: dict[str, float] = {}
    for number in range(count + 1):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        rollout = source.collect(policy, algorithm.need)
        difference = log_ratio(policy, rollout)
        synchronise(device)
        start = time.perf_counter()
        metrics = learner.update(rollout, Progress(0, 100))
        synchronise(device)
        if number:
            seconds["learning"] += time.perf_counter() - start
            seconds["sampling"] += source.seconds
            sampled, learned = sampled + source.tokens, learned + int(rollout.mask.sum())
            rows += len(rollout.mask)
    kind = str(method.dtype).removeprefix("torch.")
    print(
        f"{method.name} in {kind}: sampling {sampled / seconds['sampling']:,.0f} tokens/s, "
        f"learning {learned / seconds['learning']:,.0f} tokens/s "
        f"({seconds['learning'] / count:.2f} s per update of {rows // count} completions), "
        f"{memory(device)}"
    )
    narrow = method.dtype == torch.bfloat16
    limit = BFLOAT16_TOLERANCE if narrow else FLOAT32_TOLERANCE
    found = difference.mean() if narrow else difference.max()
    what = "mean" if narrow else "largest"
    findings.require(f"sampling against scoring: {what} |log ratio|", float(found), limit)
    wrong = [name for name, value in metrics.items() if not np.isfinite(value)]
    findings.require(f"metrics that are not finite {wrong or ''}", len(wrong), 1)
    still = float((policy.parameters == before).all())
    findings.require("parameters have moved (0: yes)", still, 1)
    if method.name == "trpo":
        findings.require("KL of the last step", metrics["train/kl"], recipe.delta * 1.001)


def synchronise(device: torch.device) -> None:
    """Wait for what was started, so that a time is that of the work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory(device: torch.device) -> str:
    """Peak of the last update."""
    if device.type != "cuda":
        return "memory is measured on a GPU alone"
    return f"peak memory {torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB"


def main(arguments: list[str] | None = None) -> int:
    """Run all three parts; 1 where something disagrees."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", help="a local folder, in place of random weights")
    parser.add_argument("--updates", type=int, default=3, help="that are measured, of each method")
    parser.add_argument("--micro", action="store_true", help="a micro shape, on any device")
    chosen = parser.parse_args(arguments)
    device, findings = torch.device(chosen.device), Findings()
    micro = chosen.micro or device.type == "cpu"
    if device.type == "cuda":
        print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    elif micro and not chosen.micro:
        print("no GPU here: a micro shape on the CPU instead")
    agreement(device, findings)
    shape = MICRO if micro else QWEN
    folder = None if micro else chosen.model
    for method, model in models(shape, folder, device):
        updates(method, model, shape, chosen.updates, findings)
        del model
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print(f"{findings.failed} of the checks failed" if findings.failed else "all checks passed")
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
