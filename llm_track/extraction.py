r"""Where in a completion the answer stands.

Two readings, reported apart: the strict one takes what was marked as the answer, `\boxed{...}` or
`#### ...`; the flexible one goes on, where nothing is marked, to the last "the answer is ..." and
then to the last number.
"""

from __future__ import annotations

import re
from typing import Literal

from redline.llm_track.notation import THIN

Reading = Literal["strict", "flexible"]

# One run of # signs with the answer after it, up to the end of the text.
_ENDING = re.compile(r"#+[ \t]*([^#\n]+?)\s*\Z")
_HASHES = re.compile(r"####[ \t]*([^#\n]+)")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_THOUGHT = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
# A model that goes on to ask and answer another question.
_NEXT_TURN = re.compile(
    r"\n[ \t]*(?:\*\*)?(?:Question|Problem|Example|Q|User|Human)[ \t]*\d*[ \t]*:|<\|im_start\|>"
    r"|<\|endoftext\|>"
)
_STATED = re.compile(
    r"(?:answer|result)\s*(?:\*\*)?\s*(?:is|:|=)\s*(?::\s*)?(?:\*\*)?\s*([^\n]+)", re.IGNORECASE
)
_NUMBER = (
    rf"[-\u2212+]?[$\u20ac\u00a3]?(?:\d[\d,{THIN}]*\d|\d)?(?:\.\d+|\d)(?:[eE][+-]?\d+)?"
    r"(?:\s?/\s?\d+|[ ]\d+/\d+)?\s?%?"
)
_LAST = re.compile(rf"{_NUMBER}(?:\s*(?:,|\bor\b|,\s*or\b)\s*{_NUMBER})*")
_LONGEST_TAIL = 2_000


def extract(text: str, reading: Reading) -> str | None:
    """The answer's own text; None where there is none.

    Thinking blocks do not count, nor does what follows the beginning of another question. A mark
    that is empty or never closed is no answer, in either reading.

    Args:
        text: A completion without its end of sequence.
        reading: "strict" or "flexible".
    """
    said = _said(text)
    if said is None:
        return None
    marked, answer = _marked(said)
    if marked or reading == "strict":
        return answer
    return _stated(said)


def final_answer(text: str) -> str | None:
    """The answer after the last # of a text that ends with it; None where it does not."""
    found = _ENDING.search(text[-_LONGEST_TAIL:])
    return found.group(1).strip() if found else None


def _said(text: str) -> str | None:
    """What counts of a completion; None while it only thinks."""
    ends = list(_THOUGHT_END.finditer(text))
    if ends:
        text = text[ends[-1].end() :]
    if (begin := _THOUGHT.search(text)) is not None:
        text = text[: begin.start()]
    turns = _NEXT_TURN.finditer(text)
    cut = next((turn.start() for turn in turns if text[: turn.start()].strip()), len(text))
    return text[:cut] if text[:cut].strip() else None


def _marked(text: str) -> tuple[bool, str | None]:
    """Whether an answer is marked, and the last one that is."""
    box = None
    for box in _BOX.finditer(text):  # noqa: B007  # the last
        pass
    hashes = None
    for hashes in _HASHES.finditer(text):  # noqa: B007
        pass
    if box is not None and (hashes is None or hashes.start() < box.start()):
        return True, _boxed(text, box.end())
    if hashes is not None:
        return True, hashes[1].strip() or None
    answer = final_answer(text)
    return answer is not None, answer


def _boxed(text: str, start: int) -> str | None:
    r"""What a box holds: up to its closing brace, or the one word of `\boxed 42`."""
    if text[start : start + 1] != "{":
        word = re.match(r"[^\s$\\]+", text[start:])
        return word[0].rstrip(".,") or None if word else None
    depth = 0
    for end in range(start, len(text)):
        if text[end - 1] == "\\":
            continue
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + 1 : end].strip() or None
    return None


def _stated(text: str) -> str | None:
    """The last "the answer is ...", or the last number."""
    tail = text[-_LONGEST_TAIL:]
    statements = _STATED.findall(tail)
    if not statements:
        numbers = _LAST.findall(tail)
        return str(numbers[-1]).strip() if numbers else None
    said = str(statements[-1])
    if "\\" in said or "$" in said:
        return _formula(said)
    # The answer is 3 + 4 = 7 apples for 2 people.
    number = _LAST.search(said.rpartition("=")[2])
    return (number[0] if number else said).strip()


def _formula(text: str) -> str:
    """The formula that a statement begins with, or all of it."""
    found = re.match(r"\s*(?:\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])", text)
    return next(part for part in found.groups() if part) if found else text.strip()
