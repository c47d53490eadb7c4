"""What `redline doctor` prints of the files of a run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from histories import history, trips

from redline.benchmark import cli
from redline.benchmark.doctor.history import History


def written(folder: Path, sick: History) -> Path:
    """A run's files with these numbers."""
    folder.mkdir(parents=True)
    run = {"seed": 0, "steps": 400, "evals": 4, **sick.record["run"]}
    record = {"status": "done", "hash": folder.name, "algo": "grpo", **sick.record, "run": run}
    (folder / "run.json").write_text(json.dumps(record))
    for name, table in (("metrics", sick.metrics), ("eval", sick.evals)):
        rows = [
            dict(zip(table, map(float, row), strict=True))
            for row in zip(*table.values(), strict=True)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_the_command_says_what_is_found(tmp_path: Path, capsys: Any) -> None:
    folder = written(tmp_path / "runs" / "sick", history({"train/clip_fraction": 0.03}))
    assert cli.main(["doctor", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        f"{folder}: 0 warnings, 1 note in 40 updates\n  note T50  steps 10 to 400\n"
    )
    assert "advice: no fault by itself: late in training this is healthy" in shown
    assert shown.endswith("what each number means.\n")
    assert cli.main(["doctor", str(folder), "--limit.clip-inert", "0.02"]) == 0
    assert "0 warnings, 0 notes in 40 updates\n" in capsys.readouterr().out


def test_the_command_says_how_a_run_ended_and_where_it_is_too_short(
    tmp_path: Path, capsys: Any
) -> None:
    whole = history(**trips("kl", 0.9), status="tripped")
    short = replace(whole, metrics={name: values[:5] for name, values in whole.metrics.items()})
    folder = written(tmp_path / "runs" / "short", short)
    assert cli.main(["doctor", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(
        f"{folder} (tripped): 1 warning, 0 notes in 5 updates, too few to judge most of (at least "
        "8)\n  warn T66  step 30\n"
    )


def test_the_command_as_json_for_a_run_and_for_a_folder(tmp_path: Path, capsys: Any) -> None:
    folder = written(tmp_path / "runs" / "sick", history(**trips("kl", 0.9)))
    written(tmp_path / "runs" / "well", history())
    assert cli.main(["doctor", str(folder), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert list(row) == ["rule", "severity", "steps", "evidence", "advice", "source"]
    assert (row["rule"], row["steps"]) == ("T66", [30, 30])
    assert cli.main(["doctor", str(tmp_path / "runs"), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["run"] == str(folder)
    assert cli.main(["doctor", str(tmp_path / "runs" / "well"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say which run: redline doctor RUN"),
        (["nowhere"], "nowhere is not a folder of runs"),
        (["."], ". holds no run: there is no readable run.json at or below it"),
        ([".", "--limit.clip-inertt", "1"], "unknown flag '--limit.clip-inertt'"),
    ],
)
def test_what_is_no_run_is_told(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor", *arguments]) == 2
    assert says in capsys.readouterr().err
