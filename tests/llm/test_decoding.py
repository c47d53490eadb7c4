"""Sampling with a cache gives the log-probabilities of the plain forward pass."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from language import MICRO, next_log_probs, uniform_rows

from redline.algorithms.core.mixture import MixturePolicy
from redline.llm_track.decoding import Completions, choose, decoder_of, generate, pad_left

PAD, EOS = 0, 1
LENGTHS = (3, 7, 1, 5)


def policy_of(kind: str, seed: int = 0) -> Any:
    # What a mixture takes of its components without asking any of them.
    return SimpleNamespace(model=MICRO[kind](seed), xp=None, per_element=False)


def mixture(kind: str) -> Any:
    parts = [policy_of(kind, seed) for seed in (0, 1)]
    return MixturePolicy(parts, [0.25, 0.75])


def complete(
    policy: Any, rows: list[list[int]], *, seed: int | None = 3, **changes: Any
) -> Completions:
    options: dict[str, Any] = {"repeat": 3, "cap": 12, "eos_id": EOS, "pad_id": PAD} | changes
    temperature = options.pop("temperature", 1.0)
    rng = None if seed is None else np.random.default_rng(seed)
    return generate(decoder_of(policy, temperature), pad_left(rows, PAD), rng=rng, **options)


def plain(models: dict[Any, float], tokens: list[int], temperature: float) -> torch.Tensor:
    """log sum_k w_k p_k by the plain forward pass."""
    parts = [w * next_log_probs(m, tokens, temperature).exp() for m, w in models.items()]
    return torch.stack(parts).sum(0).log()


def require_plain(found: Completions, rows: list[list[int]], models: Any, temperature: float):
    repeat = len(found.tokens) // len(rows)
    for i, (tokens, mask) in enumerate(zip(found.tokens, found.mask, strict=True)):
        prompt = rows[i // repeat]
        for t in range(mask.sum()):
            expected = plain(models, prompt + tokens[:t].tolist(), temperature)
            assert found.log_prob[i, t] == pytest.approx(float(expected[tokens[t]]), abs=1e-5)


@pytest.mark.parametrize("kind", MICRO)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_cache_padding_and_dropped_rows_leave_log_probs_as_they_are(
    kind: str, temperature: float
) -> None:
    rows = uniform_rows(np.random.default_rng(0), LENGTHS)
    policy = policy_of(kind)
    # Several ends of sequence, at different times: rows are dropped on the way.
    found = complete(policy, rows, temperature=temperature, eos_id=frequent(policy, rows))
    lengths = found.mask.sum(axis=1)
    assert len(set(lengths.tolist())) > 3 and found.ended.sum() > 3
    require_plain(found, rows, {policy.model: 1.0}, temperature)


def frequent(policy: Any, rows: list[list[int]]) -> int:
    """A token that many completions hold; as the end of sequence it ends rows at many times."""
    tokens = complete(policy, rows).tokens
    counts = [(len(set(np.nonzero(tokens == v)[0])), v) for v in range(2, tokens.max() + 1)]
    return max(counts)[1]


def test_a_mixture_mixes_the_components_at_every_token() -> None:
    rows = uniform_rows(np.random.default_rng(0), LENGTHS)
    policy = mixture("llama")
    found = complete(policy, rows, repeat=2)
    first, second = (part.model for part in policy.components)
    require_plain(found, rows, {first: 0.25, second: 0.75}, 1.0)


def test_padding_is_what_the_mask_says_and_not_a_token() -> None:
    rows = [[5, 0, 7], [0, 9]]  # the padding's id within prompts, at their start too
    prompts = pad_left(rows, PAD)
    assert prompts.mask.tolist() == [[True, True, True], [False, True, True]]
    assert prompts.tokens.tolist() == [[5, 0, 7], [0, 0, 9]]
    policy = policy_of("gpt2")
    require_plain(complete(policy, rows), rows, {policy.model: 1.0}, 1.0)


def test_the_seed_decides_every_token() -> None:
    rows = uniform_rows(np.random.default_rng(0), LENGTHS)
    policy = policy_of("llama")
    first, again, other = (complete(policy, rows, seed=seed) for seed in (3, 3, 4))
    assert (first.tokens == again.tokens).all() and (first.log_prob == again.log_prob).all()
    assert first.tokens.shape != other.tokens.shape or (first.tokens != other.tokens).any()
    # Members of a group differ.
    assert len({tuple(row) for row in first.tokens[:3].tolist()}) > 1


def test_torchs_own_generator_is_not_touched() -> None:
    rows = uniform_rows(np.random.default_rng(0), LENGTHS)
    before = torch.random.get_rng_state()
    complete(policy_of("llama"), rows)
    assert torch.equal(before, torch.random.get_rng_state())


def test_greedy_takes_the_most_probable_token() -> None:
    rows = uniform_rows(np.random.default_rng(0), LENGTHS)
    policy = policy_of("gpt2")
    found = complete(policy, rows, seed=None, repeat=1)
    for prompt, tokens, mask in zip(rows, found.tokens, found.mask, strict=True):
        for t in range(mask.sum()):
            best = next_log_probs(policy.model, prompt + tokens[:t].tolist()).argmax()
            assert tokens[t] == best


def test_frequencies_of_sampled_tokens() -> None:
    share = np.array([0.5, 0.0, 0.2, 0.05, 0.25])
    count = 40_000
    log_probs = torch.tensor(share).log().float().expand(count, -1)
    chosen, log_prob = choose(log_probs, np.random.default_rng(0).random(count))
    found = np.bincount(chosen, minlength=5) / count
    # Four standard errors of the largest share.
    np.testing.assert_allclose(found, share, atol=4 * 0.5 / count**0.5)
    assert found[1] == 0.0
    np.testing.assert_allclose(log_prob, np.log(share[chosen]), rtol=1e-6)
