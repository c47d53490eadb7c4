"""Prompts with completions as a causal model reads them, in micro-batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Index = tuple[Tensor, Tensor]


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class Part(NamedTuple):
    """Some rows of a batch, and where their elements lie.

    Attributes:
        tokens: [R, W] a row's real tokens from column 0 on; what follows them is never looked at.
        states: (row, column) of the token in `tokens` that each of N elements follows.
        elements: (row, column) of those elements in the batch.
    """

    tokens: Tensor
    states: Index
    elements: Index


class Completions:
    """Rows of tokens with all padding moved to their right.

    A causal model never looks to the right: there padding needs no attention mask, and the
    position of a token is its column. On the left it needs both, and rows of an attention that may
    look at nothing are nan in some kernels.

    Args:
        observation: int64 [B, L, 2]: token ids, and 1 where a token is real (padding may hold
            anything, and may lie anywhere).
        mask: bool [B, T], the elements wanted among the last T columns.

    Raises:
        ValueError: An element is padding, or follows no token.
    """

    def __init__(self, observation: Tensor, mask: Tensor) -> None:
        tokens, real = observation[..., 0], observation[..., 1] != 0
        order = torch.argsort(~real, dim=-1, stable=True)
        self._tokens = torch.where(real, tokens, 0).gather(-1, order)
        last = mask.shape[-1]
        self._before = real.cumsum(-1)[:, -last:] - 2
        self._mask = mask
        if (mask & ~(real[:, -last:] & (self._before >= 0))).any():
            raise ValueError(
                "every element of a completion is a real token of its row and follows one: "
                "the mask disagrees with the observation, or a prompt is empty"
            )
        # Tokens after a row's last state are never needed: that state predicts its last element.
        self.width = torch.where(mask, self._before + 1, 0).amax(-1)

    def parts(self, rows: int) -> Iterator[Part]:
        """Micro-batches of at most `rows` rows of similar length; rows of no element are left out.

        Args:
            rows: Rows of a micro-batch.
        """
        order = torch.argsort(self.width, descending=True, stable=True)
        for at in slices(int((self.width > 0).sum()), rows):
            chosen = order[at]
            row, column = self._mask[chosen].nonzero(as_tuple=True)
            width = int(self.width[chosen[0]])
            whole = chosen[row]
            yield Part(
                self._tokens[chosen, :width],
                (row, self._before[whole, column]),
                (whole, column),
            )
