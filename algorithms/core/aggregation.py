"""Aggregates: the coefficient of every element in the objective, kept apart from its weight.

With S sequences of |o_i| valid elements each (arXiv:2402.03300, 2503.14476, 2503.20783):

    token_mean    1 / sum_i |o_i|      DAPO, PPO
    seq_mean      1 / (S |o_i|)        GRPO
    seq_sum       1 / S                REINFORCE as written, RLOO
    fixed_length  1 / (S L)            Dr. GRPO, L a constant
    group_sum     G / (S |o_i|)        DCPO: a sum over the G of a prompt, a mean over prompts

Denominators are those of one optimiser step, so that micro-batches add up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.algorithms.core.types import Array, Denominators, Namespace

Kind = Literal["token_mean", "seq_mean", "seq_sum", "fixed_length", "group_sum"]


def denominators(xp: Namespace, mask: Array) -> Denominators:
    """Counts of one optimiser step: valid elements, and rows with at least one."""
    elements = int(xp.count_nonzero(mask))
    if mask.ndim == 1:
        return Denominators(elements, elements)
    return Denominators(elements, int(xp.count_nonzero(xp.any(mask, axis=-1))))


@dataclass(frozen=True)
class Aggregate:
    """mask -> coefficient per element.

    Attributes:
        kind: One of the rules above.
        length: L of "fixed_length", in elements.
        group_size: G of "group_sum".

    Raises:
        ValueError: "fixed_length" without a positive length.
    """

    kind: Kind = "token_mean"
    length: int | None = None
    group_size: int = 1

    def __post_init__(self) -> None:
        if self.kind == "fixed_length" and (self.length is None or self.length < 1):
            raise ValueError(f"fixed_length needs a length of at least 1, got {self.length}")

    @property
    def level(self) -> Literal["token", "sequence"]:
        """Unit of the method; "sequence" when rows must be whole episodes."""
        return "token" if self.kind == "token_mean" else "sequence"

    def coefficient(
        self, xp: Namespace, *, mask: Array, like: Array, counts: Denominators
    ) -> Array:
        """Coefficients shaped like `mask`, 0 where it is False.

        Args:
            xp: Array namespace.
            mask: [B, T], or [N] for "token_mean".
            like: An array of the wanted floating type.
            counts: Denominators of the whole optimiser step.
        """
        counts_as_one = xp.astype(mask, like.dtype)
        if self.kind == "token_mean":
            return counts_as_one / max(1, counts.elements)
        per_sequence = counts_as_one / max(1, counts.sequences)
        if self.kind == "fixed_length":
            return per_sequence / self.length
        if self.kind == "seq_sum":
            return per_sequence
        length = xp.sum(counts_as_one, axis=-1, keepdims=True)
        per_element = per_sequence / xp.maximum(length, xp.ones_like(length))
        return per_element * self.group_size if self.kind == "group_sum" else per_element
