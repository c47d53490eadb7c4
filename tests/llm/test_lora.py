"""Low-rank adapters: what learns, that nothing changes before it does, and merging."""

import numpy as np
import pytest
import torch
from language import micro_llama

from redline.llm_track import lora
from redline.llm_track.assembly import assemble
from redline.llm_track.models import load_model
from redline.llm_track.policy import CausalLMPolicy
from redline.llm_track.pretrained import ModelError
from redline.llm_track.settings import Freeze, LanguageSettings

TOKENS = torch.tensor([[5, 9, 17, 3, 8]])
LAYERS = 7  # linear ones in a layer of a Llama


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
    return found


def test_adapters_alone_learn_and_change_nothing_at_first() -> None:
    model = micro_llama()
    before, sizes = logits(model), {name: p.shape for name, p in model.named_parameters()}
    note = lora.add_adapters(model, 2, seed=0)
    torch.testing.assert_close(logits(model), before, atol=0.0, rtol=0.0)
    learns = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(learns) == 2 * LAYERS * model.config.num_hidden_layers
    assert all("lora_" in name for name in learns)
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(shape.numel() for shape in sizes.values())
    assert note == (f"{count:,} parameters of adapters learn, {total:,} of the model are frozen")
    assert len(CausalLMPolicy(model, temperature=1.0).parameters) == count


def test_the_seed_decides_the_adapters_and_no_other_random_number() -> None:
    found = []
    for seed in (0, 0, 1):
        model, state = micro_llama(), torch.random.get_rng_state()
        lora.add_adapters(model, 2, seed)
        assert torch.equal(torch.random.get_rng_state(), state)
        found.append(torch.cat([p.flatten() for p in model.parameters() if p.requires_grad]))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_merged_adapters_give_the_same_model_without_them() -> None:
    model = micro_llama()
    before, names = logits(model), [name for name, _ in model.named_parameters()]
    lora.add_adapters(model, 2, seed=0)
    policy = CausalLMPolicy(model, temperature=1.0)
    step = np.random.default_rng(0).normal(0.0, 0.3, len(policy.parameters))
    policy.parameters[:] = torch.as_tensor(step, dtype=policy.parameters.dtype)
    learned = logits(model)
    assert (learned - before).abs().max() > 0.01
    lora.merge_adapters(model)
    torch.testing.assert_close(logits(model), learned, atol=1e-4, rtol=1e-4)
    assert [name for name, _ in model.named_parameters()] == names


def test_adapters_are_in_the_precision_of_the_model() -> None:
    model = load_model("tiny", "bfloat16").model
    lora.add_adapters(model, 2, seed=0)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (LanguageSettings(lora=0), "lora must be a rank of at least 1, got 0"),
        (LanguageSettings(lora=2, freeze=Freeze(layers=1)), "leave out what freeze names"),
    ],
)
def test_what_does_not_fit_is_one_sentence(settings: LanguageSettings, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        assemble("llm:arithmetic", settings, 0)


def test_without_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'lora needs peft: pip install "redline-rl\[lora\]"'):
        lora.add_adapters(micro_llama(), 2, seed=0)
