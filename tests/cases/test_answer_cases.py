"""Answers that public reports found graded wrong: numbers, fractions, boxes, endless ones."""

import multiprocessing
import resource
import threading
import time
from multiprocessing.connection import Connection
from typing import get_args
from unittest.mock import patch

import pytest

from redline.llm_track import symbolic
from redline.llm_track.extraction import Reading
from redline.llm_track.symbolic import Finding
from redline.llm_track.verifier import FAILURES, Verdict, Verifier, judge, readable

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


def test_memory_is_bounded_and_its_end_is_no_verdict_on_what_follows() -> None:
    checker = symbolic.Checker()
    try:
        assert checker.ask("5", r"\frac{10}{2}") is Finding.EQUAL
        process = checker._process
        assert process is not None
        assert resource.prlimit(process.pid, resource.RLIMIT_AS) == (symbolic.MEMORY,) * 2
        assert checker.ask("5", "2^{10^{11}}") is Finding.OUT_OF_BOUNDS
        assert checker.ask("5", r"\frac{10}{2}") is Finding.EQUAL
        assert checker._process is process
        process.kill()  # as the system does where memory is short
        process.wait()
        assert checker.ask("5", r"\frac{10}{2}") is Finding.EQUAL
    finally:
        checker.close()


def test_a_busy_machine_loses_no_gold() -> None:
    gold = r"\left[ \frac{\pi^2}{8}, \frac{5 \pi^2}{4} \right]"
    failed = FAILURES.total()
    with patch.object(symbolic, "read", side_effect=[Finding.OUT_OF_BOUNDS, Finding.EQUAL]) as read:
        assert readable(gold)
        assert readable(gold) and read.call_count == 2  # a verdict is kept
    assert FAILURES.total() == failed
    other = r"\left[ \frac{\pi^2}{8}, \frac{7 \pi^2}{4} \right]"
    with patch.object(symbolic, "read", return_value=Finding.OUT_OF_BOUNDS):
        assert judge(other, other) is Verdict.GOLD_UNREADABLE
    assert FAILURES.total() == failed + 1
    assert judge(other, other) is Verdict.RIGHT
    with patch.object(symbolic, "compare", return_value=Finding.OUT_OF_BOUNDS):
        assert judge(r"\frac{\sqrt{4}}{10}", other) is Verdict.WRONG
    assert FAILURES.total() == failed + 2


# The first and the last are right; the second one is not foreseen, and its process ends.
_ROWS = [
    r"\sqrt{\frac{1}{9}}",
    r"\binom{999999}{499999}",
    r"\sqrt{\frac{9}{81}}",
    *[HOSTILE[name] for name in sorted(HOSTILE)[::4]],
    r"\frac{1}{3}",
]


def _grades(into: list[Verdict]) -> None:
    for answer in _ROWS:
        start = time.monotonic()
        into.append(Verifier("strict")(f"\\boxed{{{answer}}}", "1/3"))
        # The first question loads the library; none waits for another process after that.
        assert answer == _ROWS[0] or time.monotonic() - start < symbolic.LIMIT + 0.5


_EXPECTED = [
    Verdict.RIGHT if index in (0, 2, len(_ROWS) - 1) else Verdict.WRONG
    for index in range(len(_ROWS))
]


def _child(sender: Connection) -> None:
    found: list[Verdict] = []
    _grades(found)
    symbolic._CHECKER.close()
    # Of all that it waited for: the processes that compared, those that a bound ended among them.
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    sender.send((found, used * 1024))


def test_it_works_in_every_thread_and_process_alike() -> None:
    here: list[Verdict] = []
    _grades(here)
    assert here == _EXPECTED
    there: list[Verdict] = []
    thread = threading.Thread(target=_grades, args=(there,))
    thread.start()
    thread.join(30)
    assert there == _EXPECTED
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_child, args=(sender,))
    process.start()
    assert receiver.poll(60)
    found, used = receiver.recv()
    assert found == _EXPECTED
    assert 0 < used < symbolic.MEMORY
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
