"""Rewards from a model: a sequence classifier reads what was asked and what was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForSequenceClassification

from redline.llm_track.pretrained import ModelError, pretrained
from redline.llm_track.rewards import RewardError

if TYPE_CHECKING:
    import numpy as np

    from redline.llm_track.rewards import Answered

# Texts read at once.
_ROWS = 64


class Classifier:
    """The first logit of a model with one label, else the probability of the last label.

    It reads prompt and completion in one, the end of what is longer than its context.

    Args:
        place: A folder that `save_pretrained` wrote, or a hub id.
        device: As torch names it.

    Raises:
        RewardError: There is no such model.
    """

    def __init__(self, place: str, device: str) -> None:
        try:
            model, tokenizer = pretrained(place, AutoModelForSequenceClassification)
        except ModelError as error:
            raise RewardError(f"reward model: {error}") from error
        self._model: Any = model.eval().to(device)
        self._tokenizer: Any = tokenizer
        self._tokenizer.truncation_side = "left"
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        if self._model.config.pad_token_id is None:
            self._model.config.pad_token_id = self._tokenizer.pad_token_id

    @torch.no_grad()
    def __call__(self, answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
        found: list[float] = []
        for start in range(0, len(answered), _ROWS):
            texts = [one.prompt + one.text for one in answered[start : start + _ROWS]]
            rows = self._tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            rows.pop("token_type_ids", None)
            logits = self._model(**rows.to(self._model.device)).logits.float()
            one_label = logits.shape[1] == 1
            found += (logits[:, 0] if one_label else logits.softmax(-1)[:, -1]).tolist()
        return found
