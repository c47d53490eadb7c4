"""Numbers as people and language models write them, as exact rationals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from redline.llm_track.notation import THIN

# A rounded decimal stands for a fraction that no decimal equals, up to this relative error.
TOLERANCE = Fraction(1, 10**6)

_DIGITS = 1_000  # of a number; what is longer is no answer to anything
_EXPONENT = 300

_WHOLE = rf"(?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,3}}(?:{THIN}\d{{3}})+|\d+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d*)?|\.\d+)"
_SIGNED = rf"[+-]?\s*{_DECIMAL}"
_ARGUMENT = rf"(?:\{{\s*({_SIGNED})\s*\}}|(\d))"
_SPACE = rf"[ {THIN}]*"

_PLAIN = re.compile(
    rf"(?P<decimal>{_DECIMAL})"
    rf"(?:[eE](?P<e>[+-]?\d{{1,4}})"
    rf"|{_SPACE}(?:\*|x|\\times|\\cdot){_SPACE}10{_SPACE}\^{_SPACE}"
    r"(?:\{\s*(?P<power>[+-]?\d{1,4})\s*\}|(?P<digits>[+-]?\d{1,4})))?"
)
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{?(\d+)\}?")
_SLASH = re.compile(rf"({_DECIMAL})\s*/\s*([+-]?{_DECIMAL})")
_FRAC = re.compile(rf"\\frac\s*{_ARGUMENT}\s*{_ARGUMENT}")
_MIXED = re.compile(rf"({_WHOLE})(?:[ {THIN}]+(?:and +)?(?=\d)|{_SPACE}(?=\\frac))")
_SIGN = re.compile(r"([+-]?)\s*")
_PERCENT = re.compile(rf"{_SPACE}(?:%|percent\b|per cent\b)")
_UNIT = re.compile(
    rf"(?:{_SPACE}(?P<scale>hundred|thousand|million|billion|trillion|dozen)\b)?"
    rf"(?:[ {THIN}]+(?P<unit>[A-Za-z][A-Za-z. /{THIN}]*(?:\^\{{?[23]\}}?)?)"
    r"|(?P<close>(?:cm|mm|km|kg|mg|ml|ft|lb|lbs|mph|min|hr|hrs|USD)(?:\^\{?[23]\}?)?))?\s*\Z"
)
_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
# Words that make something else of the number before them.
_NO_UNITS = frozenset(
    "and cubed divided e factorial half i k less minus mod more n or over pi plus quarter "  # noqa: SIM905
    "squared than thirds times to x y z cos ln log sin sqrt tan".split()
)


@dataclass(frozen=True)
class Number:
    """A number and how it was written.

    Attributes:
        value: Exact; of 15% it is 15.
        percent: A percent sign follows.
        point: It was written as a decimal.
        unit: What follows it, in lower case; "" for nothing.
    """

    value: Fraction
    percent: bool = False
    point: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Numbers:
    """Several numbers.

    Attributes:
        brackets: Around them: "()", "(]", "{}", ...; "" for none.
        items: In their order.
    """

    brackets: str
    items: tuple[Number, ...]


def read_number(text: str) -> Number | None:
    r"""A number from normalised text; None where it is anything else, also a number and a bit.

    Read are signs, groups of three digits, decimals, powers of ten, `3/7`, `\frac37`, mixed
    numbers with a proper fraction, `0.\overline{3}`, percents, words such as million, and units.
    """
    if len(text) > _DIGITS:
        return None
    sign = _SIGN.match(text)
    assert sign is not None
    found = _magnitude(text[sign.end() :])
    if found is None:
        return None
    value, point, rest = found
    percent = _PERCENT.match(rest)
    tail = _UNIT.match(rest[percent.end() :] if percent else rest)
    if tail is None:
        return None
    unit = (tail["unit"] or tail["close"] or "").strip().lower()
    if _NO_UNITS & set(re.findall("[a-z]+", unit)) or (percent and unit):
        return None
    value *= _SCALES.get(tail["scale"], 1)
    return Number(-value if sign[1] == "-" else value, percent is not None, point, unit)


def read_numbers(text: str) -> Numbers | None:
    """Several numbers from normalised text, or one in brackets; None where it is anything else."""
    brackets, inner = _unwrap(text)
    comma = ", " if ", " in inner else ","  # the other kind then groups digits
    parts = re.split(rf"{comma}(?:\s*(?:and|or)\b)?|\b(?:and|or)\b", inner)
    items = [read_number(part.strip()) for part in parts]
    if any(item is None for item in items) or (len(items) == 1 and not brackets):
        return None
    return Numbers(brackets, tuple(item for item in items if item is not None))


def _unwrap(text: str) -> tuple[str, str]:
    text = text.replace("\\{", "{").replace("\\}", "}")
    if len(text) > 2 and text[0] in "([{" and text[-1] in ")]}":
        return text[0] + text[-1], text[1:-1]
    return "", text


def same_number(gold: Number, answer: Number) -> bool:
    """Whether two numbers are equal.

    A percent equals the bare number before its sign (the question may ask for percents) and its
    hundredth; where both have the sign, or neither, the values must be equal. A decimal equals a
    fraction that no decimal equals within `TOLERANCE`; nothing else is rounded.
    """
    if _clash(gold.unit, answer.unit):
        return False
    if gold.percent == answer.percent:
        return _close(gold, answer, gold.value, answer.value)
    if answer.percent:
        return answer.value == gold.value or _close(gold, answer, gold.value, answer.value / 100)
    return answer.value == gold.value or _close(gold, answer, gold.value / 100, answer.value)


def same_numbers(gold: Numbers, answer: Numbers) -> bool:
    """Whether two lists are equal: in order in round brackets, as sets in braces or without any.

    An answer may leave out round brackets and braces; intervals must be as open as the gold's.
    """
    if len(gold.items) != len(answer.items):
        return False
    pair = {gold.brackets, answer.brackets}
    if len(pair) > 1 and ("" not in pair or gold.brackets not in ("", "()", "{}")):
        return False
    first, second = gold.items, answer.items
    if pair <= {"", "{}"}:
        first, second = _sorted(first), _sorted(second)
    return all(same_number(a, b) for a, b in zip(first, second, strict=True))


def _sorted(items: Sequence[Number]) -> tuple[Number, ...]:
    return tuple(sorted(items, key=lambda item: item.value))


def _close(gold: Number, answer: Number, first: Fraction, second: Fraction) -> bool:
    if first == second:
        return True
    if gold.point == answer.point:
        return False
    exact = second if gold.point else first
    return not _terminates(exact) and abs(first - second) <= TOLERANCE * abs(exact)


def _terminates(value: Fraction) -> bool:
    """Whether a decimal equals it."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _magnitude(text: str) -> tuple[Fraction, bool, str] | None:
    """Value, whether it was written with a point, and what follows; None for no number."""
    mixed = _MIXED.match(text)
    if mixed is not None and (part := _fraction(text[mixed.end() :])) is not None:
        fraction, rest, whole = part
        proper = whole and 0 < fraction < 1
        return (_decimal(mixed[1]) + fraction, False, rest) if proper else None
    if (part := _fraction(text)) is not None:
        return part[0], False, part[1]
    if (found := _REPEATING.match(text)) is not None:
        return _repeating(*found.groups()), False, text[found.end() :]
    if (found := _PLAIN.match(text)) is None:
        return None
    exponent = int(found["e"] or found["power"] or found["digits"] or 0)
    if abs(exponent) > _EXPONENT:
        return None
    value = _decimal(found["decimal"]) * Fraction(10) ** exponent
    return value, "." in found["decimal"] or exponent < 0, text[found.end() :]


