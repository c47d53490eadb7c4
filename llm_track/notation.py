"""One spelling for the many ways in which the same answer is written."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

# Separates groups of digits, unlike an ordinary space, which separates numbers.
THIN = "\u2009"

_MINUS = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-")
_SPACES = dict.fromkeys("\u00a0\u2007\u2009\u202f", THIN)
_SIGNS = {
    "\u00d7": "\\times ",
    "\u22c5": "\\cdot ",
    "\u00b7": "\\cdot ",
    "\u00f7": "/",
    "\u2044": "/",
    "\u2215": "/",
    "\u03c0": "\\pi ",
    "\u221e": "\\infty ",
    "\u221a": "\\sqrt ",
    "\u222a": "\\cup ",
    "\u00b1": "\\pm ",
    "\u00b0": "^\\circ",
    "\uff05": "%",
}
_TABLE = str.maketrans(_MINUS | _SPACES | _SIGNS)

_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b"
_LOWERED = "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089"
_SCRIPTS = re.compile(f"([{_RAISED}]+)|([{_LOWERED}]+)")
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")

_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|mathit|bf|rm|operatorname)\s*"
    r"\{([^{}]*)\}(?:\s*\^\s*\{?[23]\}?)?"
)
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)\\[()\[\]]", ""),  # the signs around a formula
        (r"\\!\s*", ""),
        (r"\{,\}", ","),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])", THIN),
        (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle)(?![A-Za-z])\s*", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
        (r"\\%", "%"),
        (r"\\?\$|[\u20ac\u00a3\u00a5]", ""),
        (r"(?:\s*\^\s*\{?\s*\\circ\s*\}?|\\degree)(?![A-Za-z])", ""),
        (r"\\le(?![A-Za-z])", r"\\leq"),
        (r"\\ge(?![A-Za-z])", r"\\geq"),
        (r"\*\*(?=\S)(.*?)(?<=\S)\*\*", r"\1"),  # bold
    )
)
_POWER = re.compile(r"(?<=[\w)\]}])\s*\*\*\s*(?=[-\w({])")
_EDGES = " \t\r\n`\"'\u2018\u2019\u201c\u201d" + THIN


def normalise(text: str) -> str:
    r"""An answer without what changes nothing: signs around formulas, `\left`, currency, degrees.

    Digits, minus signs, fractions and indices of Unicode become ASCII; \text{...} becomes its
    content, apart from what follows; a separator of groups of digits becomes `THIN`.
    """
    if not text.isascii():
        text = _ascii(text)
    text = _POWER.sub("^", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if "\\" in text:
        text = _WRAPPERS.sub(lambda found: f" {found[1]} ", text)
    text = text.strip(_EDGES)
    return text.rstrip(".;:,!?" + _EDGES) if not text.endswith("!") else text


def _ascii(text: str) -> str:
    """Characters of Unicode with the meaning of ASCII ones, as these."""
    text = _VULGAR.sub(lambda found: " " + _fraction(found[0]), text)
    text = _SCRIPTS.sub(_script, text).translate(_TABLE)
    text = "".join(char if char == THIN else unicodedata.normalize("NFKC", char) for char in text)
    return "".join(str(unicodedata.digit(c, c)) if c.isdecimal() else c for c in text)


def _fraction(char: str) -> str:
    value = Fraction(unicodedata.numeric(char)).limit_denominator(10)
    return f"{value.numerator}/{value.denominator}"


def _script(found: re.Match[str]) -> str:
    mark = "^" if found[1] else "_"
    text = unicodedata.normalize("NFKC", found[0]).replace("\u2212", "-")
    return f"{mark}{{{text}}}"
