"""Attention logits held within mean +- width * std of their history, head by head.

As written: before the causal mask and the softmax, logits are clamped per head to the mean plus or
minus one standard deviation of their history; the statistics are frozen from sampling to the end
of the update, so that the policy that learns is the one that sampled. The claim is a consistency
that is 27% higher.

What the mathematics makes of it: one standard deviation clamps about a third of the logits of a
head (were they normal), at both ends. The upper end is where a head attends: no weight can be
above exp(2 std) times another of its row, so sharp heads are flattened, and the gradient of every
clamped logit is 0. It bounds how far attention can move in an update, and bends the pre-trained
model from the second round on. Wider than about 4 standard deviations it does next to nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "redline"
_CLIP = "redline_attention_clip"


class AttentionClip:
    """Bounds on the attention logits of every head, from moments of what was sampled.

    Args:
        layers: Of the model.
        heads: Of a layer.
        width: Standard deviations to either side; None: nothing is clamped.

    Attributes:
        observing: Logits are added to the moments that the next `commit` takes.
    """

    def __init__(self, layers: int, heads: int, width: float | None) -> None:
        self.width, self.observing = width, False
        # Count, sum and sum of squares per layer and head, in float64.
        self._history = np.zeros((3, layers, heads))
        self._pending = np.zeros_like(self._history)

    def __deepcopy__(self, memo: Any) -> AttentionClip:
        """The components of a mixture share one."""
        return self

    def commit(self) -> None:
        """Take what was observed into the history: the statistics move here and nowhere else."""
        self._history += self._pending
        self._pending[:] = 0.0

    def bounds(self, layer: int) -> tuple[Any, Any] | None:
        """Lower and upper bound [H] of a layer; None while there is no history."""
        count, total, square = self._history[:, layer]
        if self.width is None or not count.all():
            return None
        mean = total / count
        std = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        return mean - self.width * std, mean + self.width * std

    def apply(self, layer: int, logits: Tensor, seen: Tensor) -> Tensor:
        """Clamped logits [B, H, Q, K].

        Args:
            layer: Its number.
            logits: Before the mask.
            seen: [B, 1, Q, K] True where a key may be looked at.
        """
        if self.observing:
            self._observe(layer, logits.detach(), seen)
        bounds = self.bounds(layer)
        if bounds is None:
            return logits
        low, high = (logits.new_tensor(bound)[:, None, None] for bound in bounds)
        return torch.minimum(torch.maximum(logits, low), high)

    def _observe(self, layer: int, logits: Tensor, seen: Tensor) -> None:
        keep = seen.expand_as(logits)
        valid = torch.where(keep, logits, 0.0).double()
        parts = (keep.sum((0, 2, 3)), valid.sum((0, 2, 3)), (valid**2).sum((0, 2, 3)))
        for place, part in zip(self._pending, parts, strict=True):
            place[layer] += part.cpu().numpy()

    def state_dict(self) -> dict[str, Any]:
        """The moments."""
        return {"history": self._history.copy(), "pending": self._pending.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._history[:], self._pending[:] = state["history"], state["pending"]


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Eager attention with the clip between logits and mask; gives its weights too.

    Args:
        module: A layer's attention, which carries the `AttentionClip`.
        query: [B, H, Q, D].
        key: [B, G, K, D], G key heads for H query heads.
        value: [B, G, K, D].
        attention_mask: [B, 1, Q, K], added; very low where a key may not be looked at.
        scaling: Of the products.
        dropout: Never applied: a policy's model is in evaluation mode.
    """
    repeats = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(repeats, dim=1) for part in (key, value))
    logits = query @ key.transpose(2, 3) * scaling
    size = logits.shape[-2:]
    if attention_mask is None:
        causal = torch.ones(size, dtype=torch.bool, device=logits.device)
        seen = causal.tril(size[1] - size[0])[None, None]
    else:
        seen = attention_mask[..., : size[1]] > torch.finfo(attention_mask.dtype).min / 2
    clip: AttentionClip | None = getattr(module, _CLIP, None)
    if clip is not None:
        logits = clip.apply(module.layer_idx, logits, seen)
    logits = torch.where(seen, logits, torch.finfo(logits.dtype).min)
    weights = logits.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def install(model: Any, width: float | None) -> AttentionClip:
    """Let a model attend by `attention`; gives the clip, which all its layers share.

    Args:
        model: A transformers causal LM whose layers number themselves (`layer_idx`).
        width: See `AttentionClip`.

    Raises:
        ValueError: The model's attention cannot be exchanged, or the width is not positive.
    """
    if width is not None and not width > 0.0:
        raise ValueError(f"attention_clip must be above 0, got {width:g}")
    layers = [part for part in model.modules() if hasattr(part, "layer_idx") and _attends(part)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} is not supported: its attention cannot be exchanged"
        )
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    model.set_attn_implementation(NAME)
    clip = AttentionClip(len(layers), model.config.num_attention_heads, width)
    for layer in layers:
        setattr(layer, _CLIP, clip)
    return clip


def _attends(module: Any) -> bool:
    return "attention" in type(module).__name__.lower()
