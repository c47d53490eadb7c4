"""Freezing parts of a model."""

import pytest
from micro import gpt2, llama, micro_batch

from redline.llm_track.freeze import freeze
from redline.llm_track.policy import CausalLMPolicy


def learning(model: object) -> set[str]:
    return {name for name, part in model.named_parameters() if part.requires_grad}  # type: ignore[attr-defined]


def test_embeddings_and_first_layers() -> None:
    model = llama()
    said = freeze(model, embeddings=True, first_layers=1)
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
    said = freeze(model, embeddings=True)
    assert said.endswith(
        "parameters are frozen, the output layer among them, for it is tied to the embeddings"
    )
    assert not learning(model) & {"transformer.wte.weight", "transformer.wpe.weight"}
    assert freeze(gpt2(), first_layers=2).endswith("parameters are frozen")
    assert freeze(llama(), names=["lm_head.*"]).endswith("frozen, the output layer among them")


def test_names_are_patterns() -> None:
    model = llama()
    freeze(model, names=["*.mlp.*", "*.layers.0.*"])
    left = learning(model)
    assert not any(".mlp." in name or ".layers.0." in name for name in left)
    assert "model.layers.1.self_attn.q_proj.weight" in left


def test_what_cannot_be_frozen_is_said() -> None:
    with pytest.raises(ValueError, match="no parameter has a name that fits '\\*nothing\\*'"):
        freeze(llama(), names=["*nothing*"])
    with pytest.raises(ValueError, match="this model has 2 layers: 3 of them cannot be frozen"):
        freeze(llama(), first_layers=3)
    with pytest.raises(ValueError, match="every parameter is frozen: nothing is left to learn"):
        freeze(llama(), names=["*"])
