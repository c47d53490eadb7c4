"""Where answers are found in completions, and what equals what."""

import time
from fractions import Fraction
from typing import get_args
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redline.llm_track import symbolic
from redline.llm_track.extraction import Reading, extract
from redline.llm_track.notation import normalise
from redline.llm_track.rational import read_number, same_number
from redline.llm_track.symbolic import Finding
from redline.llm_track.verifier import FAILURES, Verdict, Verifier, judge, readable

EXTRACTED = [
    ("2+2 is 4\n#### 4", "4", "4"),
    ("#4", "4", "4"),
    ("#### 1,234 ", "1,234", "1,234"),
    (r"thus $\boxed{\frac{1}{\sqrt{2}}}$.", r"\frac{1}{\sqrt{2}}", r"\frac{1}{\sqrt{2}}"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}", r"\{1,2\}"),
    (r"#### 3" + "\n" + r"I mean \boxed{4}", "4", "4"),
    (r"\boxed{3} no:" + "\n#### 4", "4", "4"),
    ("The answer is 18.", None, "18"),
    ("Answer: $18", None, "18"),
    ("**Answer:** 18 apples for 3 people", None, "18"),
    ("The answer is 3 * 6 = 18 apples for 3 people", None, "18"),
    ("She has 12 eggs, so she makes $18 a day", None, "$18"),
    ("it is 5, 6, 7", None, "5, 6, 7"),
    ("it is 5 or 6", None, "5 or 6"),
    ("it grows by 12.5%", None, "12.5%"),
    ("so 3 1/8 cups", None, "3 1/8"),
    ("it is -3", None, "-3"),
    (r"the answer is $\frac{3}{7}$.", None, r"\frac{3}{7}"),
    ("I give up", None, None),
    ("", None, None),
    # Thinking does not count, whatever it says.
    ("<think>#### 3</think>\n#### 4", "4", "4"),
    ("<think>maybe #### 3", None, None),
    ("#### 4 <think> or #### 5", "4", "4"),
    # Recited examples before, and invented questions after.
    ("As in the example #42, I end with\n#7", "7", "7"),
    ("#### 7\n\nQuestion: what is 1+1?\n#### 2", "7", "7"),
    ("Question: what is 1+1?\n#### 2", "2", "2"),
    ("### Step 1\nadd\n### Step 2\nso 5 it is", None, "5"),
]


@pytest.mark.parametrize(("text", "strict", "flexible"), EXTRACTED)
def test_extraction(text: str, strict: str | None, flexible: str | None) -> None:
    assert extract(text, "strict") == strict
    found = extract(text, "flexible")
    assert (found and normalise(found)) == (flexible and normalise(flexible))


