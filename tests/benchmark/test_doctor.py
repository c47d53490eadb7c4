"""Every rule on a run made of numbers: one that it finds, and one that it must not."""

from typing import Any

import numpy as np
import pytest
from histories import UP, WAVE, ZIGZAG, N, history, trips

from redline.benchmark.doctor.examine import examine, severe
from redline.benchmark.doctor.findings import RULES, Finding
from redline.benchmark.doctor.history import History
from redline.benchmark.doctor.thresholds import Thresholds

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
        "T61",  # tied, and seen by path
        {"change": {"train/grad_norm/embedding": 2.0, "train/grad_norm_embedding_path": 0.2}},
        {"change": {"train/grad_norm/embedding": 20.0, "train/grad_norm_embedding_path": 0.05}},
        "note",
        "the gradient norm of the embedding is 0.2",
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


def test_warnings_alone_are_severe() -> None:
    note = Finding("T50", "note", (0, 1), "", "", "")
    assert not severe([note]) and severe([note, Finding("T57", "warn", (0, 1), "", "", "")])
