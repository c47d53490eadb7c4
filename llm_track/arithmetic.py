"""Addition: problems, their split into training and held-out ones, and two ways of answering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redline.llm_track.split import HELD_OUT_SEED, first_distinct, is_held_out

Operands = tuple[int, ...]


@dataclass(frozen=True)
class Addition:
    """Sums of `operands` numbers of exactly `digits` digits.

    A problem is held out or not by a hash of its numbers, whatever their order, so that training
    can never meet a held-out problem, from whatever seed.

    Attributes:
        digits: Decimal digits of every number; the first is not 0.
        operands: Numbers in a sum.

    Raises:
        ValueError: No digit, or fewer than two numbers.
    """

    digits: int = 3
    operands: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 15:
            raise ValueError(f"digits must be from 1 to 15, got {self.digits}")
        if self.operands < 2:
            raise ValueError(f"a sum needs at least 2 operands, got {self.operands}")

    def training(self, rng: np.random.Generator, count: int) -> list[Operands]:
        """`count` problems that are not held out."""
        return [self._next(rng, held_out=False) for _ in range(count)]

    def held_out(self, count: int) -> list[Operands]:
        """The first `count` problems of the held-out set, all different up to order.

        Raises:
            TaskError: There are not so many.
        """
        rng = np.random.default_rng(HELD_OUT_SEED)
        return first_distinct(lambda: self._next(rng, held_out=True), _identity, count)

    def _next(self, rng: np.random.Generator, held_out: bool) -> Operands:
        lowest = 10 ** (self.digits - 1)
        while True:
            drawn = tuple(rng.integers(lowest, 10 * lowest, size=self.operands).tolist())
            if is_held_out(_identity(drawn)) == held_out:
                return drawn


def _identity(operands: Sequence[int]) -> str:
    """What a sum is, whatever the order of its numbers."""
    return question(sorted(operands))


def question(operands: Sequence[int]) -> str:
    """For example 482+769."""
    return "+".join(map(str, operands))


def direct(operands: Sequence[int]) -> str:
    """The answer at once, for example #1251."""
    return f"#{sum(operands)}"


def worked(operands: Sequence[int]) -> str:
    """Column by column from the right, then the answer: 2+9=11;8+6+1=15;4+7+1=12;#1251.

    The carry stands last in its column and is left out where it is 0.
    """
    carry, columns = 0, []
    for column in _columns(operands):
        terms = [*column, carry] if carry else column
        total = sum(terms)
        columns.append(f"{'+'.join(map(str, terms))}={total};")
        carry = total // 10
    return "".join(columns) + direct(operands)


def _columns(operands: Sequence[int]) -> Iterator[list[int]]:
    """Digits of equal worth, units first."""
    for place in range(max(len(str(number)) for number in operands)):
        yield [number // 10**place % 10 for number in operands]
