"""The vocabulary in chunks: numbers, lazy log-probabilities, memory."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from micro import MicroSampler, llama, micro_batch
from small import small

from redline.algorithms.core.conservative import ConservativeMixture
from redline.algorithms.core.distributions import Categorical
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.types import Need, Progress
from redline.llm_track.critic import HeadCritic
from redline.llm_track.head import Head, LazyLogProbs, Vocabulary, default_chunk
from redline.llm_track.policy import CausalLMPolicy


def random_head(seed: int, bias: bool = True) -> tuple[Head, Any]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((11, 4), (11,), (3, 5, 4))
    weight, offset, hidden = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    return Head(weight, offset if bias else None, 0.6), hidden


@pytest.mark.parametrize("bias", [False, True])
def test_the_head_is_a_tempered_softmax(bias: bool) -> None:
    head, hidden = random_head(0, bias)
    logits = hidden @ head.weight.T + (head.bias if bias else 0.0)
    close(head.log_probs(hidden), (logits / 0.6).log_softmax(-1), rtol=1e-12)


def test_the_tangent_is_the_derivative_of_the_logits() -> None:
    head, hidden = random_head(0)
    moved, direction = random_head(1)

    def logits(weight: Any, bias: Any, states: Any) -> Any:
        return Head(weight, bias, 0.6).logits(states)

    point, along = (head.weight, head.bias, hidden), (moved.weight, moved.bias, direction)
    close(head.tangent(hidden, direction, moved), torch.func.jvp(logits, point, along)[1])
    for expected, parts in (
        ((0.0 * moved.weight, 0.0 * moved.bias, direction), (direction, None)),
        ((moved.weight, moved.bias, 0.0 * direction), (None, moved)),
    ):
        close(head.tangent(hidden, *parts), torch.func.jvp(logits, point, expected)[1])


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_lazy_log_probs_behave_as_the_array(chunk: int) -> None:
    pairs = [random_head(seed) for seed in (0, 1)]
    lazy = [LazyLogProbs(hidden, head) for head, hidden in pairs]
    full = [part.dense() for part in lazy]
    expected = Categorical(11).kl(CausalLMPolicy.xp, full[:1], full[1:])
    vocabulary = Vocabulary(11, chunk)
    close(vocabulary.kl(CausalLMPolicy.xp, lazy[:1], lazy[1:]), expected)
    close(vocabulary.kl(CausalLMPolicy.xp, full[:1], full[1:]), expected)
    for index in (slice(1, 3), torch.tensor([2, 0]), (torch.tensor([0, 1]), torch.tensor([4, 2]))):
        close(lazy[0][index].dense(), full[0][index])
    narrow = CausalLMPolicy.xp.astype(lazy[0], torch.float32)
    assert narrow.dense().dtype == torch.float32
    assert vocabulary.params(CausalLMPolicy.xp, (narrow,)) == (narrow,)


def test_pi_old_stays_where_it_was_when_the_policy_moves() -> None:
    for full in (True, False):
        policy = CausalLMPolicy(llama(tied=True), full=full)
        batch = micro_batch(policy)
        reference = policy.evaluate(batch)
        held = reference.params[0]
        before = (held if full else held.dense()).clone()
        policy.parameters += 0.1
        after = held if full else held.dense()
        assert torch.equal(before, after)
        assert policy.evaluate(batch).log_prob.ne(reference.log_prob)[batch.mask].all()


def test_a_mixture_needs_a_small_vocabulary() -> None:
    lazy, full = (CausalLMPolicy(llama(), full=full) for full in (False, True))
    batch = micro_batch(full)
    assert MixturePolicy([full, full.copy()]).evaluate(batch).params[0].shape == (6, 8, 20)
    with pytest.raises(ValueError, match=r"mixture of language models .* 20 tokens are too"):
        MixturePolicy([lazy, lazy.copy()]).evaluate(batch)
    assert CausalLMPolicy(llama(vocabulary=1024)).full
    assert not CausalLMPolicy(llama(vocabulary=1025)).full


def test_a_chunk_takes_32_mb() -> None:
    assert default_chunk(49152) == 170 and default_chunk(10**9) == 1


# One gradient on 32 x 128 tokens of a vocabulary of 49152, with all terms there are.
PROBE = """
import resource, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from redline.algorithms.core.types import Batch, KLTerm
from redline.llm_track.policy import CausalLMPolicy

torch.set_num_threads(1)
sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
policy = CausalLMPolicy(LlamaForCausalLM(LlamaConfig(vocab_size=49152, **sizes)))
assert not policy.full
tokens = torch.randint(0, 49152, (32, 132))
observation = torch.stack([tokens, torch.ones_like(tokens)], dim=-1)
ones = torch.ones(32, 128)
batch = Batch(observation, tokens[:, 4:], ones, ones, ones > 0)
small = batch.take(slice(0, 1))
policy.gradient(small, torch.ones_like)
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
terms = {}
if sys.argv[1] == "all":
    reference = policy.evaluate(batch)
    batch = Batch(observation, tokens[:, 4:], ones, ones, ones > 0, reference.params)
    terms = {"entropy": ones, "kl": KLTerm(lambda divergence: ones)}
policy.gradient(batch, torch.ones_like, **terms)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("terms", "most"), [("weights", 0.4), ("all", 1.3)])
def test_memory_does_not_grow_with_tokens_times_vocabulary(terms: str, most: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, terms], capture_output=True, text=True, check=True
    )
    # One [4096, 49152] array alone takes 0.8 GB.
    used = int(done.stdout) * 1024 / 1e9
    print(f"{terms}: {used:.2f} GB")
    assert 0.0 < used < most


def test_cpi_is_refused_in_one_sentence_where_the_vocabulary_is_large() -> None:
    policy = CausalLMPolicy(llama(), full=False)
    algorithm = small("cpi", episodes=6, groups=2, group_size=3)
    assert isinstance(algorithm.update, ConservativeMixture)
    learner = Learner(algorithm, policy, HeadCritic(policy), np.random.default_rng(0))
    sampler = MicroSampler(np.random.default_rng(1))
    rollout = sampler.collect(policy, Need(groups=2, group_size=3))
    with pytest.raises(ValueError, match=r"^a mixture of language models \(cpi\)"):
        learner.update(rollout, Progress(0, 100))