EQUAL = [
    ("18", "18.00"),
    ("18", "18."),
    ("18", "+18"),
    ("18", "$18$"),
    ("18", r"\(18\)"),
    ("18", "**18**"),
    ("18", "18 apples per person"),
    ("18", "18 dollars"),
    ("18", "x = 18"),
    ("18", "(18)"),
    ("18", r"\frac{36}{2}"),
    ("18", r"2\cdot 9"),
    ("18", r"\sqrt{324}"),
    (".35625", "0.35625"),
    ("1/2", "\u00bd"),
    ("5/2", "2\u00bd"),
    ("1/2", r"\tfrac12"),
    ("1/3", r"0.\overline{3}"),
    ("-1/3", r"-\frac{1}{3}"),
    ("-1/3", r"\frac{-1}{3}"),
    ("1000", "10\u00b3"),
    ("3000000", "3 million"),
    (r"10,\!080", "10080"),
    (r"11,\! 111,\! 111,\! 100", "11111111100"),
    (r"864 \mbox{ inches}^2", "864"),
    (r"15\mbox{ cm}^2", r"15 \text{ cm}^2"),
    (r"5.4 \text{ cents}", "5.4"),
    (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"),
    (r"90^\circ", "90"),
    ("1,-2", "-2, 1"),
    ("1,-2", "x=1 or x=-2"),
    (r"\{1,2\}", r"\{2, 1\}"),
    ("3, 5, 7", "3, 5, and 7"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
    ("x=5", "5"),
    ("p - q", "-q + p"),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}"),
    (r"x \in [-2,7]", "[-2,7]"),
    ("2516_8", "2516_{8}"),
    ("2516_8", "2516"),
    (r"\text{Evelyn}", "evelyn"),
    (r"\text{(C)}", "C"),
    (r"\text{even}", r"\text{even}"),
    (r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}", r"\begin{pmatrix}-1&0\\0&-1\end{pmatrix}"),
    (r"\pi", "pi"),
    (r"15\%", "15"),
    (r"15\%", "0.15"),
]
DIFFERENT = [
    ("18", "19"),
    ("18", "18x"),
    ("18", "-18"),
    ("18", "18 and 19"),
    ("18", "18 19"),
    ("18", "about 17"),
    ("18", "18 or more"),
    ("3", "3 million"),
    ("12", "12 squared"),
    ("1.2", "1.2.3"),
    ("12", "12/5/2020"),
    ("12 ft", "12 m"),
    ("2", r"\boxed{1}, 2"),
    ("(1,2)", "(2,1)"),
    ("[0,1]", "(0,1)"),
    ("[0,1]", "0,1"),
    ("(0,1]", "(0,1)"),
    ("1,2", "1"),
    ("1,2", "1,2,2"),
    ("52_8", "52_9"),
    ("52_8", "42"),
    (r"\text{east}", "west"),
    (r"\text{even}", "neve"),
    (r"\text{(C)}", "(B)"),
    ("0.333", "1/3"),
    ("1/3", "0.333"),
    (r"\frac{1}{2}", r"\frac{1}{0}"),
    ("0.15", "15"),
    ("7", "7!"),
    ("5", ""),
    ("5", "the number five"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_answers(gold: str, answer: str) -> None:
    assert judge(answer, gold) is Verdict.RIGHT


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers(gold: str, answer: str) -> None:
    assert judge(answer, gold) is Verdict.WRONG


def test_golds_are_right_by_themselves_and_in_a_box() -> None:
    verifier = Verifier("strict")
    for gold, _ in EQUAL + DIFFERENT:
        assert readable(gold)
        assert judge(gold, gold) is Verdict.RIGHT
        assert verifier(f"so $\\boxed{{{gold}}}$.", gold) is Verdict.RIGHT


def test_the_readings_differ_where_nothing_is_marked() -> None:
    expected: dict[Reading, Verdict] = {"strict": Verdict.NO_ANSWER, "flexible": Verdict.RIGHT}
    for reading, verdict in expected.items():
        assert Verifier(reading)("She pays 18 dollars.", "18") is verdict


RATIONAL = st.fractions(max_denominator=10**6).filter(lambda x: abs(x) < 10**12)


def _forms(value: Fraction) -> list[str]:
    """Exact ways to write a rational."""
    n, d, sign = abs(value.numerator), value.denominator, "-" if value < 0 else ""
    forms = [f"{n}/{d}", f"\\frac{{{n}}}{{{d}}}", f"\\dfrac{{{n}}}{{{d}}}", f"{n:,}/{d}"]
    whole, rest = divmod(n, d)
    if whole and rest:
        forms += [f"{whole} {rest}/{d}", f"{whole:,}\\frac{{{rest}}}{{{d}}}"]
    if d == 1:
        forms += [f"{n}", f"{n:,}", f"{n}.00", f"{n}e0", f"${n:,}", f"{n} apples"]
        forms.append(f"{n:,}".replace(",", r"\,"))
        forms.append(f"{n:,}".replace(",", "{,}"))
        forms.append("".join(chr(ord("\uff10") + int(digit)) for digit in str(n)))
    if 10**6 % d == 0:
        tail = f"{n * (10**6 // d):07d}"
        forms += [f"{tail[:-6]}.{tail[-6:]}", f"{int(tail)}e-6", f"{int(tail)}\\times 10^{{-6}}"]
    return [sign + form for form in forms] + ["\u2212" + form for form in forms if sign]


@given(st.one_of(RATIONAL, st.integers().map(Fraction).filter(lambda x: abs(x) < 10**12)))
def test_what_is_written_is_read_back(value: Fraction) -> None:
    for form in _forms(value):
        found = read_number(normalise(form))
        assert found is not None, form
        assert (found.value, found.percent) == (value, False), form


@given(RATIONAL, RATIONAL)
def test_different_rationals_are_never_equal(first: Fraction, second: Fraction) -> None:
    for one in _forms(first)[:6]:
        for two in _forms(second)[:6]:
            a, b = read_number(normalise(one)), read_number(normalise(two))
            assert a is not None and b is not None
            assert same_number(a, b) == (first == second)


@given(st.text(max_size=60), st.sampled_from(["5", "1/3", "(0,1)"]))
def test_any_text_is_judged(text: str, gold: str) -> None:
    with patch.object(symbolic, "compare", return_value=Finding.DIFFERENT):
        assert judge(text, gold) in Verdict
        for reading in get_args(Reading):
            assert Verifier(reading)(f"\\boxed{{{text}}} #### {text}", gold) in Verdict


def test_plain_answers_are_fast() -> None:
    golds = [str(n) for n in range(3_000)]
    start = time.process_time()
    assert all(judge(f"${int(gold):,}.00", gold) is Verdict.RIGHT for gold in golds)
    assert 3_000 / (time.process_time() - start) > 2_000


def test_comparisons_that_fail_are_counted() -> None:
    before = FAILURES[Finding.OUT_OF_BOUNDS]
    assert judge(r"\binom{999999}{499999}", r"\frac{\pi}{2}") is Verdict.WRONG
    assert FAILURES[Finding.OUT_OF_BOUNDS] == before + 1
