r"""Whether an answer is right: exact arithmetic for numbers, math-verify for formulas.

What is decided here, where tastes differ:

- A gold that cannot be read gives "gold unreadable" and never a point, also for the same text.
- 15% equals 0.15 and 15; 0.15 does not equal 15.
- A decimal equals 1/7 or 200/3 within a relative error of 1e-6; nothing else is rounded.
- Units, currencies and degrees are left out, unless both sides give known ones that differ.
- Several numbers are never one of them; without brackets their order does not count.
- A sign covers a whole mixed number: -2 1/4 is -9/4. A mixed number needs a proper fraction.
- `52_8` is the number with that base; an answer may leave the base out.
- Words are compared as text, without capitals and brackets: (C) is C.
- What cannot be read exactly is wrong, and no part of it counts: 12,34 is not 1234.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from redline.llm_track import symbolic
from redline.llm_track.extraction import Reading, extract
from redline.llm_track.notation import THIN, normalise
from redline.llm_track.rational import (
    Number,
    Numbers,
    read_number,
    read_numbers,
    same_number,
    same_numbers,
)
from redline.llm_track.symbolic import Finding

# Characters of an answer; nobody's answer is longer, and parsers are slow on what is.
LONGEST = 1_000
_LONGEST_FORMULA = 400

_PLAIN = re.compile(r"-?\d{1,15}")
_BASE = re.compile(r"([0-9A-Za-z]+)\s*_\s*\{?\s*(\d{1,2})\s*\}?")
_ASSIGNED = re.compile(r"(?:^|(?<=[,\s]))[A-Za-z](?:_\{?\w\}?)?\s*=(?!=)\s*")
_FUNCTIONS = "sqrt|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|pi|frac|infty|inf"
_WORD = re.compile(rf"(?<![\\A-Za-z])(?!(?:{_FUNCTIONS})\b)[A-Za-z]{{3,}}")
_NAMED = re.compile(r"(?<!\\)\b(pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp)\b")
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z]+\}|\\[A-Za-z]+")
_TEXT = re.compile(r"[A-Za-z][A-Za-z' -]*")
# Read in part by math-verify: numbers side by side, two points, 1e9, an improper fraction.
_PARTIAL = re.compile(rf"\d[\s{THIN}]+\d|\d\.\d+\.|\d[eE][+-]?\d|\d\s*\\frac|\d\s*\\?[{{]\s*\d")
_SYMBOL = re.compile(r"\\[A-Za-z]|[A-Za-z^*/+!_]|[(\[{]")
# What grows beyond every bound: powers of powers, factorials of more than a hundred.
_TOWER = re.compile(
    r"\^[\s{(]*[\w.\\]*[\s})]*\^|\^\s*\{?\s*\(?-?\d{5}|\d{3}\s*[)}]*\s*!|!\s*[)}]*\s*!|\^[^!]*!"
)


class Verdict(StrEnum):
    """What a completion is worth.

    Attributes:
        RIGHT: Its answer equals the gold.
        WRONG: Its answer does not, or cannot be read.
        NO_ANSWER: It gives none.
        GOLD_UNREADABLE: Nothing can be said: it belongs into no mean.
    """

    RIGHT = "right"
    WRONG = "wrong"
    NO_ANSWER = "no answer"
    GOLD_UNREADABLE = "gold unreadable"


@dataclass
class Counts:
    """How often a verifier decided what.

    Attributes:
        verdicts: Of completions.
        failures: Comparisons that reached a bound or raised; their answers are wrong.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    failures: Counter[Finding] = field(default_factory=Counter)


class Verifier:
    """Reads answers from completions and compares them.

    Args:
        reading: Which answers count; see `extraction`.

    Attributes:
        counts: Of everything so far.
    """

    def __init__(self, reading: Reading = "strict") -> None:
        self.reading: Reading = reading
        self.counts = Counts()

    def __call__(self, text: str, gold: str) -> Verdict:
        """Verdict on a completion.

        Raises:
            SymbolicError: A formula is to be compared and math-verify is missing.
        """
        verdict, failure = self._judge(extract(text, self.reading), gold)
        self.counts.verdicts[verdict] += 1
        if failure is not None:
            self.counts.failures[failure] += 1
        return verdict

    @staticmethod
    def _judge(answer: str | None, gold: str) -> tuple[Verdict, Finding | None]:
        if not readable(gold):
            return Verdict.GOLD_UNREADABLE, None
        if answer is None:
            return Verdict.NO_ANSWER, None
        try:
            return _compare(gold, answer), None
        except _Undecided as undecided:
            return Verdict.WRONG, undecided.finding


# Comparisons of this process by `judge` that reached a bound or raised, and golds that reached one.
FAILURES: Counter[Finding] = Counter()


