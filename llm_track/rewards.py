"""From the text of a completion to a score, and from a score to a reward."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# One run of # signs with the answer after it, up to the end of the text.
_ENDING = re.compile(r"#+[ \t]*([^#\n]+?)\s*\Z")


class Score(NamedTuple):
    """What a verifier found in a completion.

    Attributes:
        correct: The answer is right.
        formatted: The completion ended by itself, on # and an answer.
        answer: The answer's text; empty where there is none.
    """

    correct: bool
    formatted: bool
    answer: str


@dataclass(frozen=True)
class RewardWeights:
    """Reward = accuracy * correct + format * formatted.

    Attributes:
        accuracy: Paid for a right answer.
        format: Paid for an ending in the asked form, right or wrong.
    """

    accuracy: float = 1.0
    format: float = 0.0

    def __call__(self, score: Score) -> float:
        """Reward of one completion."""
        return self.accuracy * score.correct + self.format * score.formatted


def final_answer(text: str) -> str | None:
    """The answer after the last # of a text that ends with it; None where it does not."""
    found = _ENDING.search(text)
    return found.group(1).strip() if found else None


def score(text: str, ended: bool, right: Callable[[str], bool]) -> Score:
    """Verify a completion.

    A completion that was cut has given no final answer: what would have come next is not known.

    Args:
        text: The completion, without special tokens.
        ended: It ended by itself and was not cut by the cap.
        right: Whether an answer is right.
    """
    answer = final_answer(text) if ended else None
    if answer is None:
        return Score(False, False, "")
    return Score(right(answer), True, answer)
