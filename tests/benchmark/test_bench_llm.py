"""`redline bench llm`: the same settings on both sides, and figures that follow from the curves."""

import importlib.util
import json
import math
from pathlib import Path

import pytest

from redline.benchmark import cli
from redline.benchmark.bench import llm_report
from redline.benchmark.bench.comparisons_llm import ROWS, LanguageComparison
from redline.benchmark.bench.llm import Curve, pairs, ratio, redline, resolved
from redline.benchmark.checking import check
from redline.benchmark.notes import steps_per_rollout

RATE, GOAL = LanguageComparison("rate", 4), LanguageComparison("goal", 4, goal=0.8)


def curve(seconds: float, accuracy: list[float]) -> Curve:
    return Curve([seconds * (i + 1) for i in range(len(accuracy))], accuracy, 256)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_our_run_is_what_the_row_says(row: LanguageComparison) -> None:
    ours = resolved(row, seed=3, rollouts=5)
    check(ours)
    assert steps_per_rollout(ours) == row.steps_per_rollout
    recipe = ours.recipe
    assert (recipe.groups, recipe.group_size) == (row.prompts, row.group_size)
    assert (recipe.lr, recipe.lr_decay, recipe.max_grad_norm) == (row.lr, False, 0.5)
    assert (recipe.clip.low, recipe.clip.high, recipe.std) == (row.clip, row.clip, True)
    assert ours.run.steps == 5 * 256 and ours.language.max_completion == row.max_completion


def test_rates_and_times() -> None:
    rising = curve(2.0, [0.5, 0.7, 0.8, 0.9, 0.9, 0.9])
    assert rising.rate == 128.0
    # Means of four: .725, .825, .875.
    assert rising.time_to(0.8) == 10.0 and math.isinf(rising.time_to(0.95))
    slow = curve(5.0, [0.5] * 4 + [0.9] * 4)
    assert ratio(RATE, rising, slow) == 2.5
    assert ratio(GOAL, rising, slow) == slow.time_to(0.8) / 10.0
    assert math.isinf(ratio(GOAL, rising, curve(5.0, [0.5] * 8)))
    assert math.isnan(ratio(GOAL, curve(1.0, [0.1] * 8), curve(5.0, [0.5] * 8)))


def test_sides_take_turns_and_the_file_says_what_came_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def side(name: str, seconds: float) -> object:
        def run(row: LanguageComparison, seed: int, rollouts: int) -> Curve:
            calls.append((name, seed, rollouts))
            return curve(seconds, [0.5 + 0.05 * i for i in range(rollouts)])

        return run

    sides = side("ours", 1.0), side("theirs", 3.0)
    assert len(list(pairs(RATE, 2, 10, sides))) == 2
    assert calls == [
        *(("ours", 0, 2), ("theirs", 0, 2)),
        *(("ours", 0, 10), ("theirs", 0, 10), ("theirs", 1, 10), ("ours", 1, 10)),
    ]
    file = tmp_path / "llm.json"
    llm_report.run([RATE, GOAL], 2, 10, file, sides)
    first, second = json.loads(file.read_text())
    assert first["ratio_median"] == 3.0 and first["ours"] == [256.0, 256.0]
    assert second["ours"] == [9.0, 9.0] and second["theirs"] == [27.0, 27.0]
    assert second["accuracy_ours"] == [pytest.approx(0.875)] * 2
    assert "256.0 completions/s against 85.3" in capsys.readouterr().out
    llm_report.run([GOAL], 1, 3, file, sides)
    (never,) = json.loads(file.read_text())
    assert never["ratio_median"] is None and never["ours"] == [None]
    assert "n/a" in capsys.readouterr().out


def test_a_run_of_ours() -> None:
    small = LanguageComparison("small", 2, prompts=2, group_size=4, max_completion=40)
    found = redline(small, 0, 2)
    assert len(found.seconds) == len(found.accuracy) == 2 and found.completions == 8
    assert 0.0 < found.seconds[0] < found.seconds[1]


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="an extra of its own")
def test_a_run_of_theirs() -> None:
    from redline.benchmark.bench.trl import trl

    small = LanguageComparison("small", 2, prompts=2, group_size=4, max_completion=40)
    found = trl(small, 0, 2)
    assert len(found.seconds) == len(found.accuracy) == 2 and found.completions == 8


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--only", "grpo/tiny/mu2"], "unknown row 'grpo/tiny/mu2'; nearest: grpo/tiny/mu"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["--rollouts", "0"], "--rollouts must be at least 1, got 0"),
    ],
)
def test_what_does_not_fit(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "llm", *arguments]) == 2
    assert part in capsys.readouterr().err


def test_a_missing_library_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("redline.benchmark.commands.bench.find_spec", lambda name: None)
    assert cli.main(["bench", "llm"]) == 2
    assert 'needs trl, transformers, datasets: pip install "redline-rl[bench]"' in (
        capsys.readouterr().err
    )
