"""Matrices: what is missing is trained, what fails is recorded, what is there is kept."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import make_home, redline

from redline.benchmark import cli, threads
from redline.benchmark.arguments import from_record
from redline.benchmark.launchers import LocalPool
from redline.benchmark.loggers import read_rows
from redline.benchmark.train import train

SUITE = """
tasks = ["CartPole-v1"]
seeds = [0, 1]
algorithms = ["reinforce", "ppo"]

[settings]
steps = 500
evals = 2
eval_episodes = 2
"""

TASKS = ("Boom", "Dies", "Killed", "Exits", "Nan", "Threads")
BROKEN = f"""
tasks = {[f"mine.envs:{task}-v0" for task in TASKS]}
seeds = [0]
algorithms = ["reinforce"]

[settings]
steps = 100
evals = 1
eval_episodes = 2
"""
TWICE = " (at the second try too)"


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small suite and its results, trained by two jobs."""
    folder = tmp_path_factory.mktemp("matrix")
    suite = folder / "small.toml"
    suite.write_text(SUITE)
    assert cli.main(["matrix", str(suite), "--jobs", "2", "--out", str(folder / "out")]) == 0
    return suite, folder / "out"


@pytest.fixture(scope="module")
def broken(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Results of environments that misbehave in every way, on one job, and what was shown."""
    home = make_home(tmp_path_factory.mktemp("broken"))
    (home / "broken.toml").write_text(BROKEN)
    return home, redline(home, "matrix", "broken.toml", "--out", "out")


def record(root: Path, task: str) -> dict[str, Any]:
    (path,) = root.glob(f"out/*{task}-v0/reinforce/seed=0/run.json")
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def stamps(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")}


def test_every_cell_has_its_folder(matrix: tuple[Path, Path]) -> None:
    out = matrix[1]
    found = {path.parent.relative_to(out).as_posix() for path in out.rglob("run.json")}
    assert found == {
        f"CartPole-v1/{method}/seed={seed}" for method in ("ppo", "reinforce") for seed in (0, 1)
    }
    for path in out.rglob("run.json"):
        assert json.loads(path.read_text())["status"] == "done"


def test_running_again_trains_only_what_is_missing(
    matrix: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    suite, out = matrix
    before = stamps(out)
    half_written = out / "CartPole-v1/ppo/seed=1/run.json"
    whole = half_written.read_text()
    half_written.write_text(whole.replace('"status": "done"', '"status": "running"'))
    arguments = ["matrix", str(suite), "--out", str(out)]
    assert cli.main([*arguments, "--dry-run"]) == 0
    assert "3 done, 1 to do; nothing was trained" in capsys.readouterr().out
    assert cli.main(arguments) == 0
    assert "4 of 4 runs complete" in capsys.readouterr().out
    changed = {path.parent for path, stamp in stamps(out).items() if before[path] != stamp}
    assert changed == {half_written.parent}


def test_other_settings_are_refused_before_any_work(
    matrix: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    suite, out = matrix
    before = stamps(out)
    arguments = ["matrix", str(suite), "--out", str(out), "--steps", "600", "--seeds", "0", "5"]
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert "holds a run with other settings (steps 500 -> 600)" in error
    assert "(and 1 more like it)" in error and error.count("\n") == 1
    assert cli.main([*arguments, "--overwrite", "--dry-run"]) == 0
    assert "0 done, 4 to do" in capsys.readouterr().out
    assert stamps(out) == before and not list(out.rglob("seed=5"))


def test_results_do_not_depend_on_jobs_or_on_what_ran_before(
    matrix: tuple[Path, Path], tmp_path: Path
) -> None:
    for folder in sorted((matrix[1] / "CartPole-v1").glob("*/seed=*")):
        again = tmp_path / folder.parent.name / folder.name
        train(from_record(json.loads((folder / "run.json").read_text())), again)
        for name in ("metrics.jsonl", "eval.jsonl"):
            assert list(computed(again / name)) == list(computed(folder / name))


def computed(path: Path) -> Iterator[dict[str, Any]]:
    for row in read_rows(path):
        yield {k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))}


def test_a_method_on_two_seeds_is_two_runs(matrix: tuple[Path, Path]) -> None:
    first, second = (
        list(computed(matrix[1] / f"CartPole-v1/ppo/seed={seed}/metrics.jsonl")) for seed in (0, 1)
    )
    assert first != second


def test_two_matrices_never_write_the_same_folder(
    matrix: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from redline.benchmark.matrix import claim

    with claim(matrix[1]):
        assert cli.main(["matrix", str(matrix[0]), "--out", str(matrix[1])]) == 2
    assert "another matrix is writing to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--jobs", "0"], "jobs must be at least 1, got 0"),
        (["--jobs", "two"], "--jobs must be a whole number, got 'two'"),
        (["--seeds", "-1"], "seeds must be a list of whole numbers from 0 on"),
        (["--setps", "5"], "unknown flag '--setps'; nearest: --steps"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["matrix", "demo", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Below a file, since permissions do not stop a test that runs as root.
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    for arguments in (
        ["matrix", "demo", "--out", out],
        ["run", "ppo", "--task", "CartPole-v1", "--steps", "500", "--out", out],
    ):
        assert cli.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"redline: cannot write to {out}") and error.count("\n") == 1


def test_a_task_that_is_not_supported_is_refused_before_any_work(tmp_path: Path) -> None:
    home = make_home(tmp_path)
    (home / "dict.toml").write_text(BROKEN.replace("mine.envs:Exits-v0", "mine.envs:DictSpace-v0"))
    shown = redline(home, "matrix", "dict.toml")
    assert shown.returncode == 2 and not (home / "results").exists()
    assert "'mine.envs:DictSpace-v0' has a Dict observation space" in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_a_failed_cell_does_not_stop_the_others(
    broken: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    home, shown = broken
    assert shown.returncode == 1
    assert record(home, "Threads")["status"] == "done"
    assert "5 failed" in shown.stdout and "1 of 6 runs complete" in shown.stdout
    for task, error in {
        "Boom": "mine.envs:Boom-v0: environment 0 of 2 failed at step 5 of its episode: "
        "ValueError: tank empty 17",
        "Dies": f"the worker process ended with exit code 7{TWICE}",
        "Killed": "the worker process was ended by SIGKILL; the machine may have run out of memory"
        f"{TWICE}",
        "Exits": "SystemExit: leaving",
        "Nan": "mine.envs:Nan-v0: environment 0 of 8 gave the reward nan at step 3 of its episode; "
        "it must be finite",
    }.items():
        data = record(home, task)
        assert (data["status"], data["error"]) == ("failed", error)
        assert f"reinforce mine.envs:{task}-v0 seed=0: {error}" in shown.stdout


def test_a_failed_cell_holds_its_traceback(
    broken: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    trace = record(broken[0], "Boom")["traceback"]
    assert 'raise ValueError("tank empty 17")' in trace and "envs.py" in trace


def test_what_was_written_before_a_failure_stays_readable(
    broken: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    (folder,) = broken[0].glob("out/*Nan-v0/reinforce/seed=0")
    assert [row["step"] for row in read_rows(folder / "eval.jsonl")] == [0]
    assert (folder / "checkpoint.pt").exists()


def test_a_worker_computes_on_one_thread(
    broken: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    pools = json.loads((broken[0] / "threads.json").read_text())
    assert {"torch", "libscipy_openblas"} <= pools.keys() and set(pools.values()) == {1}


def test_workers_are_pinned_without_the_command_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with LocalPool(1):
        assert {os.environ.get(name) for name in threads.VARIABLES} == {"1"}


def test_a_single_run_computes_on_one_thread_and_fails_in_one_sentence(tmp_path: Path) -> None:
    home = make_home(tmp_path)
    few = ("--steps", "100", "--eval-episodes", "2", "--evals", "1")
    assert redline(home, "run", "reinforce", "--task", "mine.envs:Threads-v0", *few).returncode == 0
    assert set(json.loads((home / "threads.json").read_text()).values()) == {1}
    late = ("--task", "mine.envs:LateBoom-v0", "--n-envs", "2", "--out", "late")
    shown = redline(home, "run", "ppo", *late, *few)
    assert shown.returncode == 1 and "Traceback" not in shown.stderr
    assert "mine.envs:LateBoom-v0: environment 0 of 2 failed at step 5" in shown.stderr
    assert "tank empty 17" in shown.stderr and "late/run.json holds the traceback" in shown.stderr
    assert json.loads((home / "late" / "run.json").read_text())["status"] == "failed"
