"""Freezing parts of a model."""

import pytest
import torch
from closeness import close
from micro import MODELS, gpt2, llama, micro_batch

from redline.llm_track.freeze import freeze
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.pretrained import ModelError
from redline.llm_track.settings import Freeze


def learning(model: object) -> set[str]:
    return {name for name, part in model.named_parameters() if part.requires_grad}  # type: ignore[attr-defined]


def test_embeddings_and_first_layers() -> None:
    model = llama()
    said = freeze(model, Freeze(embeddings=True, layers=1))
    left = learning(model)
    assert "lm_head.weight" in left and "model.norm.weight" in left
    assert not any("embed" in name or "layers.0" in name for name in left)
    assert sum("layers.1" in name for name in left) == 9
    total = sum(part.numel() for part in model.parameters())
    learns = sum(part.numel() for part in model.parameters() if part.requires_grad)
    assert said == f"{total - learns:,} of {total:,} parameters are frozen"
    policy = CausalLMPolicy(model)
    assert len(policy.parameters) == learns
    policy.gradient(micro_batch(policy), lambda log_prob: log_prob * 0.0 + 1.0)
    assert policy.gradient_buffer.abs().max() > 0.0


def test_tied_embeddings_freeze_the_output_layer_and_the_sentence_says_so() -> None:
    model = gpt2()
    said = freeze(model, Freeze(embeddings=True))
    assert said.endswith(
        "parameters are frozen, the output layer among them, for it is tied to the embeddings"
    )
    assert not learning(model) & {"transformer.wte.weight", "transformer.wpe.weight"}
    assert freeze(gpt2(), Freeze(layers=2)).endswith("parameters are frozen")
    assert freeze(llama(), Freeze(names=("lm_head.*",))).endswith(
        "frozen, the output layer among them"
    )


def test_names_are_patterns() -> None:
    model = llama()
    freeze(
        model,
        Freeze(
            names=(
                "*.mlp.*",
                "*.layers.0.*",
            )
        ),
    )
    left = learning(model)
    assert not any(".mlp." in name or ".layers.0." in name for name in left)
    assert "model.layers.1.self_attn.q_proj.weight" in left


def test_what_cannot_be_frozen_is_said() -> None:
    with pytest.raises(ModelError, match=r"such as model\.embed_tokens\.weight, got '\*nothing\*'"):
        freeze(llama(), Freeze(names=("*nothing*",)))
    with pytest.raises(
        ModelError, match=r"freeze\.layers must be from 0 to 2 on this model, got 3"
    ):
        freeze(llama(), Freeze(layers=3))
    with pytest.raises(ModelError, match="every parameter is frozen: nothing is left to learn"):
        freeze(llama(), Freeze(names=("*",)))


@pytest.mark.parametrize(
    "what",
    [Freeze(embeddings=True), Freeze(layers=2), Freeze(embeddings=True, layers=1)],
    ids=["embeddings", "all layers", "both"],
)
@pytest.mark.parametrize("kind", MODELS)
def test_what_learns_has_the_derivatives_of_the_whole(kind: str, what: Freeze) -> None:
    whole = CausalLMPolicy(MODELS[kind](torch.float64))
    model = MODELS[kind](torch.float64)
    freeze(model, what)
    part = CausalLMPolicy(model)
    learns = torch.cat(
        [
            torch.full((tensor.numel(),), name in part.names)
            for name, tensor in zip(whole.names, whole.tensors, strict=True)
        ]
    )
    batch = micro_batch(whole)
    v = torch.randn(len(whole.parameters), generator=torch.Generator().manual_seed(0)).double()
    v[~learns] = 0.0
    for policy in (whole, part):
        policy.gradient(batch, torch.ones_like)
    close(part.gradient_buffer, whole.gradient_buffer[learns], rtol=1e-10, atol=1e-12)
    expected = whole.fisher_product(batch)(v)[learns]
    close(part.fisher_product(batch)(v[learns]), expected, rtol=1e-10, atol=1e-12)
