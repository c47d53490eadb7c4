"""Completions as public reports describe them going wrong: padding, ends, temperature, rewards."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from language import MICRO, next_log_probs, uniform_rows

from redline.llm_track.decoding import Decoder, generate, pad_left
from redline.llm_track.rewards import Answered, Rewards, Score


@pytest.mark.parametrize("kind", MICRO)
def test_a_short_prompt_beside_a_longer_one(kind: str) -> None:  # huggingface/trl#6800
    short, long = uniform_rows(np.random.default_rng(1), (2, 9))
    model = MICRO[kind]()
    beside = Decoder(model, 1.0).start(pad_left([short, long], 0), 1)[0]
    torch.testing.assert_close(beside, next_log_probs(model, short), atol=1e-5, rtol=0)


def test_the_mask_ends_with_the_first_end_of_sequence_though_it_pads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # huggingface/trl PR#4970
    script = np.array([[5, 7, 2, 9, 9], [5, 7, 9, 4, 6], [2, 9, 9, 9, 9]])
    decoder = Scripted()
    column = iter(script.T)
    monkeypatch.setattr(
        "redline.llm_track.decoding.choose",
        lambda log_probs, uniform: (
            (c := next(column)[decoder.rows]),
            np.full(len(c), -1.0),
        ),
    )
    found = generate(
        decoder,  # type: ignore[arg-type]
        pad_left([[3], [3], [3]], 2),
        repeat=1,
        cap=5,
        eos_id=2,
        pad_id=2,
        rng=None,
    )
    assert found.tokens.tolist() == [[5, 7, 2, 2, 2], [5, 7, 9, 4, 6], [2, 2, 2, 2, 2]]
    assert found.mask.sum(axis=1).tolist() == [3, 5, 1]
    assert found.ended.tolist() == [True, False, True]
    assert (found.log_prob == np.where(found.mask, -1.0, 0.0)).all()
    assert decoder.dropped == 2


class Scripted:
    """A decoder that only keeps track of its rows."""

    def __init__(self) -> None:
        self.rows, self.dropped = np.arange(3), 0

    def start(self, prompts: Any, repeat: int) -> torch.Tensor:
        return torch.zeros(3, 10)

    def append(self, tokens: Any) -> torch.Tensor:
        assert len(tokens) == len(self.rows)
        return torch.zeros(len(self.rows), 10)

    def keep(self, rows: Any) -> None:
        self.dropped += len(self.rows) - len(rows)
        self.rows = self.rows[rows]


def test_weighted_rewards() -> None:  # huggingface/trl PR#6380
    answered = [
        Answered("", "", "1", Score(*found))
        for found in ((True, True, "1"), (False, True, "1"), (False, False, ""))
    ]
    rng = np.random.default_rng(0)
    paid, means = Rewards({"exact": 1.0, "format": 0.5})(answered, rng)
    assert paid == [1.5, 0.5, 0.0]
    # The sum that is optimised, and its parts before their weights.
    assert means == pytest.approx(
        {"llm/reward": 2 / 3, "llm/reward/exact": 1 / 3, "llm/reward/format": 2 / 3}
    )
    assert Rewards()(answered, rng)[0] == [1.0, 0.0, 0.0]


def test_temperature_scales_the_logits() -> None:  # huggingface/trl PR#3029
    model = Fixed(torch.tensor([2.0, 1.0, 0.0]))
    found = Decoder(model, 0.5).start(pad_left([[3]], 0), 1)
    assert float(found[0, 0]) == pytest.approx(-0.142932, abs=1e-6)


class Fixed:
    """A model with the same logits after everything."""

    device = "cpu"

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits, self.config = logits, MICRO["llama"]().config

    def base_model(self, **inputs: Any) -> Any:
        shape = inputs["input_ids"].shape
        return SimpleNamespace(last_hidden_state=self.logits.expand(*shape, -1))

    def get_output_embeddings(self) -> Any:
        head = torch.nn.Linear(len(self.logits), len(self.logits), bias=False)
        torch.nn.init.eye_(head.weight)
        return head
