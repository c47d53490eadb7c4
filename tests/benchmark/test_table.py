"""`redline table`: summaries that stand for runs, and the table that is made of them."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command import redline, start_redline
from processes import wait_until
from written_runs import write_run

from redline.benchmark import cli, machine, suite, suite_files
from redline.benchmark.published import cells, table
from redline.benchmark.published.reference import Reference, reference
from redline.benchmark.suite import Cell

SUITE = """
tasks = ["CartPole-v1"]
seeds = [0, 1]
algorithms = ["reinforce", "ppo"]

[settings]
steps = {steps}
evals = 4
eval_episodes = 2
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results go, with a suite of four runs beside it."""
    monkeypatch.chdir(tmp_path)
    write_suite(1000)
    return tmp_path / "out"


def write_suite(steps: int) -> None:
    Path("small.toml").write_text(SUITE.format(steps=steps))


def ended(*flags: str) -> int:
    return cli.main(["table", "small.toml", "--out", "out", *flags])


def all_cells(root: Path) -> list[Cell]:
    every = suite.cells(suite_files.read("small.toml"), root)
    return [cells.placed(cell, root) for cell in every]


def written(root: Path, **more: Any) -> list[Cell]:
    """All four runs as training leaves them; deterministic rewards of seed k end at 10 k + 10."""
    every = all_cells(root)
    for cell in every:
        run = cell.resolved.run
        flags = ["--steps", str(run.steps), "--evals", "4", "--eval-episodes", "2"]
        rewards = [0.0, 50.0, 10.0 * run.seed, 10.0 * run.seed + 10]
        folder = write_run(root / "raw", cell.resolved.algo, run.seed, rewards, *flags, **more)
        record = json.loads((folder / "run.json").read_text())
        record |= {"hash": cell.resolved.hash, "host": {"cpus": 1}}
        (folder / "run.json").write_text(json.dumps(record))
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, cell.folder)
    return every


def rows(root: Path) -> Any:
    return pd.read_csv(root / "table.csv").set_index("method")


def test_runs_are_trained_once_and_summaries_stand_for_them(root: Path) -> None:
    assert ended("--jobs", "2") == 0
    first = {path.name: path.read_bytes() for path in (root / "cells").iterdir()}
    assert len(first) == 4 and all(len(text) < 10_000 for text in first.values())
    assert all((root / f"table.{kind}").stat().st_size > 100 for kind in ("csv", "md", "png"))
    before = (root / "table.csv").read_bytes()
    # As on another machine, where the raw runs are not.
    shutil.rmtree(root / "runs")
    assert ended() == 0
    assert not list((root / "runs").glob("*/CartPole-v1"))
    assert {path.name: path.read_bytes() for path in (root / "cells").iterdir()} == first
    assert (root / "table.csv").read_bytes() == before
    one = json.loads(first["CartPole-v1--ppo--seed=0.json"])
    late = [stochastic for step, _, stochastic in one["evaluations"] if step >= 900]
    assert one["last"] == pytest.approx(np.mean(late)) and one["final"] == one["evaluations"][-1][1]
    assert one["cpu_seconds"] > 0 and one["curve"][-1][0] <= 1000


def test_numbers_by_hand(root: Path) -> None:
    written(root, cpu_seconds=3.0)
    assert ended("--no-train") == 0
    ppo = rows(root).loc["ppo"]
    # Two seeds: nothing is trimmed. Ends 10 and 20; best 50; the stochastic policy is at 1 always.
    assert (ppo["seeds"], ppo["expected"], ppo["final"], ppo["best"]) == (2, 2, 15.0, 50.0)
    assert (ppo["last"], ppo["area"], ppo["cpu_seconds"]) == (1.0, 1.0, 3.0)
    assert ppo["final_low"] < 10 and ppo["final_high"] > 20
    assert ppo["not_finite"] == 0


def test_what_is_to_do_takes_as_long_as_summaries_say_where_no_run_is(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(root, cpu_seconds=100.0, wall_seconds=900.0)
    ended("--no-train")
    shutil.rmtree(root / "runs")
    write_suite(2000)
    # Twice the steps of 100 seconds each, and a method of which there is no summary as any other.
    text = Path("small.toml").read_text()
    Path("small.toml").write_text(text.replace('"ppo"]', '"ppo", "npg"]'))
    capsys.readouterr()
    ended("--dry-run")
    assert "expected: 20 min for 6 runs with --jobs 1\n" in capsys.readouterr().out


def test_a_summary_of_other_settings_is_left_out_and_said(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(root)
    ended("--no-train")
    write_suite(2000)
    assert ended("--dry-run") == 0
    assert "0 done, 4 to do" in capsys.readouterr().out
    ended("--no-train")
    text = (root / "table.md").read_text()
    assert "0 of 4 runs" in text and "4 summaries of other settings or older code" in text
    assert rows(root)["final"].isna().all()


def test_other_versions_of_the_simulator_are_trained_again_and_named_in_the_table(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = written(root, versions={"gymnasium": "1.0", "torch": "2.0"})
    ended("--no-train")
    newer = {**machine.versions(), "gymnasium": "99.0"}
    monkeypatch.setattr(machine, "versions", lambda: newer)
    assert not cells.is_current(every[0], root)
    ended("--dry-run")
    assert "0 done, 4 to do" in capsys.readouterr().out
    path = cells.summary_path(every[0], root)
    changed = json.loads(path.read_text())
    changed["versions"]["gymnasium"] = "99.0"
    path.write_text(json.dumps(changed))
    ended("--no-train")
    assert "1.0 (3 runs), 99.0 (1 run)" in (root / "table.md").read_text()


@pytest.mark.parametrize("text", ["", "[]", '{"hash": 1}', '{"last": 1.0', "\xff"])
def test_a_damaged_summary_is_as_none(text: str, root: Path) -> None:
    every = written(root)
    ended("--no-train")
    for cell in every[:2]:
        cells.summary_path(cell, root).write_text(text, encoding="latin-1")
    shutil.rmtree(every[1].folder)
    ended("--no-train")
    # The first is made anew from its run; the run of the second is gone.
    assert cells.is_current(every[0], root) and not cells.is_current(every[1], root)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_seconds", "fast"),
        ("steps", 0),
        ("last", [1.0]),
        ("versions", "new"),
        ("curve", [[1.0]]),
        ("evaluations", [[0.0, "high", 1.0]]),
    ],
)
def test_a_summary_with_wrong_values_is_as_none(name: str, value: Any, root: Path) -> None:
    every = written(root)
    ended("--no-train")
    path = cells.summary_path(every[0], root)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    assert cells.read_summary(every[0], root) is None
    assert not ended("--dry-run")
    ended("--no-train")
    assert cells.is_current(every[0], root)


def test_a_run_that_cannot_be_summarised_stops_no_other(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = written(root)
    (every[0].folder / "eval.jsonl").write_text("")
    assert ended("--no-train") == 1
    assert every[0].name in capsys.readouterr().err
    assert [cells.is_current(cell, root) for cell in every] == [False, True, True, True]


def test_seeds_that_are_not_finite_are_counted_and_reach_no_gate(root: Path) -> None:
    every = written(root)
    ended("--no-train")
    path = cells.summary_path(every[1], root)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"last": None}))
    ended("--no-train")
    row = rows(root).loc[every[1].variant]
    assert (row["seeds"], row["not_finite"], row["last"]) == (2, 1, 1.0)
    assert "2 of 2, 1 not finite" in (root / "table.md").read_text()
    gates = {"CartPole-v1": {"measure": "last", every[1].variant: 0.5}}
    found = {cell: cells.read_summary(cell, root) or {} for cell in every}
    frame = table.table(every, found)
    text = table.markdown(every, found, frame, 0, Reference(1000, gates, []))
    assert "missed: 1 seeds are not finite" in text


@pytest.mark.parametrize(
    ("least", "there", "verdict"),
    [(15.0, 2, "reached"), (15.1, 2, "missed"), (9.0, 1, "reached so far (1 of 2 seeds)")],
)
def test_gates(least: float, there: int, verdict: str, root: Path) -> None:
    every = written(root)
    ended("--no-train")
    mine = [cell for cell in every if cell.variant == "ppo"][:there]
    found = {cell: cells.read_summary(cell, root) or {} for cell in mine}
    held = Reference(1000, {"CartPole-v1": {"measure": "final", "ppo": least}}, [])
    text = table.markdown(every, found, table.table(every, found), 0, held)
    assert text.split("## Gates")[1].split("\n")[4].endswith(f"| {verdict} |")


def test_methods_that_are_the_same_run_are_named(root: Path) -> None:
    written(root)
    ended("--no-train")
    text = (root / "table.md").read_text()
    assert "reinforce and ppo are the same run on 2 seeds, digit by digit." in text


def test_an_interrupt_keeps_what_is_finished_and_the_table_of_it(tmp_path: Path) -> None:
    long = SUITE.format(steps=1000).replace("[settings]", "[settings]\nn_envs = 4")
    endless = 'algorithms = ["cpi_penalty"]\nseeds = [1]\nsettings = { steps = 100_000_000 }'
    (tmp_path / "small.toml").write_text(f"{long}\n[[variants]]\n{endless}\n")
    process = start_redline(tmp_path, "table", "small.toml", "--out", "out")
    wait_until(lambda: len(list((tmp_path / "out/cells").glob("*.json"))) == 4)
    wait_until(lambda: "4 of 5 runs" in (tmp_path / "out/table.md").read_text())
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/cells").iterdir()}
    (tmp_path / "small.toml").write_text(long)
    again = redline(tmp_path, "table", "small.toml", "--out", "out")
    assert again.returncode == 0 and "4 of 4 runs" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "say which suite"),
        (["mujoco_1n"], "mujoco_1m"),
        (["llm-quick"], "control tasks alone, got llm:arithmetic"),
        (["mujoco_1m", "--seeds", "7"], "--seeds must be seeds of the suite"),
        (["mujoco_1m", "--jobs", "0"], "--jobs must be at least 1"),
        (["mujoco_1m", "--only", "pppo"], "pppo"),
    ],
)
def test_bad_input(
    arguments: list[str], sentence: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not root.exists()


def test_parts_of_the_budget_by_hand() -> None:
    given = np.array([[10, 1.0], [20, 3.0], [21, 5.0], [1000, 7.0], [1010, 9.0], [500, np.nan]])
    assert cells.binned(given, 1000) == [[10.0, 1.0], [20.0, 3.0], [30.0, 5.0], [1000.0, 8.0]]


def test_what_has_a_gate_is_trained_first_three_seeds_at_a_time() -> None:
    every = suite.cells(suite_files.read("mujoco_1m"), Path("out"))
    assert len(every) == 273
    order = cells.ordered(every, reference().gates)
    runs = [(cell.variant, cell.resolved.run.task, cell.resolved.run.seed) for cell in order]
    assert runs[0] == ("ppo", "HalfCheetah-v5", 0)
    assert all(seed < 3 for *_, seed in runs[:45]) and runs.index(("grpo", "Reacher-v5", 0)) > 44
    assert max(i for i, (*_, seed) in enumerate(runs) if seed < 3) < min(
        i for i, (*_, seed) in enumerate(runs) if seed >= 3
    )
