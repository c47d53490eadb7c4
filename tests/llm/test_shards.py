"""Processes that hold a part of the parameters each (FSDP2): runs, cuts, and what they refuse."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import REDLINE, redline, start_redline
from launched import FSDP, start_together, together
from processes import wait_until
from runs import rows, same_runs

from redline.algorithms.core.breaker import Trip
from redline.benchmark import cli, ranks, train
from redline.benchmark.arguments import resolve
from redline.benchmark.breaking import Trips
from redline.benchmark.resume import PROGRESS

HELPERS = Path(__file__).parents[1] / "helpers"
RUN = ["run", "grpo", "--task", "llm:arithmetic", "--steps", "160", "--groups", "4"]
RUN += ["--group-size", "4", "--minibatch-size", "8", "--eval-problems", "4", "--evals", "5"]
RUN += ["--eval-samples", "2", "--max-completion", "24", "--breaker", "record"]


@pytest.mark.slow  # half a minute
def test_two_halves_of_the_parameters_do_what_one_whole_does(tmp_path: Path) -> None:
    ended = together(tmp_path, sys.executable, HELPERS / "two_shards.py", **FSDP)
    for rank, process in enumerate(ended):
        assert process.returncode == 0, process.stderr
        assert process.stdout == f"same {rank}\n"


def written(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.is_file() else 0


def killed(folder: Path, started: list[subprocess.Popen[str]]) -> None:
    """The processes of a run end by kill -9 after some updates."""
    wait_until(lambda: written(folder) >= 5)
    for process in started:
        process.kill()
        process.communicate()
    assert record(folder)["status"] == "running"


def finished(folder: Path, out: str) -> str:
    """The same command again, to its end; what it said."""
    first, second = together(folder, REDLINE, *RUN, "--out", out, **FSDP)
    assert [first.returncode, second.returncode] == [0, 0], first.stderr + second.stderr
    assert not second.stdout + second.stderr
    return first.stdout


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def alike(one: Path, other: Path) -> None:
    """Equal but for rounding."""
    for name in ("metrics.jsonl", "eval.jsonl"):
        expected, found = rows(one / name), rows(other / name)
        assert len(expected) == len(found) > 1
        for left, right in zip(expected, found, strict=True):
            assert right == pytest.approx(left, rel=1e-3, abs=1e-5)


@pytest.mark.slow  # six commands
def test_a_run_is_cut_and_gone_on_with(tmp_path: Path) -> None:
    finished(tmp_path, "whole")
    assert record(tmp_path / "whole")["sharded"]
    cut = tmp_path / "cut"
    killed(cut, start_together(tmp_path, REDLINE, *RUN, "--out", "cut", **FSDP))
    shutil.copytree(cut, tmp_path / "alone")
    said = finished(tmp_path, "cut")
    assert "gone on with from step" in said and "other processes" not in said
    assert [entry["exact"] for entry in record(cut)["resumed"]] == [True]
    same_runs(tmp_path / "whole", cut)
    # A checkpoint is whole: one process goes on from that of two, and two from that of one.
    ended = redline(tmp_path, *RUN, "--out", "alone")
    assert ended.returncode == 0
    killed(tmp_path / "apart", [start_redline(tmp_path, *RUN, "--out", "apart")])
    for name, said, before in (
        ("alone", ended.stdout, [2, 2]),
        ("apart", finished(tmp_path, "apart"), [1, 1]),
    ):
        assert "with other processes there" in said
        (entry,) = record(tmp_path / name)["resumed"]
        assert entry["exact"] is False and entry["processes"] == before
        alike(tmp_path / "whole", tmp_path / name)


SMALL = ["--task", "llm:arithmetic", "--steps", "32", "--evals", "1", "--eval-problems", "4"]
SMALL += ["--eval-samples", "2", "--max-completion", "24", "--breaker", "record"]
GROUPS = ["--groups", "4", "--group-size", "4", "--minibatch-size", "8"]
EPISODES = ["--episodes", "16", "--minibatch-size", "8", "--epochs", "2"]
# With a value head, a pull towards pi_old and one towards the first policy, a look at layers,
# former policies that sample, groups that are drawn again, and steps that are taken back.
SETTINGS: dict[str, list[str]] = {
    "value": ["ppo", *SMALL, *EPISODES],
    "old": ["ppo_kl", *SMALL, *EPISODES],
    "first": ["grpo", *SMALL, *GROUPS, "--kl-coef", "0.1"],
    "full": ["grpo", *SMALL, *GROUPS, "--telemetry", "full"],
    "stale": ["grpo", *SMALL, *GROUPS, "--stale", "1"],
    "mixed": ["dapo", *SMALL, *GROUPS, "--steps", "128"],
    "back": ["grpo", *SMALL, *GROUPS, "--lr", "0.002", "--breaker", "continue-smaller"],
}


@pytest.mark.slow  # seven runs, twice
def test_whatever_a_method_keeps(tmp_path: Path) -> None:
    runs = json.dumps([["run", *settings, "--out", name] for name, settings in SETTINGS.items()])
    (tmp_path / "two").mkdir()
    line = "import json, sys; from redline.benchmark import cli; "
    line += "sys.exit(any([cli.main(run) for run in json.loads(sys.argv[1])]))"
    for ended in together(tmp_path / "two", sys.executable, "-c", line, runs, **FSDP):
        assert ended.returncode == 0, ended.stderr
    for name, settings in SETTINGS.items():
        assert cli.main(["run", *settings, "--out", str(tmp_path / name)]) == 0
        alike(tmp_path / name, tmp_path / "two" / name)
    assert record(tmp_path / "two/back")["trips"]["count"] > 0


def test_who_trains_along_knows_of_trips_before_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trip of a run is kept, which takes all processes: they must count alike."""
    trips = Trips()
    trips.add(Trip("kl", 1.0, 0.5, "far"), 8, 1, "record")
    found = {PROGRESS: {"trips": trips.to_json()}}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(ranks, "of_first", lambda function: found)
    with train._record(tmp_path, resolve("grpo", SMALL)) as folder:
        assert folder.state is found and len(folder.trips) == 1


@pytest.mark.parametrize("method", [["npg"], ["trpo"], ["cpi", "--horizon", "64"]], ids="".join)
def test_methods_that_need_all_parameters_are_refused_parts(
    method: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in ({"WORLD_SIZE": "2"} | FSDP).items():
        monkeypatch.setenv(name, value)
    assert cli.main(["run", *method, "--task", "llm:arithmetic"]) == 2
    assert f"{method[0]} cannot train parameters that are spread" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
