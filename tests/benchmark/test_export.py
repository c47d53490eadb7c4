"""Tables for other programs, and how long a matrix should take."""

import json
from pathlib import Path

import pandas as pd
import pytest
from written_runs import TASK, write_run

from redline.benchmark import cli, forecast


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_setting_and_metric_is_in_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path("my runs")
    folder = write_run(root, "ppo", 0, [0.0, 7.0], "--hidden", "8", "9")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 400, "own/metric": 3.5}) + "\n" + '{"step": 500, "cut')
    write_run(root, "reinforce", 1, [0.0], status="failed", error="ValueError: x")
    cells = {"gone": {"task": TASK, "variant": "trpo", "seed": 0}}
    (root / "matrix.json").write_text(json.dumps({"cells": cells}))
    assert cli.main(["export", str(root), "--csv"]) == 0
    assert capsys.readouterr().out.split() == [
        *("my", "runs/export/runs.csv", "my", "runs/export/evals.csv"),
        *("my", "runs/export/updates.csv"),
    ]
    runs = pd.read_csv(root / "export" / "runs.csv").set_index("method")
    assert runs.loc["ppo--hidden=[8,9]", "run.hidden"] == "8 9"
    assert float(runs.loc["ppo--hidden=[8,9]", "recipe.clip.high"]) == 0.2
    assert runs["status"].to_dict() == {
        "ppo--hidden=[8,9]": "done",
        "reinforce": "failed",
        "trpo": "missing",
    }
    updates = pd.read_csv(root / "export" / "updates.csv")
    assert list(updates.columns[:3]) == ["task", "method", "seed"]
    # Three and one of ppo, three of the run that failed.
    assert len(updates) == 7 and updates["own/metric"].dropna().tolist() == [3.5]
    evals = pd.read_csv(root / "export" / "evals.csv")
    assert evals["eval/mean_reward"].tolist() == [0.0, 7.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "say which folder: redline export DIR --csv"),
        (["runs"], "say in which form: --csv or --parquet"),
        (["none", "--csv"], "none is not a folder of runs"),
        (["runs", "--parquet"], "--parquet needs pyarrow: pip install pyarrow"),
        (["runs", "--csv", "--out", "file/below"], "cannot write to file/below"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_run(Path("runs"), "ppo", 0, [0.0, 1.0])
    Path("file").touch()
    monkeypatch.setattr("redline.benchmark.exporting.find_spec", lambda name: None)
    assert cli.main(["export", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_parquet_is_written_by_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(Path("runs"), "ppo", 0, [0.0, 1.0])
    monkeypatch.setattr("redline.benchmark.exporting.find_spec", lambda name: name)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", lambda self, path, index: path.touch())
    assert cli.main(["export", "runs", "--parquet", "--out", "there"]) == 0
    names = [path.name for path in sorted(Path("there").iterdir())]
    assert names == ["evals.parquet", "runs.parquet", "updates.parquet"]


def test_a_dry_run_says_how_long_it_should_take(capsys: pytest.CaptureFixture[str]) -> None:
    # 1,000 steps took 2 s here, 4 s, and 30 s; so 2,000 should take 8 s. Nobody has tried trpo,
    # which is taken for the middle of all runs, and nothing is known of Acrobot.
    for seed, taken in enumerate((2.0, 4.0, 30.0)):
        write_run(Path("results/some"), "ppo", seed, [0.0, 1.0], wall_seconds=taken)
    write_run(Path("results/some"), "ppo", 3, [], status="failed", wall_seconds=999.0)
    Path("s.toml").write_text(
        f'tasks = ["{TASK}", "Acrobot-v1"]\nseeds = [0]\nalgorithms = ["ppo", "trpo"]\n'
        "[settings]\nsteps = 2000\n"
    )
    assert cli.main(["matrix", "s.toml", "--dry-run", "--jobs", "2"]) == 0
    shown = capsys.readouterr().out
    assert "to do ppo CartPole-v1 seed=0  results/s/CartPole-v1/ppo/seed=0  about 8 s" in shown
    assert "to do trpo Acrobot-v1 seed=0  results/s/Acrobot-v1/trpo/seed=0\n" in shown
    assert "expected: 8 s for 2 runs with --jobs 2, and 2 more of which no like one" in shown
    assert cli.main(["matrix", "s.toml", "--dry-run", "--out", "elsewhere"]) == 0


@pytest.mark.parametrize(
    ("duration", "text"),
    [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")],
)
def test_durations_in_words(duration: float, text: str) -> None:
    assert forecast.spelled(duration) == text
