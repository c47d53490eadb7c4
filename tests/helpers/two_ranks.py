"""One of two processes that share a policy's rows: what they compute is what one alone computes.

Run with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment; ends with an
AssertionError where something differs.
"""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from language import micro_language_model
from micro import MODELS, micro_batch
from two_shards import same_completions, same_gradient, same_values

from redline.algorithms.core.types import Batch
from redline.llm_track.generation import Generation, SamplingSettings
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.ranks import Ranks, join, share
from redline.llm_track.rewards import Answered, RewardError, Rewards, Score


def pair(kind: str, together: Ranks, **settings: Any) -> tuple[CausalLMPolicy, CausalLMPolicy]:
    """The same policy alone and together with the other process."""
    alone = CausalLMPolicy(MODELS[kind](torch.float64), 0.7, **settings)
    shared = CausalLMPolicy(MODELS[kind](torch.float64), 0.7, **settings)
    shared.ranks = together
    return alone, shared


def same_policy(kind: str, together: Ranks, groups: int, **settings: Any) -> None:
    """Scores, divergences, gradient and Fisher product on `groups` x 3 rows."""
    alone, shared = pair(kind, together, **settings)
    batch = micro_batch(alone, groups=groups)
    v = torch.randn(len(alone.parameters), generator=torch.Generator().manual_seed(0)).double()
    for one, other in zip(derived(alone, batch, v), derived(shared, batch, v), strict=True):
        close(other, one, rtol=1e-10, atol=1e-12)
    close(
        shared.hidden(batch.observation, batch.mask),
        alone.hidden(batch.observation, batch.mask),
        rtol=1e-10,
        atol=1e-12,
    )


def derived(policy: CausalLMPolicy, batch: Batch, v: Any) -> list[Any]:
    evaluated = policy.evaluate(batch)
    # The weights look at all rows, as a standardised advantage or a clip by quantiles would.
    policy.gradient(batch, lambda log_prob: log_prob - log_prob.mean())
    return [
        evaluated.log_prob,
        evaluated.entropy,
        policy.kl(batch, evaluated),
        policy.gradient_buffer.clone(),
        policy.fisher_product(batch)(v),
    ]


def by_process(prompt: str, text: str, gold: str) -> float:
    """A reward that depends on who asks."""
    return float(os.environ["RANK"])


def fails_first(prompt: str, text: str, gold: str) -> float:
    if os.environ["RANK"] == "0":
        raise OSError("no answer")
    return 1.0


def same_rewards(together: Ranks) -> None:
    """One process pays; all know it, or what stopped it, and draw on alike."""
    answered = [Answered("1+2=", "#3", "3", Score(True, True, "3"))] * 20
    rng = np.random.default_rng(0)
    reward = Rewards({"two_ranks:by_process": 1.0, "random": 2.0})
    settings = SamplingSettings(max_completion=12, reward=reward)
    paid, _ = Generation(micro_language_model(), settings, together).rewards(answered, rng)
    assert {*paid} == {0.0, 2.0}
    assert share(rng.bit_generator.state) == rng.bit_generator.state
    failing = SamplingSettings(max_completion=12, reward=Rewards({"two_ranks:fails_first": 1.0}))
    with pytest.raises(RewardError, match="OSError: no answer"):
        Generation(micro_language_model(), failing, together).rewards(answered, rng)


def main() -> None:
    together = join("cpu")
    assert together.count == 2
    assert share(together.rank) == 0
    same_policy("gpt2", together, groups=1)
    same_policy("llama", together, groups=1, rows=1, chunk=2, full=False)
    same_values(*pair("llama", together))
    same_completions(together, ["1+2=", "31+4=", "5+600="])
    same_completions(together, ["1+2="])  # the second process has no prompt
    same_rewards(together)
    same_gradient(replace(together, in_step=True))
    print("same", together.rank)


if __name__ == "__main__":
    main()
