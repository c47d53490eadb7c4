"""Answers that public reports found graded wrong: numbers, fractions, boxes, endless ones."""

import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from typing import get_args

import pytest

from redline.llm_track import symbolic
from redline.llm_track.extraction import Reading
from redline.llm_track.symbolic import Finding
from redline.llm_track.verifier import Verdict, Verifier, judge

NUMBERS = [
    ("1234567", "1,234,567", True),
    ("1234567", "1{,}234{,}567", True),
    ("1234567", r"1\,234\,567", True),
    ("-12500", "-12,500", True),
    ("(0,1)", "0,1", True),
    ("1", "0,1", False),
    ("01", "0,1", False),
    ("357", "3,5,7", False),
    ("1234", "12,34", False),
    ("-7", "\u22127", True),
    ("-7", "\u20137", True),
    ("7", "\u22127", False),
    ("1500", "1.5e3", True),
    ("1500", r"1.5\times10^{3}", True),
    ("1500", r"1.5 \cdot 10^3", True),
    ("0.1", "1e-1", True),
    ("1", "1e-1", False),
    ("10", "\uff11\uff10", True),
    ("1", "\uff11\uff10", False),
    ("0.15", r"15\%", True),
    ("0.15", "15 percent", True),
    ("15", "15%", True),
    ("15", "0.15", False),
]
FRACTIONS = [
    (r"\frac{3}{7}", "3/7", True),
    (r"\frac{3}{7}", r"\frac37", True),
    (r"\frac{3}{7}", r"\frac3{7}", True),
    (r"\frac{3}{7}", r"\dfrac{6}{14}", True),
    ("3", "3/7", False),
    ("25/8", "3 1/8", True),
    ("25/8", r"3\frac{1}{8}", True),
    ("25/8", "3.125", True),
    ("-9/4", "-2 1/4", True),
    ("-7/4", "-2 1/4", False),
    ("5", "5 1/2", False),
    ("9", "6 9/4", False),
    ("33/4", "6 9/4", False),
    ("6", "6 9/4", False),
    ("1/7", "0.142857142857", True),
    ("200/3", "66.7", False),
]
BOXES = [
    (r"(4,\infty)", r"\boxed{\left(4,\infty\right)}", True),
    ("12", r"\boxed{12 ft}", True),
    ("12", r"\boxed{12\text{ cm}}", True),
    ("12", r"\boxed{12^\circ}", True),
    ("12", r"\boxed{\$12}", True),
    ("27", r"\boxed{\text{27}}", True),
    (r"\frac{\sqrt2}{2}", r"\boxed{\frac{1}{\sqrt{2}}}", True),
    ("42", r"\[ \boxed{42} \]", True),
    ("42", r"\fbox{42}", True),
    ("42", r"\boxed 42", True),
    ("2", r"\boxed{1} and then \boxed{2}", True),
    ("1", r"\boxed{1} and then \boxed{2}", False),
    ("6", r"\boxed{5, 6, 7}", False),
    ("6", "#### 5, 6, 7", False),
]
HOSTILE = {
    "tower": r"9^{9^{9}}",
    "python tower": "9**9**9",
    "factorials": "10!!!!",
    "factorial": r"(10^{9})!",
    "brackets": "(" * 100_000,
    "exponent": "1e999999999",
    "digits": "9" * 100_000,
}


@pytest.mark.parametrize(("gold", "answer", "right"), NUMBERS + FRACTIONS)
def test_an_answer_alone(gold: str, answer: str, right: bool) -> None:
    assert judge(answer, gold) is (Verdict.RIGHT if right else Verdict.WRONG)


@pytest.mark.parametrize(("gold", "text", "right"), BOXES)
def test_an_answer_that_is_marked(gold: str, text: str, right: bool) -> None:
    assert Verifier("strict")(text, gold) is (Verdict.RIGHT if right else Verdict.WRONG)


@pytest.mark.parametrize("text", [r"\boxed{}", r"so it is \boxed{3", r"\boxed"])
@pytest.mark.parametrize("reading", get_args(Reading))
def test_an_empty_or_open_box_is_no_answer(text: str, reading: Reading) -> None:
    assert Verifier(reading)(text, "3") is Verdict.NO_ANSWER


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_an_endless_answer_is_wrong_at_once(answer: str) -> None:
    verifier = Verifier("strict")
    start = time.monotonic()
    assert verifier(f"\\boxed{{{answer}}}", "5") is Verdict.WRONG
    assert time.monotonic() - start < 2.5
    assert verifier(r"\boxed{\frac{10}{2}}", "5") is Verdict.RIGHT


def test_what_no_look_foresees_ends_with_its_process() -> None:
    assert symbolic.compare("5", r"\frac{10}{2}") is Finding.EQUAL  # the process is there
    start = time.monotonic()
    assert symbolic.compare("5", "9^{9^{9}}") is Finding.OUT_OF_BOUNDS
    assert time.monotonic() - start < symbolic.LIMIT + 1.0
    assert symbolic.compare("5", r"\frac{10}{2}") is Finding.EQUAL


def _grades(into: list[Verdict]) -> None:
    into.append(Verifier("strict")(r"\boxed{\sqrt{\frac{1}{9}}}", "1/3"))
    into.append(Verifier("strict")(r"\boxed{9^{9^{9}}}", "1/3"))
    into.append(Verifier("strict")(r"\boxed{\frac{1}{3}}", "1/3"))


_EXPECTED = [Verdict.RIGHT, Verdict.WRONG, Verdict.RIGHT]


def _child(sender: Connection) -> None:
    found: list[Verdict] = []
    _grades(found)
    sender.send(found)


def test_it_works_in_every_thread_and_process_alike() -> None:
    here: list[Verdict] = []
    _grades(here)
    assert here == _EXPECTED
    for _ in range(2):
        there: list[Verdict] = []
        thread = threading.Thread(target=_grades, args=(there,))
        thread.start()
        thread.join(30)
        assert there == _EXPECTED
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_child, args=(sender,))
    process.start()
    assert receiver.poll(60)
    assert receiver.recv() == _EXPECTED
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.parametrize("gold", ["???", "", "----", r"\frac{1}{", "{{{"])
@pytest.mark.parametrize("answer", ["5", "???", "", None])
def test_a_gold_that_cannot_be_read_gives_no_point(gold: str, answer: str | None) -> None:
    assert judge(answer, gold) is Verdict.GOLD_UNREADABLE


def test_a_plain_gold_is_read() -> None:
    verifier = Verifier("strict")
    assert verifier(r"\boxed{6}", "6") is Verdict.RIGHT
    assert verifier(r"\boxed{7}", "6") is Verdict.WRONG
    assert verifier("I do not know", "6") is Verdict.NO_ANSWER
    assert verifier(r"\boxed{7}", "???") is Verdict.GOLD_UNREADABLE
    assert dict(verifier.counts.verdicts) == dict.fromkeys(Verdict, 1)


def test_failures_are_counted_and_are_wrong_answers() -> None:
    verifier = Verifier("strict")
    # Short and without a tower, so that it gets as far as the process.
    assert verifier(r"\boxed{\prod_{n=1}^{9999} n^{9999}}", "5") is Verdict.WRONG
    assert verifier(r"\boxed{\sqrt{25}}", "5") is Verdict.RIGHT
    assert dict(verifier.counts.failures) == {Finding.OUT_OF_BOUNDS: 1}
