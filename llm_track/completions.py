"""Prompts with completions as a causal model reads them, in micro-batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Index = tuple[Tensor, Tensor]

# A micro-batch ends where a row is this much shorter than its longest one, unless it is small:
# padding costs as much as tokens, and a pass of few rows as much as one of some more.
_SHORTER = 0.75
_LEAST_ROWS = 8


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _alike(widths: Sequence[int], tokens: int | None, rows: int | None) -> Iterator[slice]:
    """Slices of falling widths, each of rows that are alike."""
    start = 0
    while start < len(widths):
        widest = widths[start]
        most = len(widths) if rows is None else rows
        if tokens is not None:
            most = min(most, max(1, tokens // widest))
        end = start + 1
        while end < len(widths) and end - start < most:
            if end - start >= _LEAST_ROWS and widths[end] < _SHORTER * widest:
                break
            end += 1
        yield slice(start, end)
        start = end


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

    def parts(self, tokens: int | None = None, rows: int | None = None) -> Iterator[Part]:
        """Micro-batches of rows of similar length; rows of no element are left out.

        Args:
            tokens: Of a micro-batch, padding included, unless one row has more; None: any number.
            rows: Likewise.
        """
        order = torch.argsort(self.width, descending=True, stable=True)
        widths = [width for width in self.width[order].tolist() if width]
        for at in _alike(widths, tokens, rows):
            chosen = order[at]
            row, column = self._mask[chosen].nonzero(as_tuple=True)
            width = int(self.width[chosen[0]])
            whole = chosen[row]
            yield Part(
                self._tokens[chosen, :width],
                (row, self._before[whole, column]),
                (whole, column),
            )
