"""Rewards of the user's own in whole runs."""

import json
from pathlib import Path

import pytest

from redline.benchmark import cli
from redline.benchmark.arguments import from_record, resolve, to_arguments

TASK = ["--task", "llm:arithmetic"]
SMALL = [
    *("--steps", "24", "--groups", "2", "--group-size", "2", "--minibatch-size", "4"),
    *("--max-completion", "8", "--eval-problems", "2", "--eval-samples", "1", "--evals", "1"),
]
MODULE = """
from pathlib import Path

calls = 0

def length(prompt, completion, gold):
    global calls
    calls += 1
    if calls > 12 and Path("broken").exists():
        raise RuntimeError("the judge is away")
    return len(completion) / 8
"""


def _rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    clocks = ("time/", "memory/")
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(clocks)} for line in lines
    ]


def test_a_reward_that_fails_stops_the_run_which_goes_on_once_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judge_that_fails.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken").touch()
    reward = ["--reward", "exact", "1", "judge_that_fails:length", "0.5"]
    command = ["run", "grpo", *TASK, *SMALL, *reward]
    assert cli.main([*command, "--out", "cut"]) == 1
    error = capsys.readouterr().err
    assert "judge_that_fails:length raised RuntimeError: the judge is away" in error
    done = len(_rows(tmp_path / "cut"))
    assert 0 < done < 6
    (tmp_path / "broken").unlink()
    assert cli.main([*command, "--out", "cut"]) == 0
    assert f"gone on with from step {4 * done}" in capsys.readouterr().out
    assert cli.main([*command, "--out", "whole"]) == 0
    assert _rows(tmp_path / "cut") == _rows(tmp_path / "whole")
    for row in _rows(tmp_path / "whole"):
        parts = row["llm/reward/exact"], row["llm/reward/judge_that_fails:length"]
        assert row["llm/reward"] == pytest.approx(parts[0] + 0.5 * parts[1])
        assert row["llm/reward/exact"] == row["llm/accuracy"]


def test_a_reward_that_does_not_exist_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "grpo", *TASK, "--reward", "exakt", "1"]) == 2
    assert "unknown reward 'exakt'" in capsys.readouterr().err
    assert cli.main(["run", "grpo", *TASK, "--reward", "random", "1", "--reward-p", "2"]) == 2
    assert "--reward-p must lie in [0, 1], got 2" in capsys.readouterr().err


def test_rewards_are_settings_like_others() -> None:
    typed = resolve("grpo", [*TASK, "--reward", "format", "0.2", "a.b:c", "2"])
    assert typed.language.reward == {"format": 0.2, "a.b:c": 2.0}
    assert typed.overrides == {"reward.format": 0.2, "reward.a.b:c": 2.0}
    listed = resolve("grpo", [*TASK, *to_arguments({"reward": {"format": 0.2, "a.b:c": 2}})])
    assert listed == typed and from_record({"overrides": {}, **typed.to_json()}).hash == typed.hash
    plain = resolve("grpo", TASK)
    assert plain.language.reward == {} and plain.overrides == {}
