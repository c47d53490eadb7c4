"""Reports of runs that are complete, cut short, missing, of unequal length, or not numbers."""

import json
from pathlib import Path

import pytest
from written_runs import TASK, write_run

from redline.benchmark import cli, tables
from redline.benchmark.comparison import Judging, comparison, unlike
from redline.benchmark.records import Results, load
from redline.benchmark.scores import across_tasks


def row_of(table: tables.Table, method: str) -> dict[str, str]:
    (row,) = (row for row in table.rows if row[0] == method)
    return dict(zip(table.header, row, strict=True))


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take seconds, and have tests of their own."""
    monkeypatch.setattr("redline.benchmark.plots.save", lambda results, path: path.touch())
    monkeypatch.setattr("redline.benchmark.page.render.render", lambda *arguments: "")


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for seed, last in enumerate((10.0, 20.0, 30.0)):
        write_run(tmp_path, "ppo", seed, [0.0, 40.0, last])
    write_run(tmp_path, "reinforce", 0, [5.0, 15.0])
    return load(tmp_path)


def test_the_table_gives_what_the_files_hold(results: Results) -> None:
    row = row_of(tables.rewards(results, TASK), "ppo")
    # Half width 4.302653 * 10 / sqrt(3) = 24.84; areas 22.5, 25 and 27.5.
    deterministic = {"final": "20.00 ± 24.84", "best": "40.00 ± 0.00", "area": "25.00 ± 6.21"}
    assert row == {"algorithm": "ppo", "seeds": "3/3", **deterministic}
    assert row_of(tables.robust(results, TASK), "ppo") == {
        "algorithm": "ppo",
        "median": "20.00",
        "IQM": "20.00",
        "95% interval of IQM": "[-6.89, 46.89]",
    }
    sampled = tables.sampled(results, TASK)
    assert sampled is not None
    assert row_of(sampled, "ppo") == {
        "algorithm": "ppo",
        **dict.fromkeys(("final", "best", "area"), "1.00 ± 0.00"),
    }
    assert row_of(tables.overview(results, TASK), "ppo") == {
        **row,
        "stochastic": "1.00 ± 0.00",
        "s/run": "2.00",
    }
    assert row_of(tables.costs(results, TASK), "ppo") == {
        "algorithm": "ppo",
        "environment steps": "150",
        "seconds per run": "2.00",
        "steps/s": "9",
        "s/update": "0.250",
        "peak MiB": "100",
    }


def test_an_interval_of_the_iqm_of_few_seeds_is_said_to_be_rough(
    results: Results, tmp_path: Path
) -> None:
    assert (
        "(below 10 of them an interval of the IQM is rough)" in tables.robust(results, TASK).title
    )
    for seed in range(10):
        write_run(tmp_path / "many", "npg", seed, [0.0, 1.0])
    assert "rough" not in tables.robust(load(tmp_path / "many"), TASK).title


def test_one_seed_has_no_interval(results: Results) -> None:
    row = row_of(tables.rewards(results, TASK), "reinforce")
    assert row["final"] == "15.00 ± n/a"
    row = row_of(tables.robust(results, TASK), "reinforce")
    assert row["IQM"] == "15.00" and row["95% interval of IQM"] == "n/a (n=1)"


def test_the_area_ends_at_the_budget(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "ppo", 0, [0.0, 30.0, 60.0])
    path = folder / "eval.jsonl"
    # Evaluated at 0, 500 and 1,500 of 1,000 steps: 15 on the first half, 30 to 45 on the second.
    path.write_text(path.read_text().replace('"step": 1000', '"step": 1500'))
    (run,) = load(tmp_path).runs.to_dict("records")
    assert run["area"] == pytest.approx((15.0 + 37.5) / 2)
    assert run["area_stochastic"] == 1.0 and run["best"] == 60.0


def test_what_is_damaged_is_counted_and_named(results: Results, tmp_path: Path) -> None:
    good = row_of(tables.rewards(results, TASK), "ppo")
    write_run(tmp_path, "ppo", 3, [1.0], status="failed", error="ValueError: x\nmore")
    write_run(tmp_path, "ppo", 4, [1.0], status="running")
    write_run(tmp_path, "ppo", 5, [0.0, None])
    cut = write_run(tmp_path, "ppo", 6, [0.0, 1.0])
    (cut / "run.json").write_text((cut / "run.json").read_text()[:99])
    short = write_run(tmp_path, "reinforce", 1, [5.0, 25.0])
    whole = (short / "eval.jsonl").read_text()
    (short / "eval.jsonl").write_text(whole + '{"step": 200, "eval/mea')
    (write_run(tmp_path, "reinforce", 2, []) / "metrics.jsonl").unlink()

    table = tables.rewards(load(tmp_path), TASK)
    bad = row_of(table, "ppo")
    assert bad["seeds"] == "4/6 (1 failed, 1 running, 1 nan)" and bad["final"] == good["final"]
    other = row_of(table, "reinforce")
    assert other["seeds"] == "3/3 (1 nan)" and other["final"].startswith("20.00 ± ")

    assert cli.main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "CartPole-v1/ppo/seed=3: failed, ValueError: x\n" in text
    assert "CartPole-v1/ppo/seed=6: run.json cannot be read" in text


def test_runs_that_a_matrix_lacks_are_counted(results: Results, tmp_path: Path) -> None:
    cells = {
        f"{TASK}/{method}/seed={seed}": {"task": TASK, "variant": method, "seed": seed}
        for method in ("reinforce", "ppo", "trpo")
        for seed in range(4)
    }
    record = {"suite": "small", "question": "Why?", "command": "redline matrix", "cells": cells}
    (tmp_path / "matrix.json").write_text(json.dumps(record))
    found = load(tmp_path)
    # In the order of the suite.
    assert found.methods == ["reinforce", "ppo", "trpo"]
    table = tables.overview(found, TASK)
    assert [row[1] for row in table.rows] == [
        "1/4 (3 missing)",
        "3/4 (1 missing)",
        "0/4 (4 missing)",
    ]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text().startswith("# small\n\nWhy?\n")


def test_settings_that_share_a_name_are_kept_apart(results: Results, tmp_path: Path) -> None:
    write_run(tmp_path / "other", "ppo", 0, [0.0, 99.0], "--eval-episodes", "7")
    methods = load(tmp_path).methods
    assert methods == ["ppo (eval_episodes=20)", "ppo (eval_episodes=7)", "reinforce"]


def test_the_same_run_in_two_places_counts_once(results: Results, tmp_path: Path) -> None:
    write_run(tmp_path / "copy", "ppo", 0, [0.0, 10.0])
    write_run(tmp_path / "a failed copy", "ppo", 1, [], status="failed")
    again = load(tmp_path)
    assert len(again.runs) == len(results.runs)
    assert again.notes == [
        f"copy/{TASK}/ppo/seed=0: the same run as {TASK}/ppo/seed=0, counted once",
        f"a failed copy/{TASK}/ppo/seed=1: the same run as {TASK}/ppo/seed=1, counted once",
    ]
    assert set(again.runs["status"]) == {"done"}


def test_scores_over_tasks_are_means_of_seeds(results: Results, tmp_path: Path) -> None:
    # Untrained 1, ppo's mean 20 on CartPole and 3 on Acrobot.
    for seed, last in enumerate((2.0, 3.0, 4.0)):
        write_run(tmp_path, "ppo", seed, [0.0, last], task="Acrobot-v1")
    write_run(tmp_path, "reinforce", 0, [0.0, 2.0], task="Acrobot-v1")
    # Never above the untrained policy, so no score can be given there.
    write_run(tmp_path, "ppo", 0, [0.0, 1.0], task="Pendulum-v1")
    table = across_tasks(load(tmp_path), Judging("ppo"))
    assert "2 tasks (without Pendulum-v1" in table.title
    assert row_of(table, "ppo")["score"].startswith("1.00 ± ")
    # ((15 - 1) / 19 + (2 - 1) / 2) / 2 = 0.618
    assert row_of(table, "reinforce")["score"] == "0.618 ± n/a"


def test_wrong_input_is_one_sentence(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, sentence in (
        ([], "say which folder: redline report DIR"),
        ([str(tmp_path / "none")], "is not a folder of runs"),
        ([str(tmp_path / "empty")], "holds no run"),
        ([str(tmp_path), "--baseline", "pppo"], "unknown baseline 'pppo'; nearest: ppo"),
    ):
        assert cli.main(["report", *arguments]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "text, note",
    [
        ("{first}\n", "ends at step 0 of 1,000"),
        ("{first}\n{last}", "ends with eval/mean_reward 2, run.json with 7"),
        ("{first}\n\x00\udcff{last}\n", "ends at step 0 of 1,000"),
        ("", "is missing, empty or cannot be read"),
        ("\udcff\udcfe", "is missing, empty or cannot be read"),
        ("null\n[1]\n", "is missing, empty or cannot be read"),
        (None, "is missing, empty or cannot be read"),
    ],
)
def test_evaluations_that_do_not_end_as_the_run_did(
    text: str | None, note: str, results: Results, tmp_path: Path
) -> None:
    before = row_of(tables.rewards(results, TASK), "ppo")
    path = write_run(tmp_path, "ppo", 3, [7.0, 7.0]) / "eval.jsonl"
    first, last = path.read_text().splitlines()
    path.unlink()
    if text is not None:
        whole = text.format(first=first, last=last.replace("7.0", "2.0"))
        path.write_bytes(whole.encode("utf-8", "surrogateescape"))
    found = load(tmp_path)
    assert found.notes == [f"{TASK}/ppo/seed=3: eval.jsonl {note}; the run counts as nan"]
    row = row_of(tables.rewards(found, TASK), "ppo")
    assert row["seeds"] == "4/4 (1 nan)" and row["final"] == before["final"]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert note in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("text", ["{}", "null", "[]", '{"cells": [1]}', '{"cells": {"a": 1}}', "{"])
def test_a_matrix_record_of_wrong_types_is_named(
    text: str, results: Results, tmp_path: Path
) -> None:
    (tmp_path / "matrix.json").write_text(text)
    found = load(tmp_path)
    assert found.notes == ["matrix.json cannot be read; runs that its matrix lacks are not counted"]
    assert len(found.runs) == len(results.runs)
    assert cli.main(["report", str(tmp_path)]) == 0


@pytest.mark.parametrize("text", ["{}", "null", '{"run": 4}', "\x00"])
def test_a_run_record_of_wrong_types_is_named(text: str, results: Results, tmp_path: Path) -> None:
    (write_run(tmp_path, "ppo", 3, [0.0, 1.0]) / "run.json").write_text(text)
    assert load(tmp_path).notes == [
        f"{TASK}/ppo/seed=3: run.json cannot be read; the run counts as missing"
    ]
    assert cli.main(["report", str(tmp_path)]) == 0


def test_the_terminal_shows_the_comparison_with_the_baseline(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, shown in (
        ([], "final − ppo"),
        (["--baseline", "reinforce"], "final − reinforce"),
        (["--by", "area"], "area − ppo"),
        (["--paired"], "compared with ppo by paired t test on common seeds"),
    ):
        assert cli.main(["report", str(tmp_path), *arguments]) == 0
        assert shown in capsys.readouterr().out
        assert shown in (tmp_path / "report.md").read_text().replace("Compared", "compared")


def test_one_method_is_compared_with_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, "ppo", 0, [0.0, 1.0])
    assert cli.main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "What does ppo reach on CartPole-v1?" in text and "verdict" not in text


def test_failed_runs_withhold_a_verdict_in_favour_of_their_method(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path, "ppo", seed, [0.0, 100.0 + seed])
        write_run(tmp_path, "trpo", seed, [0.0, 200.0 + seed])
        write_run(tmp_path, "npg", seed, [0.0, 10.0 + seed])
    how = Judging("ppo")
    table = comparison(load(tmp_path), TASK, how)
    assert row_of(table, "trpo")["verdict"] == "better"
    assert row_of(table, "trpo")["P(better)"] == "1.00"
    assert row_of(table, "npg")["verdict"] == "worse"
    write_run(tmp_path, "trpo", 4, [0.0], status="failed")
    write_run(tmp_path, "trpo", 5, [0.0, None])
    write_run(tmp_path, "npg", 4, [0.0], status="failed")
    table = comparison(load(tmp_path), TASK, how)
    assert row_of(table, "trpo")["verdict"] == "cannot tell (2 of its own runs lost)"
    assert row_of(table, "npg")["verdict"] == "worse"


def test_results_of_different_budgets_are_named(results: Results, tmp_path: Path) -> None:
    assert unlike(results, TASK) == []
    write_run(tmp_path, "trpo", 0, [0.0, 1.0], "--steps", "2000", "--eval-episodes", "5")
    path = tmp_path / TASK / "trpo" / "seed=0" / "eval.jsonl"
    path.write_text(path.read_text().replace('"step": 1000', '"step": 2000'))
    assert unlike(load(tmp_path), TASK) == [
        f"{TASK}: budgets differ: 1,000 (ppo, reinforce); 2,000 (trpo)",
        f"{TASK}: numbers of evaluation episodes differ: 5 (trpo); 20 (ppo, reinforce)",
    ]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "budgets differ" in (tmp_path / "report.md").read_text()
