"""Every rule on a run made of numbers: one that it finds, and one that it must not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.benchmark import cli
from redline.benchmark.doctor.examine import examine, severe
from redline.benchmark.doctor.findings import RULES, Finding
from redline.benchmark.doctor.history import History
from redline.benchmark.doctor.thresholds import Thresholds

N = 40
UP = np.linspace(0.0, 1.0, N)
NOISE = np.random.default_rng(0).normal(0.0, 1.0, N)
ZIGZAG = np.where(np.arange(N) % 2, 1.0, -1.0)
WAVE = np.sin(np.arange(N) * 0.4)

# A run with nothing to say about it.
HEALTHY: dict[str, Any] = {
    "train/clip_lo": 0.8,
    "train/clip_fraction": 0.15,
    "train/outside_band": 0.3,
    "train/ratio_std": 0.17,
    "train/ratio_max": 1.7,
    "train/ratio_p90": 1.15,
    "train/loss": NOISE,
    "train/n_updates": 8.0,
    "train/advantage_mean": 0.0,
    "train/advantage_std": 1.0,
    "train/advantage_negative": 0.5,
    "train/value_loss": 1.0,
    "train/explained_variance": 0.6,
    "rollout/group_mixed": 0.7,
    "rollout/group_std": 0.4,
    "rollout/ep_rew_mean": 0.4 + 0.4 * UP,
    "rollout/outside_band": 0.0,
    "llm/top_answer": 0.05,
    "train/ratio_reference": 1.05,
    "train/grad_norm/embedding": 0.005,
    "follow/0": 1.0,
}
EVALS: dict[str, Any] = {"eval/accuracy": [0.4, 0.5, 0.6, 0.7, 0.75]}


def history(
    change: dict[str, Any] | None = None,
    evals: dict[str, Any] | None = None,
    recipe: dict[str, Any] | None = None,
    **more: Any,
) -> History:
    values = {"step": (np.arange(N) + 1) * 10.0, **HEALTHY, **(change or {})}
    metrics = {
        name: np.broadcast_to(np.asarray(value, dtype=float), (N,)).copy()
        for name, value in values.items()
    }
    curves = {name: np.array(value, dtype=float) for name, value in (evals or EVALS).items()}
    curves["step"] = np.linspace(0.0, 10.0 * N, len(curves["eval/accuracy"]))
    run = {"task": "llm:arithmetic", "eval_problems": 200}
    record = {"run": run, "recipe": {"gamma": 1.0, **(recipe or {})}, **more}
    review = record.pop("review", {})
    return History(record, metrics, curves, review)


def trips(rule: str, value: float) -> dict[str, Any]:
    listed = [{"rule": rule, "update": 3, "step": 30, "value": value, "reason": f"{rule} {value}"}]
    return {"trips": {"count": 1, "rules": {rule: 1}, "listed": listed}}


# Rule, what triggers it, what comes near and must not, the severity, a part of the evidence.
FALLING = {"eval/accuracy": [0.5, 0.7, 0.6, 0.4, 0.3]}
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    (
        "T50",
        {"change": {"train/clip_fraction": 0.03}},
        {"change": {"train/clip_fraction": np.where(UP < 0.2, 0.03, 0.06)}},
        "note",
        "the gradient of 3.0% of the elements",
    ),
    (
        "T51",
        {"change": {"train/outside_band": 0.05}},
        {"change": {"train/outside_band": np.where(UP < 0.2, 0.05, 0.3)}},
        "note",
        "5.0% of the ratios end outside",
    ),
    (
        "T51",
        {"change": {"train/outside_band": 0.7}},
        {"change": {"train/outside_band": 0.55}},
        "note",
        "70% of the ratios end outside",
    ),
    (
        "T51",
        {"change": {"train/outside_band": np.where(np.arange(N) > 36, 0.9, 0.3)}},
        {"change": {"train/outside_band": np.where(np.arange(N) > 37, 0.9, 0.3)}},
        "warn",
        "3 updates moved more than 80%",
    ),
    (
        "T52",
        {"change": {"train/loss": ZIGZAG, "train/ratio_std": 0.3}},
        {"change": {"train/loss": ZIGZAG}},
        "note",
        "jumps up and down",
    ),
    (
        "T52",
        {"change": {"train/loss": WAVE, "train/ratio_std": 0.1}},
        {"change": {"train/loss": UP, "train/ratio_std": 0.1}},
        "note",
        "swings slowly",
    ),
    (
        "T53",
        {"change": {"rollout/group_mixed": 0.1, "rollout/group_std": 0.02}},
        {"change": {"rollout/group_mixed": 0.4}},
        "note",
        "in 90% of the groups all episodes are paid the same (std of the pay within a group: 0.02)",
    ),
    (
        "T54",
        {"change": {"train/ratio_max": 3.0, "train/clip_fraction": 0.6}},
        {"change": {"train/ratio_max": 3.0, "train/clip_fraction": 0.4}},
        "note",
        "ratios up to 3 and lose 60%",
    ),
    (
        "T55",
        {"change": {"train/advantage_std": 20.0}},
        {"change": {"train/advantage_std": 9.0}},
        "note",
        "the variance of the advantages is 400",
    ),
    (
        "T55",
        {"change": {"train/advantage_mean": -0.5}, "recipe": {"gae_lambda": 0.95}},
        {"change": {"train/advantage_mean": -0.05}, "recipe": {"gae_lambda": 0.95}},
        "note",
        "the mean advantage is -0.5 at a std of 1",
    ),
    (
        "T55",
        {"change": {"train/advantage_mean": 0.3}, "recipe": {"gae_lambda": 0.8}},
        {"recipe": {"gae_lambda": 0.8}},  # centred advantages are half negative
        "note",
        "50% of the advantages are negative",
    ),
    (
        "T56",
        {"change": {"train/ratio_p90": 1.4}},
        {"change": {"train/ratio_p90": 1.19}},
        "note",
        "is 1.40",
    ),
    (
        "T56",
        {"change": {"train/ratio_p90": 0.85}},
        {"change": {"train/ratio_p90": 0.95}},
        "note",
        "is 0.85: most ratios fall",
    ),
    (
        "T57",
        {"change": {"train/value_loss": 1.0 + 4.0 * UP, "train/explained_variance": 0.0}},
        {"change": {"train/value_loss": 1.0 + 4.0 * UP}},  # returns have grown, V with them
        "warn",
        "explains 0.0% of the variance",
    ),
    (
        "T57",
        {"change": {"train/explained_variance": 0.01}},
        {"change": {"train/explained_variance": 0.1}},
        "note",
        "explains 1.0% of the variance",
    ),
    (
        "T58",
        {"change": {"rollout/outside_band": 0.2}},
        {"change": {"rollout/outside_band": 0.2, "rollout/staleness": 1.0}},
        "warn",
        "20% of the ratios of learner to sampler",
    ),
    (
        "T58",
        {"change": {"rollout/outside_band": np.nan, "train/outside_band": 0.96}},
        {"change": {"rollout/outside_band": np.nan, "train/outside_band": 0.94}},
        "warn",
        "40 updates end with 95% of the ratios outside",
    ),
    (
        "T59",
        {"evals": FALLING},
        {"evals": FALLING, "change": {"rollout/ep_rew_mean": 0.5}},
        "warn",
        "held-out accuracy fell from 0.70 to 0.30",
    ),
    (
        "T59",
        {"change": {"llm/top_answer": UP}, "evals": {"eval/accuracy": [0.1, 0.2, 0.2, 0.2]}},
        {"change": {"llm/top_answer": UP}, "evals": {"eval/accuracy": [0.1, 0.2, 0.6, 0.8]}},
        "warn",
        "of all answers to different prompts",
    ),
    (
        "T60",
        {"change": {"train/n_updates": 1.0}},
        {"change": {"train/n_updates": 1.0, "rollout/staleness": 1.0}},
        "note",
        "every ratio is 1",
    ),
    (
        "T61",
        {"change": {"train/grad_norm/embedding": 0.2, "train/grad_norm/head": 3.0}},
        {"change": {"train/grad_norm/embedding": 0.05, "train/grad_norm/head": 3.0}},
        "note",
        "the gradient norm of the embedding is 0.2",
    ),
    (
        "T61",
        {"change": {"train/grad_norm/embedding": 20.0}},
        {"change": {"train/grad_norm/embedding": 2.0}},  # tied: the output layer's as well
        "note",
        "the gradient norm of the embedding is 20",
    ),
    (
        "T62",
        {"review": {"correlation": 0.3, "graded": 20}},
        {"review": {"correlation": 0.7, "graded": 20}},
        "warn",
        "the correlation of 20 human grades with the reward is 0.30",
    ),
    (
        "T62",
        {"review": {"correlation": 0.3, "graded": 10}},
        {"review": {"correlation": 0.3, "graded": 9}},
        "warn",
        "the correlation of 10 human grades with the reward is 0.30",
    ),
    (
        "T63",
        {"change": {"follow/0": np.where(np.arange(N) % 2, 1.6, 0.2)}},
        {"change": {"follow/0": np.where(np.arange(N) % 2, 1.4, 0.4)}},
        "note",
        "action 0 of the first round",
    ),
    (
        "T64",
        {"change": {"train/ratio_reference": 1.5}},
        {"change": {"train/ratio_reference": 1.15}},
        "note",
        "the mean ratio to the policy at the start is 1.5",
    ),
    ("T65", trips("outside_band", 0.9), trips("kl", 0.9), "warn", "outside_band 0.9"),
    ("T66", trips("kl", 0.9), trips("not_finite", 0.9), "warn", "tripped in 1 updates: kl 0.9"),
    ("T67", trips("not_finite", 0.9), trips("kl", 0.9), "warn", "not_finite 0.9"),
]


def of(rule: str, found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.rule == rule]


def test_a_healthy_run_has_no_finding() -> None:
    assert examine(history()) == []


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == {rule.name for rule in RULES}


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_a_rule_finds_what_it_is_for_and_nothing_near(case: Any) -> None:
    rule, sick, near, severity, evidence = case
    (finding,) = of(rule, examine(history(**sick)))
    assert (finding.severity, evidence in finding.evidence) == (severity, True)
    first, last = finding.steps
    assert 10 <= first <= last <= 10 * N and finding.advice and finding.source
    assert not of(rule, examine(history(**near)))


@pytest.mark.parametrize(
    ("curve", "severity"),
    [([0.4, 0.4, 0.41, 0.4], "warn"), ([0.4, 0.5, 0.6, 0.7], "note"), ([0.97, 0.97], "note")],
)
def test_a_note_becomes_a_warning_where_the_run_stalls(curve: list[float], severity: str) -> None:
    evals = {"eval/accuracy": curve}
    (finding,) = examine(history({"train/clip_fraction": 0.01}, evals))
    assert finding.severity == severity
    assert ("the evaluation has stalled: 0.4 at the start" in finding.evidence) == (
        severity == "warn"
    )


def test_a_threshold_can_be_another() -> None:
    sick = history({"train/clip_fraction": 0.03})
    assert examine(sick, Thresholds(clip_inert=0.02)) == []


def test_a_run_without_rows_is_not_judged() -> None:
    record = {"run": {"task": "CartPole-v1"}, "recipe": {}}
    assert examine(History(record, {}, {}, {})) == []


def test_a_few_updates_are_not_judged() -> None:
    few = history({"train/clip_fraction": 0.01, "train/explained_variance": 0.0})
    short = {name: values[:5] for name, values in few.metrics.items()}
    assert examine(History(few.record, short, few.evals, {})) == []


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


def test_warnings_alone_are_severe() -> None:
    note = Finding("T50", "note", (0, 1), "", "", "")
    assert not severe([note]) and severe([note, Finding("T57", "warn", (0, 1), "", "", "")])
