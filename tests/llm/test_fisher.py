"""Fisher-vector products of a language model."""

from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from micro import MODELS, exact, llama, micro_batch, row_by_row, sibling
from torch.func import hessian

from redline.algorithms.core.curvature import conjugate_gradient, damped, dense_matrix
from redline.algorithms.core.types import Batch
from redline.llm_track import completions
from redline.llm_track.models import checkpoint_layers
from redline.llm_track.policy import CausalLMPolicy

SIZES: dict[str, dict[str, int]] = {
    "llama": {"vocabulary": 6, "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 1},
    "gpt2": {"vocabulary": 6, "n_embd": 2, "n_layer": 1, "n_head": 1, "n_positions": 16},
}


def smallest(kind: str = "llama", **settings: Any) -> CausalLMPolicy:
    model = MODELS[kind](torch.float64, **SIZES[kind])
    return CausalLMPolicy(model, temperature=0.7, **settings)


def hessian_of_the_mean_kl(policy: CausalLMPolicy, batch: Batch) -> Any:
    old = row_by_row(policy, batch, policy.parameters).detach()

    def mean_kl(flat: Any) -> Any:
        kl = (old.exp() * (old - row_by_row(policy, batch, flat))).sum(-1)
        return torch.where(batch.mask, kl, 0.0).sum() / batch.mask.sum()

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return hessian(mean_kl)(policy.parameters)


@pytest.mark.parametrize("ways", [{}, {"rows": 2, "chunk": 3}])
@pytest.mark.parametrize("kind", MODELS)
def test_the_product_is_the_hessian_of_the_mean_kl(kind: str, ways: dict[str, int]) -> None:
    policy = smallest(kind, **ways)
    batch = micro_batch(policy, groups=1)
    expected = hessian_of_the_mean_kl(policy, batch)
    assert expected.abs().max() > 0.01
    policy.gradient_buffer.fill_(3.0)
    actual = dense_matrix(policy.fisher_product(batch), policy.parameters)
    close(actual, expected, rtol=1e-9, atol=1e-11)
    assert (policy.gradient_buffer == 3.0).all()

    # The natural direction, against a dense solve.
    gradient = torch.as_tensor(np.random.default_rng(0).normal(size=len(expected)))
    product = damped(policy.fisher_product(batch), 0.1)
    x, _ = conjugate_gradient(product, gradient, iterations=200, tolerance=1e-24)
    dense = torch.linalg.solve(expected + 0.1 * torch.eye(len(expected)).double(), gradient)
    close(x, dense, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("layers", [("layers.0.mlp", "norm"), ("lm_head",), ("embed",)])
def test_a_block_of_layers(layers: tuple[str, ...]) -> None:
    policy = smallest()
    batch = micro_batch(policy, groups=1)
    whole = dense_matrix(policy.fisher_product(batch), policy.parameters)
    inside = np.concatenate(
        [
            np.full(tensor.numel(), any(part in name for part in layers))
            for name, tensor in zip(policy.names, policy.tensors, strict=True)
        ]
    )
    assert 0 < inside.sum() < inside.size
    block = sibling(policy, fisher_layers=layers)
    actual = dense_matrix(block.fisher_product(batch), block.parameters)
    close(actual, np.where(np.outer(inside, inside), whole, 0.0), rtol=1e-10, atol=1e-13)
    with pytest.raises(ValueError, match="no trainable parameter has a name with any of nothing"):
        sibling(policy, fisher_layers=("nothing",)).fisher_product(batch)


def test_frozen_and_tied_parameters() -> None:
    tied = CausalLMPolicy(llama(torch.float64, tied=True, **SIZES["llama"]))
    batch = micro_batch(tied, groups=1)
    expected = hessian_of_the_mean_kl(tied, batch)
    whole = dense_matrix(tied.fisher_product(batch), tied.parameters)
    close(whole, expected, rtol=1e-9, atol=1e-11)
    model = llama(torch.float64, tied=True, **SIZES["llama"])
    model.model.embed_tokens.weight.requires_grad_(False)
    frozen = CausalLMPolicy(model)
    actual = dense_matrix(frozen.fisher_product(batch), frozen.parameters)
    close(actual, expected[24:, 24:], rtol=1e-9, atol=1e-11)


def test_float32_agrees_with_float64() -> None:
    narrow, wide = CausalLMPolicy(llama()), CausalLMPolicy(llama().double(), rows=2)
    batch = micro_batch(wide)
    v = torch.randn(narrow.parameters.shape, generator=torch.Generator().manual_seed(0))
    found, expected = narrow.fisher_product(batch)(v), wide.fisher_product(batch)(v.double())
    assert (found - expected).norm() < 3e-4 * expected.norm()
    again = sibling(narrow, rows=1, chunk=2).fisher_product(batch)(v)
    assert (found - again).norm() < 1e-5 * found.norm()


def test_recomputed_activations_change_nothing() -> None:
    policy = CausalLMPolicy(llama(torch.float64))
    batch = micro_batch(policy)
    v = torch.ones_like(policy.parameters)
    results = []
    for _ in range(2):
        policy.gradient(batch, torch.ones_like)
        results.append((policy.gradient_buffer.clone(), policy.fisher_product(batch)(v)))
        checkpoint_layers(policy.model)
    for plain, recomputed in zip(*results, strict=True):
        close(recomputed, plain, rtol=1e-11, atol=1e-13)


def test_natural_steps_in_bfloat16_are_refused() -> None:
    policy = CausalLMPolicy(llama(torch.bfloat16))
    with pytest.raises(ValueError, match="need float32 parameters, and these are"):
        policy.fisher_product(micro_batch(policy))


def test_the_product_of_rows_of_several_lengths_is_that_of_one_micro_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = exact()
    batch = micro_batch(policy, groups=4, group_size=3)
    v = torch.randn(len(policy.parameters), dtype=torch.float64)
    found = []
    for least, several in ((100, False), (1, True)):
        monkeypatch.setattr(completions, "_LEAST_ROWS", least)
        made = list(policy.parts(batch.observation, batch.mask))
        assert (len(made) > 1) == several and policy.fit_together(made)
        found.append(policy.fisher_product(batch)(v))
    close(found[1], found[0], rtol=1e-10, atol=1e-12)
