"""Problems, their split, prompts, answers and rewards."""

from functools import partial
from typing import get_args

import numpy as np
import pytest

from redline.llm_track.arithmetic import Addition, direct, worked
from redline.llm_track.extraction import Reading, final_answer
from redline.llm_track.problems import TaskSettings
from redline.llm_track.prompts import PromptError, render
from redline.llm_track.rewards import Score, score
from redline.llm_track.split import TaskError, first_distinct
from redline.llm_track.tasks import language_task, language_task_names

SMALL = TaskSettings(generator={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})


def test_a_sum_in_two_habits() -> None:
    assert direct((482, 769)) == "#1251"
    assert worked((482, 769)) == "2+9=11;8+6+1=15;4+7+1=12;#1251"
    assert worked((123, 456)) == "3+6=9;2+5=7;1+4=5;#579"  # no carry
    assert worked((999, 999, 999)) == "9+9+9=27;9+9+9+2=29;9+9+9+2=29;#2997"
    assert worked((5, 95)) == "5+5=10;0+9+1=10;#100"


def test_training_never_meets_a_held_out_sum() -> None:
    task = Addition(digits=2)
    held_out = {tuple(sorted(problem)) for problem in task.held_out(300)}
    assert len(held_out) == 300
    for seed in range(30):
        drawn = task.training(np.random.default_rng(seed), 400)
        assert not held_out & {tuple(sorted(problem)) for problem in drawn}
        assert all(10 <= number < 100 for problem in drawn for number in problem)


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("llm:arithmetic", TaskSettings(digits=1, operands=3), 40),
        ("llm:rg:chain_sum", SMALL, 40),
        ("llm:rg:countdown", TaskSettings(), 4),  # slow to make
    ],
)
def test_training_never_meets_a_held_out_prompt(
    name: str, settings: TaskSettings, count: int
) -> None:
    task = language_task(name, settings)
    held_out = {problem.prompt for problem in task.held_out(count // 4)}
    assert len(held_out) == count // 4
    for seed in range(10):
        assert not held_out & {p.prompt for p in task.training(np.random.default_rng(seed), count)}


@pytest.mark.parametrize("name", ["llm:arithmetic", "llm:rg:chain_sum"])
def test_the_held_out_set_is_fixed_and_grows_at_its_end(name: str) -> None:
    few, many = (language_task(name).held_out(count) for count in (8, 20))
    assert few == many[:8]


def test_the_held_out_set_of_the_default_task_stays_what_it_is() -> None:
    # Published accuracies are on these: a change here makes them incomparable.
    prompts = [problem.prompt for problem in language_task("llm:arithmetic").held_out(3)]
    assert prompts == ["662+635=", "313+982=", "845+873="]


@pytest.mark.parametrize("name", ["llm:arithmetic", "llm:rg:chain_sum"])
def test_the_seed_decides_the_training_problems(name: str) -> None:
    task = language_task(name)
    draw = [task.training(np.random.default_rng(seed), 20) for seed in (0, 0, 1)]
    assert draw[0] == draw[1] != draw[2]


def test_a_held_out_set_that_is_too_small_says_so() -> None:
    with pytest.raises(TaskError, match="only 2 different held-out problems, not 3"):
        first_distinct(partial(next, iter([1, 2] * 2000)), lambda item: item, 3)
    with pytest.raises(TaskError, match="different held-out problems, not 100"):
        language_task("llm:arithmetic", TaskSettings(digits=1)).held_out(100)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#1251", "1251"),
        ("2+9=11;8+6+1=15;4+7+1=12;#1251", "1251"),
        ("so it is\n#### 42\n", "42"),
        ("# 3/4 ", "3/4"),
        ("#1#2", "2"),
        ("1251", None),
        ("#1251\nor so", None),
        ("#", None),
        ("#\n12", None),
        ("", None),
    ],
)
def test_the_final_answer(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


def test_scores() -> None:
    right = "579".__eq__
    assert score("#579", True, right) == Score(True, True, "579", True, True)
    assert score("#580", True, right) == Score(False, True, "580")
    assert score("#5790", True, right) == Score(False, True, "5790")
    assert score("579", True, right) == Score(False, False, "", False, True)
    assert score("579", True, right, "flexible") == Score(True, False, "579", False, True)
    # Cut by the cap: the next token might have been another digit.
    for reading in get_args(Reading):
        assert score("#579", False, right, reading) == Score(False, False, "")


def test_an_answer_that_contains_the_right_one_is_wrong() -> None:
    # The generator's own rule pays len(oracle) / len(answer) for these.
    (problem,) = language_task("llm:rg:chain_sum", SMALL).held_out(1)
    assert problem.right(problem.gold)
    assert not problem.right(f"{problem.gold} or so")
    assert not problem.right(f"1{problem.gold}")


def test_countdown_accepts_every_expression_that_works() -> None:
    task = language_task(
        "llm:rg:countdown", TaskSettings(generator={"min_numbers": 2, "max_numbers": 2})
    )
    problem = next(p for p in task.held_out(20) if " + " in p.gold)
    first, second = problem.gold.split(" + ")
    assert problem.right(f"{second} + {first}")
    assert not problem.right(f"{first} - {second}") and not problem.right("nothing")


def test_templates() -> None:
    assert render("equals", "4+3") == "4+3="
    assert render("steps", "4+{x}").startswith("4+{x}\n")
    with pytest.raises(PromptError, match=r"unknown prompt 'stps'.*nearest: steps"):
        render("stps", "")
    task = language_task("llm:arithmetic", TaskSettings(prompt="answer"))
    assert "#" in task.held_out(1)[0].prompt


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("llm:arithmetik", TaskSettings(), "unknown task 'llm:arithmetik'.*nearest: llm:arith"),
        ("llm:rg:chain_sums", TaskSettings(), "no generator 'chain_sums'; nearest: chain_sum"),
        ("llm:rg:chain_sum", TaskSettings(generator={"terms": 2}), "are refused.*terms"),
        ("llm:rg:chain_sum", TaskSettings(generator={"min_terms": -1}), "are refused"),
        ("llm:arithmetic", TaskSettings(prompt="plain"), "unknown prompt 'plain'"),
        ("llm:arithmetic", TaskSettings(digits=0), "digits must be from 1 to 15, got 0"),
        ("llm:arithmetic", TaskSettings(operands=1), "at least 2 operands, got 1"),
    ],
)
def test_what_does_not_exist_is_one_sentence(
    name: str, settings: TaskSettings, message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        language_task(name, settings)
    assert "\n" not in str(caught.value)


def test_without_reasoning_gym(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "llm:rg:countdown" in language_task_names()
    monkeypatch.setattr("redline.llm_track.generators.find_spec", lambda name: None)
    assert language_task_names() == ["llm:arithmetic", "llm:gsm8k", "llm:math"]
    with pytest.raises(TaskError, match=r'pip install "redline-rl\[llm\]"'):
        language_task("llm:rg:chain_sum")
