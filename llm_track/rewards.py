"""From the text of a completion to a score, and from a score to a reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from redline.llm_track.extraction import Reading, extract


class Score(NamedTuple):
    """What a verifier found in a completion.

    Attributes:
        correct: The answer is right.
        formatted: The completion ended by itself and marks its answer.
        answer: The answer's text; empty where there is none.
        strict: The answer is right that the strict reading finds.
        flexible: The answer is right that the flexible reading finds.
    """

    correct: bool
    formatted: bool
    answer: str
    strict: bool = False
    flexible: bool = False


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


def score(
    text: str, ended: bool, right: Callable[[str], bool], reading: Reading = "strict"
) -> Score:
    """Verify a completion.

    A completion that was cut has given no final answer: what would have come next is not known.

    Args:
        text: The completion, without special tokens.
        ended: It ended by itself and was not cut by the cap.
        right: Whether an answer is right.
        reading: Which answer counts.
    """
    marked = extract(text, "strict") if ended else None
    loose = extract(text, "flexible") if ended and marked is None else marked
    strict = marked is not None and right(marked)
    flexible = strict if loose is marked else loose is not None and right(loose)
    correct, answer = (strict, marked) if reading == "strict" else (flexible, loose)
    return Score(correct, marked is not None, answer or "", strict, flexible)