def judge(answer: str | None, gold: str) -> Verdict:
    """Verdict on an answer that stands alone; None is none. `FAILURES` counts what went wrong.

    Raises:
        SymbolicError: As `Verifier`.
    """
    verdict, failure = Verifier._judge(answer, gold)
    if failure is not None:
        FAILURES[failure] += 1
    return verdict


class _Undecided(Exception):
    """A comparison failed, which may be due to the machine's load: no cache keeps this."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


def readable(gold: str) -> bool:
    """Whether a gold answer can be compared with anything.

    One that cannot be read within the bounds is read once more; then it counts as a failure, and
    is unreadable this time.

    Raises:
        SymbolicError: It is a formula and math-verify is missing.
    """
    for _ in range(2):
        with contextlib.suppress(_Undecided):
            return _legible(gold)
    FAILURES[Finding.OUT_OF_BOUNDS] += 1
    return False


@lru_cache(maxsize=65_536)
def _legible(gold: str) -> bool:
    if len(gold) > LONGEST:
        return False
    if _PLAIN.fullmatch(gold):
        return True
    text = normalise(gold)
    if _exact(text) is not None or _BASE.fullmatch(text) or _is_text(gold, text):
        return True
    if not _is_formula(text):
        return False
    finding = symbolic.read(_latex(text))
    if finding is Finding.OUT_OF_BOUNDS:
        raise _Undecided(finding)
    return finding is Finding.EQUAL


@lru_cache(maxsize=65_536)
def _compare(gold: str, answer: str) -> Verdict:
    """Verdict on an answer to a gold that can be read.

    Raises:
        _Undecided: The comparison failed.
    """
    if len(answer) > LONGEST:
        return Verdict.WRONG
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        return _verdict(int(gold) == int(answer))
    expected, given = normalise(gold), normalise(answer)
    if expected == given:
        return Verdict.RIGHT
    if "=" not in expected:
        given = _ASSIGNED.sub("", given)
    if (found := _BASE.fullmatch(expected)) is not None:
        return _verdict(_same_in_base(found, given))
    if _is_text(gold, expected):
        return _verdict(_letters(expected) == _letters(given))
    return _compare_values(expected, given)


def _compare_values(expected: str, given: str) -> Verdict:
    first, second = _exact(expected), _exact(given)
    if first is not None and second is not None:
        return _verdict(_same(first, second))
    alone = isinstance(first, Number)
    if not _is_formula(given) or (alone and "," in given) or (second is not None and alone):
        return Verdict.WRONG
    finding = symbolic.compare(_latex(expected), _latex(given))
    if finding in (Finding.FAILED, Finding.OUT_OF_BOUNDS):
        raise _Undecided(finding)
    return _verdict(finding is Finding.EQUAL)


def _verdict(right: bool) -> Verdict:
    return Verdict.RIGHT if right else Verdict.WRONG


def _exact(text: str) -> Number | Numbers | None:
    """A number, several, or None; one number in round brackets is itself."""
    found = read_number(_ASSIGNED.sub("", text) if _ASSIGNED.match(text) else text)
    if found is not None:
        return found
    several = read_numbers(text)
    if several is not None and several.brackets == "()" and len(several.items) == 1:
        return several.items[0]
    return several


def _same(first: Number | Numbers, second: Number | Numbers) -> bool:
    if isinstance(first, Number) and isinstance(second, Number):
        return same_number(first, second)
    if isinstance(first, Numbers) and isinstance(second, Numbers):
        return same_numbers(first, second)
    return False


def _same_in_base(gold: re.Match[str], answer: str) -> bool:
    found = _BASE.fullmatch(answer)
    if found is None:
        return answer.casefold() == gold[1].casefold()
    return (found[1].casefold(), found[2]) == (gold[1].casefold(), gold[2])


def _is_text(raw: str, text: str) -> bool:
    r"""Whether a gold is words: in \text{...}, a letter in brackets, or three letters in a row."""
    bare = text.strip("() ")
    if _TEXT.fullmatch(bare) is None:
        return False
    wrapped = raw.lstrip(" $({").startswith("\\text") or text.startswith("(")
    return wrapped or _WORD.match(bare) is not None


def _letters(text: str) -> str:
    return " ".join(text.strip("() ").casefold().split())


def _is_formula(text: str) -> bool:
    """Whether math-verify would read all of it, in bounded time as far as a look can tell."""
    if not 0 < len(text) <= _LONGEST_FORMULA or not _SYMBOL.search(text):
        return False
    if _PARTIAL.search(text) or _WORD.search(_COMMAND.sub(" ", text)):
        return False
    bare = text.replace("\\{", "").replace("\\}", "")
    balanced = bare.count("{") == bare.count("}")
    return balanced and _TOWER.search(text) is None and re.search(r"\w|\\", text) is not None


def _latex(text: str) -> str:
    return _NAMED.sub(r"\\\1 ", text.replace(THIN, " "))
