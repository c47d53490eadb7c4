"""Blind samples of a run: what graders see, what they do not, and what comes of their grades."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.grading import joined, open_samples
from redline.benchmark.train import train

FEW = ["--task", "llm:arithmetic", "--steps", "128", "--evals", "1", "--groups", "8"]
FEW += ["--group-size", "4", "--minibatch-size", "16", "--eval-problems", "4"]
FEW += ["--eval-samples", "2", "--max-completion", "32", "--review-every", "2"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train(resolve("grpo", FEW), folder)
    return folder


def test_the_samples_tell_nothing_and_the_key_all(run: Path) -> None:
    shown, hidden = lines(run / "review.jsonl"), lines(run / "review_key.jsonl")
    assert len(shown) == len(hidden) == 40  # 20 of the second update, 20 of the fourth
    assert {tuple(row) for row in shown} == {("id", "prompt", "completion")}
    assert [row["id"] for row in shown] == [row["id"] for row in hidden] == list(range(40))
    assert [row["update"] for row in hidden] == [2] * 20 + [4] * 20
    assert {tuple(row) for row in hidden} == {
        ("id", "step", "update", "verdict", "reward", "ratio_mean", "ratio_max")
    }


def test_a_sample_is_the_text_whose_verdict_the_key_has(run: Path) -> None:
    right = 0
    for row, key in zip(lines(run / "review.jsonl"), lines(run / "review_key.jsonl"), strict=True):
        assert row["prompt"].endswith("=")
        one, other = row["prompt"].removesuffix("=").split("+")
        answer = row["completion"].rpartition("#")[2]
        assert (answer == str(int(one) + int(other))) == (key["verdict"] == 1.0)
        assert key["reward"] == key["verdict"] and 0.0 < key["ratio_mean"] <= key["ratio_max"]
        right += answer == str(int(one) + int(other))
    assert 0 < right < 40


def written(folder: Path, grades: list[tuple[str, int, float]], rewards: list[float]) -> Path:
    """A run of which only samples and grades are there."""
    folder.mkdir(exist_ok=True)

    def write(name: str, rows: list[dict[str, Any]]) -> None:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("review.jsonl", [{"id": i, "prompt": "p", "completion": "c"} for i in range(8)])
    keys = [
        {"id": i, "verdict": reward, "reward": reward, "ratio_mean": 1.0 + i}
        for i, reward in enumerate(rewards)
    ]
    write("review_key.jsonl", keys)
    write("grades.jsonl", [{"grader": g, "id": i, "grade": v} for g, i, v in grades])
    return folder


def test_agreement_and_correlations_by_hand(tmp_path: Path) -> None:
    ada = [("ada", i, value) for i, value in enumerate([1.0, 1.0, 0.0, 0.0])]
    bob = [("bob", i, value) for i, value in enumerate([1.0, 0.0, 0.0, 0.0])]
    found = joined(written(tmp_path, ada + bob, [1.0, 0.0, 0.0, 1.0]))
    assert (found["graded"], found["graders"], found["agreement"]) == (4, 2, 0.75)
    # By chance both say 1 in 1/2 * 1/4 and 0 in 1/2 * 3/4 of the cases: (3/4 - 1/2) / (1/2).
    assert found["kappa"] == pytest.approx(0.5)
    # Mean grades 1, 1/2, 0, 0 against rewards 1, 0, 0, 1, and ratios 1, 2, 3, 4.
    expected = np.corrcoef([1.0, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0])[0, 1]
    assert found["correlation"] == pytest.approx(expected)
    ratios = np.corrcoef([1.0, 0.5, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0])[0, 1]
    assert found["correlation_ratio"] == pytest.approx(ratios)
    assert json.loads((tmp_path / "review.json").read_text()) == pytest.approx(found)


def test_what_does_not_vary_correlates_with_nothing(tmp_path: Path) -> None:
    found = joined(written(tmp_path, [("me", i, 1.0) for i in range(4)], [1.0, 0.0, 0.0, 1.0]))
    assert found["correlation"] is found["agreement"] is found["kappa"] is None


def test_a_grader_sees_what_is_left(tmp_path: Path) -> None:
    folder = written(tmp_path, [("ada", 3, 1.0), ("bob", 4, 1.0)], [1.0] * 8)
    assert {row["id"] for row in open_samples(folder, "ada")} == set(range(8)) - {3}
    assert {row["id"] for row in open_samples(folder, "eve")} == set(range(8))


def answered(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_grading_in_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "run", [], [1.0, 0.0] * 4)
    order = [row["id"] for row in open_samples(folder, "me")]
    answered(monkeypatch, "y\nn\nmaybe\n2\n0.5\ns\ny\nq\n")
    assert cli.main(["review", str(folder)]) == 0
    grades = {row["id"]: row["grade"] for row in lines(folder / "grades.jsonl")}
    assert grades == dict(zip([*order[:3], order[4]], [1.0, 0.0, 0.5, 1.0], strict=True))
    shown = capsys.readouterr().out
    assert "[1/8] p\nc\n" in shown and shown.count("answer y, n, a number from 0 to 1") == 2
    assert "4 samples graded by 1 grader\n" in shown
    answered(monkeypatch, "y\n" * 10)  # the rest; skipped ones come again
    assert cli.main(["review", str(folder), "--json"]) == 0
    assert len(lines(folder / "grades.jsonl")) == 8


def test_a_low_correlation_is_found_by_the_doctor(run: Path, capsys: Any, monkeypatch: Any) -> None:
    hidden = lines(run / "review_key.jsonl")
    rows = [{"grader": "me", "id": k["id"], "grade": 1.0 - k["reward"]} for k in hidden]
    (run / "grades.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["review", str(run), "--limit", "0"]) == 0
    assert "correlation of grade and reward: -1.00" in capsys.readouterr().out
    assert cli.main(["doctor", str(run)]) == 1
    assert "warn T62" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say which run: redline review RUN"),
        (["."], ". has no samples: a run on a language task writes review.jsonl"),
        (["run", "--limit", "-1"], "--limit must be at least 0, got -1"),
        (["run", "--limit", "0"], "no sample of run is graded yet"),
    ],
)
def test_what_cannot_be_graded_is_told(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("run"), [], [1.0] * 8)
    assert cli.main(["review", *arguments]) == 2
    assert says in capsys.readouterr().err
