"""Questions from files: columns, splits, and files that are something else."""

import json
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redline.llm_track import records
from redline.llm_track.problems import TaskSettings
from redline.llm_track.split import TaskError
from redline.llm_track.tasks import language_task

ROWS = [
    {"question": f"What is {n} + {n}?", "answer": f"Twice {n}.\n#### {2 * n:,}"} for n in range(800)
]


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_gold_answers_are_those_that_are_marked(tmp_path: Path) -> None:
    file = _write(tmp_path / "sums.jsonl", ROWS)
    task = language_task("llm:gsm8k", TaskSettings(data=str(file)))
    for problem in task.held_out(20):
        n = int(problem.prompt.split()[2])
        assert problem.gold == f"{2 * n:,}"
        assert problem.right(f"${2 * n}.00") and not problem.right(str(2 * n + 1))
        assert "####" in problem.prompt


def test_training_never_meets_a_held_out_question(tmp_path: Path) -> None:
    shouted = [{**row, "question": row["question"].upper() + " "} for row in ROWS]
    file = _write(tmp_path / "sums.jsonl", ROWS + shouted)
    task = language_task(f"llm:{file}")
    held_out = {problem.gold for problem in task.held_out(50)}
    for seed in range(5):
        drawn = task.training(np.random.default_rng(seed), 300)
        assert len({problem.gold for problem in drawn}) == 300  # none comes twice
        assert not held_out & {problem.gold for problem in drawn}
    assert task.held_out(50) == language_task(f"llm:{file}").held_out(50)


def test_a_file_of_held_out_questions_takes_them_from_training(tmp_path: Path) -> None:
    both, held_out = _write(tmp_path / "a.jsonl", ROWS), _write(tmp_path / "b.jsonl", ROWS[:30])
    settings = TaskSettings(data=str(both), held_out_data=str(held_out))
    task = language_task("llm:gsm8k", settings)
    asked = {problem.prompt for problem in task.held_out(30)}
    drawn = task.training(np.random.default_rng(0), 770)
    assert len(asked) == 30 and not asked & {problem.prompt for problem in drawn}
    with pytest.raises(TaskError, match="eval_problems must be at most 30, got 31"):
        task.held_out(31)


def test_columns_by_name(tmp_path: Path) -> None:
    rows = [
        {"q": f"What is {n}?", "n": n, "a": f"so \\boxed{{\\frac{{{n}}}{{7}}}}"} for n in range(99)
    ]
    file = _write(tmp_path / "named.jsonl", rows)
    for column, form in (("n", "{}"), ("a", "\\frac{{{}}}{{7}}")):
        settings = TaskSettings(question_column="q", answer_column=column)
        (problem,) = language_task(f"llm:{file}", settings).held_out(1)
        n = int(problem.prompt.split()[2].rstrip("?"))
        assert problem.gold == form.format(n)


def test_a_gold_that_cannot_be_read_is_never_asked_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{**row, "answer": "???"} if i % 3 else row for i, row in enumerate(ROWS)]
    file = _write(tmp_path / "odd.jsonl", rows)
    task = language_task(f"llm:{file}")
    with caplog.at_level(logging.WARNING):
        problems = task.training(np.random.default_rng(0), 600)  # some come twice
    assert all(problem.right(problem.gold) for problem in problems)
    text = caplog.messages[0]
    assert text.startswith(f"{file}, row ") and "its answer '???' cannot be read" in text
    assert len(set(caplog.messages)) == len(caplog.messages)
    only = _write(tmp_path / "none.jsonl", [{**row, "answer": "???"} for row in ROWS])
    with pytest.raises(TaskError, match=r"no training answer of .* can be read"):
        language_task(f"llm:{only}").training(np.random.default_rng(0), 1)