def _fraction(text: str) -> tuple[Fraction, str, bool] | None:
    """Value, what follows, and whether both parts are whole numbers without a sign."""
    found = _FRAC.match(text) or _SLASH.match(text)
    if found is None:
        return None
    above, below = (part for part in found.groups() if part is not None)
    bottom = _decimal(below)
    if bottom == 0:
        return None
    whole = above.isdecimal() and below.isdecimal()
    return _decimal(above) / bottom, text[found.end() :], whole


def _decimal(text: str) -> Fraction:
    bare = re.sub(rf"[, {THIN}]", "", text)
    return Fraction(bare + "0" if bare.endswith(".") else bare)


def _repeating(whole: str, fixed: str, period: str) -> Fraction:
    """0.1 with the period 36 is 0.1 + 36 / 990."""
    start = Fraction(int(whole + fixed or 0), 10 ** len(fixed))
    return start + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))


_ALIASES = {
    "feet": "ft",
    "foot": "ft",
    "inches": "in",
    "inch": "in",
    "yards": "yd",
    "yard": "yd",
    "miles": "mi",
    "mile": "mi",
    "meters": "m",
    "meter": "m",
    "metres": "m",
    "metre": "m",
    "centimeters": "cm",
    "centimetres": "cm",
    "kilometers": "km",
    "kilometres": "km",
    "grams": "g",
    "gram": "g",
    "kilograms": "kg",
    "kilogram": "kg",
    "seconds": "s",
    "second": "s",
    "minutes": "min",
    "minute": "min",
    "hours": "h",
    "hour": "h",
    "hr": "h",
    "hrs": "h",
    "days": "day",
    "weeks": "week",
    "cents": "cent",
    "dollars": "dollar",
    "usd": "dollar",
}
_KNOWN = frozenset(_ALIASES.values())


def _clash(first: str, second: str) -> bool:
    """Whether both units are known, and differ; other words may be anything."""
    short = {_ALIASES.get(unit, unit) for unit in (first, second)}
    return len(short) == 2 and short <= _KNOWN
