"""Models and tokenizers: the one that ships, local folders, and what cannot be loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from language import MICRO, micro_language_model, next_log_probs
from tokenizers.processors import TemplateProcessing

from redline.llm_track.characters import CHARACTERS, EOS, character_tokenizer
from redline.llm_track.models import (
    LanguageModel,
    checkpoint_layers,
    load_model,
    load_weights,
    save_model,
    tiny_model,
    wrap,
)
from redline.llm_track.pretrained import ModelError
from redline.llm_track.text import TextError, TextTokenizer


def test_one_token_per_character() -> None:
    tokenizer = TextTokenizer(character_tokenizer())
    assert (tokenizer.pad_id, tokenizer.eos_id) == (0, 1)
    ids = tokenizer.completion(CHARACTERS)
    assert ids == [*range(2, 2 + len(CHARACTERS)), 1]
    assert tokenizer.decode([0, *ids, 0, 0]) == CHARACTERS
    assert tokenizer.prompt("482+769=") == ids_of("482+769=")


def ids_of(text: str) -> list[int]:
    return [2 + CHARACTERS.index(character) for character in text]


def test_a_character_without_a_token_is_one_sentence() -> None:
    tokenizer = TextTokenizer(character_tokenizer())
    with pytest.raises(TextError, match="no token for a part of 'π'"):
        tokenizer.prompt("π")


def test_the_tiny_model() -> None:
    model = tiny_model(seed=0)
    assert sum(p.numel() for p in model.parameters()) == 652_416
    state = torch.random.get_rng_state()
    again, other = tiny_model(seed=0), tiny_model(seed=1)
    assert torch.equal(state, torch.random.get_rng_state())
    weights = [part.lm_head.weight for part in (model, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_weights_survive_the_file(tmp_path: Path) -> None:
    first, second = tiny_model(seed=0), tiny_model(seed=1)
    save_model(wrap("tiny", first, character_tokenizer()), tmp_path)
    load_weights(second, tmp_path / "model.safetensors")
    assert torch.equal(next_log_probs(first, [5, 6]), next_log_probs(second, [5, 6]))
    assert second.lm_head.weight is second.model.embed_tokens.weight


@pytest.mark.parametrize("kind", MICRO)
def test_a_local_folder_needs_no_hub(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    model = MICRO[kind]()
    model.save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    made = load_model(str(tmp_path))
    assert torch.equal(next_log_probs(made.model, [5, 6]), next_log_probs(model, [5, 6]))
    assert made.tokenizer.prompt("4+3=") == ids_of("4+3=")
    assert (made.context, made.model.training) == (96, False)
    assert load_model(str(tmp_path), "bfloat16").model.dtype == torch.bfloat16


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    require_sentence(f"model '{tmp_path}' cannot be loaded", str(tmp_path))


@pytest.mark.parametrize("name", ["./tinny", "/no/where", "~/model", "models/of/mine", ".."])
def test_a_folder_that_is_not_there_is_one_sentence_and_the_hub_is_not_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.llm_track.pretrained._load", None)
    is_there = name == ".."
    require_sentence("cannot be loaded" if is_there else "there is no such folder; give", name)


def test_without_a_network_a_mistyped_name_is_one_sentence_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.create_connection", offline)
    monkeypatch.setattr("redline.llm_track.pretrained.getproxies", dict)
    require_sentence("'tinny' cannot be loaded.*no route to host", "tinny")


def offline(*args: Any, **kwargs: Any) -> None:
    raise OSError("no route to host\nsecond line")


def require_sentence(message: str, name: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(name)
    assert "local folder that holds config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float16"}, "unknown dtype 'float16'; known: float32, bfloat16, float64"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used"),
        ({"device": "gpu"}, "device 'gpu' cannot be used"),
    ],
)
def test_other_settings_that_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(**settings)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_an_end_is_refused() -> None:
    tokenizer = character_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="names no end-of-sequence token"):
        wrap("odd", MICRO["llama"](), tokenizer)


def test_padding_falls_back_on_the_end_of_sequence() -> None:
    tokenizer = character_tokenizer()
    tokenizer.pad_token = None
    assert TextTokenizer(tokenizer).pad_id == TextTokenizer(tokenizer).eos_id == 1


def test_the_chat_template_is_one_turn() -> None:
    tokenizer = character_tokenizer()
    # A token that the tokenizer itself puts before every text, as Llama's does.
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{EOS} $A", special_tokens=[(EOS, 1)]
    )
    assert TextTokenizer(tokenizer).prompt("4") == [1, *ids_of("4")]
    assert TextTokenizer(tokenizer).completion("4") == [*ids_of("4"), 1]
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    found = TextTokenizer(tokenizer)
    # The template holds such tokens where they belong.
    assert found.prompt("4+3?") == ids_of("<user>4+3?</><assistant>")


def test_recomputed_activations_give_the_same_gradient_in_evaluation_mode() -> None:
    gradients, calls = [], []
    for recompute in (False, True):
        made: LanguageModel = micro_language_model()
        if recompute:
            checkpoint_layers(made.model)
        assert not any(layer.mlp.training for layer in made.model.model.layers)
        made.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
        tokens = torch.tensor([ids_of("4+3=")])
        made.model(input_ids=tokens, use_cache=False).logits.square().sum().backward()
        gradients.append(made.model.lm_head.weight.grad)
        calls.append(0)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    assert calls == [1, 0, 1, 1, 0]


def test_a_model_without_layers_to_recompute_is_refused() -> None:
    with pytest.raises(ModelError, match="Linear cannot recompute activations"):
        checkpoint_layers(torch.nn.Linear(2, 2))