LINE = b'{"question": "How many?", "answer": "5"}\n'
MANY = "".join(json.dumps(row) + "\n" for row in ROWS[:100]).encode()
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no questions"),
    "blank": (b"\n\n", "holds no questions"),
    "one": (LINE, r"too few questions \(1\) to hold one in ten out"),
    "no json": (LINE + b"How many?\n", "line 2: expected a JSON object, got 'How many"),
    "list": (LINE + b'["How many?", "5"]\n', "row 2: expected an object with columns"),
    "column": (
        b'{"questions": "How many?", "answer": "5"}\n',
        "row 1 has no column 'question', only questions, answer; nearest: questions",
    ),
    "null": (b'{"question": "Q", "answer": null}\n', "column 'answer': expected text, got 'None'"),
    "bool": (b'{"question": "Q", "answer": true}\n', "expected text, got 'True'"),
    "blank cell": (b'{"question": " ", "answer": "5"}\n', "column 'question': expected text"),
    "latin-1": (LINE + '{"question": "\u00e9t\u00e9"}'.encode("latin-1"), r"line 2 is not UTF-8"),
    "utf-16": (LINE.decode().encode("utf-16"), "is a UTF-16 file: expected JSON lines in UTF-8"),
    "gzip": (b"\x1f\x8b\x08\x00", "is a gzip file"),
    "parquet": (b"PAR1\x15\x04", "is a parquet file"),
    "deep": (b"[" * 100_000 + b"\n", "line 1: expected a JSON object"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_what_is_no_file_of_questions_is_one_sentence(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(TaskError, match=message) as caught:
        language_task(f"llm:{file}")
    assert "\n" not in str(caught.value) and str(file) in str(caught.value)


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain.jsonl", tmp_path / "marked.jsonl"
    plain.write_bytes(MANY)
    marked.write_bytes(b"\xef\xbb\xbf" + MANY)
    assert language_task(f"llm:{plain}").held_out(5) == language_task(f"llm:{marked}").held_out(5)


def test_an_endless_line_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "endless.jsonl"
    with file.open("wb") as hole:  # 1 GB that takes no room on the disk
        hole.write(LINE)
        hole.truncate(2**30)
    with pytest.raises(TaskError, match="line 2 is longer than 4,000,000 bytes"):
        language_task(f"llm:{file}")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("llm:missing.jsonl", TaskSettings(), "missing.jsonl cannot be read: No such file"),
        ("llm:.jsonl", TaskSettings(), "cannot be read"),
        ("llm:gsm8k", TaskSettings(held_out_data="x.jsonl"), "held_out_data needs data"),
        ("llm:gsm8k", TaskSettings(data="x.jsonl", prompt="stps"), "unknown prompt 'stps'"),
        ("llm:gsm9k", TaskSettings(), "unknown task 'llm:gsm9k'.*nearest: llm:gsm8k"),
        ("llm:sums.csv", TaskSettings(), "llm:FILE.jsonl"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(
    name: str, settings: TaskSettings, message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        language_task(name, settings)
    assert "\n" not in str(caught.value)


def _hub(monkeypatch: pytest.MonkeyPatch, load: Callable[..., Any]) -> None:
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))  # type: ignore[arg-type]
    monkeypatch.setattr(records, "find_spec", lambda name: object())


def test_the_hub_keeps_its_own_split(monkeypatch: pytest.MonkeyPatch) -> None:
    # One question of the training split is asked in the test split too.
    splits = {"train": ROWS[:40], "test": ROWS[39:60]}
    _hub(monkeypatch, lambda name, config, split: splits[split])
    task = language_task("llm:gsm8k")
    assert [p.gold for p in task.held_out(2)] == ["78", "80"]
    drawn = {p.gold for p in task.training(np.random.default_rng(0), 39)}
    assert drawn == {f"{2 * n}" for n in range(39)}


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route to the hub\nand more")

    _hub(monkeypatch, fail)
    with pytest.raises(
        TaskError, match=r"cannot be had from the hub \(no route to the hub\); give"
    ):
        language_task("llm:math")
    monkeypatch.setattr(records, "find_spec", lambda name: None)
    with pytest.raises(TaskError, match="pip install datasets; or give a file with data"):
        language_task("llm:gsm8k")


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sums.parquet"
    file.write_bytes(b"PAR1 and nothing")
    monkeypatch.setattr(records, "find_spec", lambda name: None)
    with pytest.raises(TaskError, match="needs the package pyarrow: pip install pyarrow"):
        language_task(f"llm:{file}")
    monkeypatch.undo()
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    with pytest.raises(TaskError, match="is no parquet file"):
        language_task(f"llm:{file}")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    lines = _write(tmp_path / "sums.jsonl", ROWS)
    assert language_task(f"llm:{file}").held_out(9) == language_task(f"llm:{lines}").held_out(9)


def test_questions_without_a_readable_answer_are_counted(tmp_path: Path) -> None:
    rows = [{**row, "answer": "???" if n % 2 else "#### 5"} for n, row in enumerate(ROWS)]
    task = language_task(f"llm:{_write(tmp_path / 'half.jsonl', rows)}")
    assert task.unreadable == 0 and not task.left_out
    assert {problem.gold for problem in task.held_out(20)} == {"5"}
    assert task.unreadable == len(task.left_out) > 5
    assert set(task.left_out.values()) == {"???"}


def test_a_column_given_twice_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "twice.jsonl", ROWS)
    file.write_text(file.read_text() + '{"question": "a", "answer": "1", "answer": "2"}\n')
    with pytest.raises(TaskError, match=rf"line {len(ROWS) + 1} has the column 'answer' twice"):
        language_task(f"llm:{file}")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = [pyarrow.array([str(n) for n in range(20)])] * 3
    file = tmp_path / "twice.parquet"
    parquet.write_table(pyarrow.table(columns, names=["question", "answer", "answer"]), file)
    with pytest.raises(TaskError, match="has a column twice: question, answer, answer"):
        language_task(f"llm:{file}")


def test_half_a_surrogate_pair_is_named(tmp_path: Path) -> None:
    file = _write(tmp_path / "torn.jsonl", [{"question": "\ud800?", "answer": "1"}, *ROWS])
    with pytest.raises(TaskError, match=r"row 1, column 'question': half a surrogate pair"):
        language_task(f"llm:{file}")
