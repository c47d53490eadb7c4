"""Runs that go too far: what each action of the breaker leaves, and that others never feel it."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from redline.benchmark import cli, report
from redline.benchmark.arguments import resolve
from redline.benchmark.breaking import Tripped
from redline.benchmark.records import load
from redline.benchmark.train import opened, train

SMALL = ["--task", "CartPole-v1", "--steps", "1536", "--evals", "1", "--eval-episodes", "2"]
LANGUAGE = ["--task", "llm:arithmetic", "--steps", "32", "--evals", "1", "--groups", "2"]
LANGUAGE += ["--group-size", "4", "--minibatch-size", "2", "--eval-problems", "4"]
LANGUAGE += ["--eval-samples", "2", "--max-completion", "16"]
CASES = {"ppo": [*SMALL, "--lr", "0.1"], "grpo": [*LANGUAGE, "--lr", "0.05"]}


def trained(folder: Path, algo: str, *arguments: str) -> dict[str, Any]:
    with contextlib.suppress(Tripped):
        train(resolve(algo, arguments), folder)
    record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return record


def lines(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if not key.startswith(("time/", "memory/"))}
        for row in found
    ]


@pytest.mark.parametrize("algo", CASES)
def test_a_learning_rate_a_hundred_times_too_high_ends_with_the_last_good_policy(
    algo: str, tmp_path: Path
) -> None:
    record = trained(tmp_path, algo, *CASES[algo])
    assert (record["status"], record["trips"]["count"]) == ("tripped", 1)
    assert "KL(old||new) over one update" in record["error"]
    first, last = lines(tmp_path / "eval.jsonl")
    assert first.pop("step") == 0 and last.pop("step") > 0
    assert first == last == record["final"]


MIDWAY = {
    "ppo": ([*SMALL, "--steps", "6144", "--evals", "4", "--no-lr-decay"], 10),
    "grpo": ([*LANGUAGE, "--steps", "32", "--evals", "4", "--lr", "3e-5"], 4),
}


@pytest.mark.parametrize("algo", MIDWAY)
def test_steps_that_become_a_hundred_times_larger_midway_cost_nothing(
    algo: str, tmp_path: Path
) -> None:
    arguments, fault = MIDWAY[algo]
    with pytest.raises(Tripped), opened(resolve(algo, arguments), tmp_path) as loop:
        loop.evaluate_at_start()
        for update in range(1, fault + 1):
            if update == fault:
                loop._breaker.scale = 100.0
            loop.update()
            loop.evaluate_if_due()
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["status"], record["trips"]["listed"][0]["update"]) == ("tripped", fault)
    *_, good, last = lines(tmp_path / "eval.jsonl")
    assert 0 < good.pop("step") < last.pop("step")
    assert good == last == record["final"]


def test_what_the_update_did_is_kept_for_a_look(tmp_path: Path) -> None:
    trained(tmp_path, "ppo", *CASES["ppo"])
    kept = torch.load(tmp_path / "trip.pt", weights_only=True)
    batch = kept["batch"]
    ratio = (batch["log_prob"] - batch["old_log_prob"]).exp()
    outside = ((ratio < 0.8) | (ratio > 1.2)).float().mean()
    (row,) = lines(tmp_path / "metrics.jsonl")
    assert float(outside) == pytest.approx(row["train/outside_band"])
    good = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["learner"]["parameters"]
    assert not torch.equal(kept["parameters"], good)
    assert kept["reason"] in json.loads((tmp_path / "run.json").read_text())["error"]


def test_a_run_that_tripped_goes_on_with_smaller_steps(tmp_path: Path) -> None:
    trained(tmp_path, "ppo", *CASES["ppo"])
    record = trained(tmp_path, "ppo", *CASES["ppo"], "--breaker", "continue-smaller")
    assert record["status"] == "done" and record["trips"]["listed"][0]["action"] == "stop"
    assert [cut["step"] for cut in record["resumed"]] == [512]
    assert [row["step"] for row in lines(tmp_path / "metrics.jsonl")] == [512, 1024, 1536]


def test_every_trip_makes_the_steps_smaller(tmp_path: Path) -> None:
    record = trained(tmp_path, "ppo", *CASES["ppo"], "--breaker", "continue-smaller")
    after = {trip["update"] for trip in record["trips"]["listed"]}
    assert 1 in after and record["status"] == "done"
    expected, rate = [], 0.1
    for update in range(1, 4):
        expected.append(rate * (1.0 - (update - 1) / 3.0))
        rate *= 0.25 if update in after else 1.0
    rates = [row["train/learning_rate"] for row in lines(tmp_path / "metrics.jsonl")]
    assert rates == pytest.approx(expected)


def test_going_back_ends_after_several_trips_in_a_row(tmp_path: Path) -> None:
    more = ["--steps", "5120", "--lr", "10", "--breaker", "rollback"]
    record = trained(tmp_path, "ppo", *CASES["ppo"], *more)
    assert (record["status"], record["trips"]["count"]) == ("tripped", 5)
    assert [row["step"] for row in record["trips"]["listed"]] == [512, 1024, 1536, 2048, 2560]


def test_recording_changes_nothing_and_off_counts_nothing(tmp_path: Path) -> None:
    rows, records = [], []
    for action in ("record", "off"):
        records.append(trained(tmp_path / action, "ppo", *CASES["ppo"], "--breaker", action))
        rows.append(lines(tmp_path / action / "metrics.jsonl"))
    assert rows[0] == rows[1] and len(rows[0]) == 3
    assert [record["status"] for record in records] == ["done", "done"]
    assert records[0]["trips"]["count"] >= 1 and "trips" not in records[1]


@pytest.mark.parametrize("algo", ["ppo", "trpo"])
def test_a_run_in_no_danger_is_the_same_bit_for_bit(algo: str, tmp_path: Path) -> None:
    found = []
    for action in ("stop", "continue-smaller", "off"):
        record = trained(tmp_path / action, algo, *SMALL, "--breaker", action)
        assert record["status"] == "done" and "trips" not in record
        found.append(lines(tmp_path / action / "metrics.jsonl"))
    assert found[0] == found[1] == found[2]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("algo", ["ppo", "trpo"])
def test_numbers_that_are_not_finite_never_stay(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = {"ppo": ["--lr", "1e38"], "trpo": ["--critic-lr", "1e38"]}[algo]
    assert cli.main(["run", algo, *SMALL, *huge, "--out", str(tmp_path)]) == 3
    said = capsys.readouterr()
    assert "which is not a finite number. The policy is that of step 0 again" in said.err
    assert "eval/mean_reward" in said.out
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["trips"]["rules"] == {"not_finite": 1}
    assert record["trips"]["listed"][0]["value"] is None
    good = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["learner"]
    assert bool(good["parameters"].isfinite().all())
    assert bool(good["value"]["critic"].isfinite().all())


def test_suites_record_trips_and_the_report_counts_them(tmp_path: Path) -> None:
    (tmp_path / "hot.toml").write_text(
        'tasks = ["CartPole-v1"]\nseeds = [0]\nalgorithms = ["ppo"]\n[settings]\n'
        "steps = 1024\nevals = 1\neval_episodes = 1\nlr = 0.1\n"
    )
    out = tmp_path / "out"
    assert cli.main(["matrix", str(tmp_path / "hot.toml"), "--out", str(out)]) == 0
    (line,) = report.tripped(load(out))
    count = json.loads(next(out.rglob("run.json")).read_text())["trips"]["count"]
    assert line == f"ppo--lr=0.1 on CartPole-v1: {count} updates in 1 of 1 runs (kl {count})"
    report.write(out)
    text = (out / "report.md").read_text()
    assert line in text
    assert "ppo--lr=0.1 on CartPole-v1: **warning** T66 in 1 of 1 runs, in the first the" in text


def test_a_trip_is_told_with_its_numbers(tmp_path: Path) -> None:
    record = trained(tmp_path, "ppo", *CASES["ppo"])
    (trip,) = record["trips"]["listed"]
    (row,) = lines(tmp_path / "metrics.jsonl")
    assert (trip["rule"], trip["limit"], trip["update"]) == ("kl", 0.5, 1)
    assert trip["value"] == row["train/kl"] and math.isfinite(trip["value"])
