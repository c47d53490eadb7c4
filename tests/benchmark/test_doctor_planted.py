"""A fault of its own for every rule, in real runs on each track that it can occur on.

The faults that are told of one by one are in test_doctor_faults.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from planted import CARTPOLE, GROUPS, LANGUAGE, Plant, findings, other_weights, rewards

from redline.benchmark.arguments import resolve
from redline.benchmark.breaking import Tripped
from redline.benchmark.doctor.examine import examine
from redline.benchmark.doctor.findings import Finding
from redline.benchmark.doctor.history import read
from redline.benchmark.train import train

STEADY = ["--breaker", "record", "--no-lr-decay"]
CONTROL = [*CARTPOLE, *STEADY]
PENDULUM = ["--task", "InvertedPendulum-v5", "--steps", "5120", "--evals", "1"]
PENDULUM += ["--eval-episodes", "2", "--normalize-observation", *STEADY]
TEXT = [*LANGUAGE, *GROUPS, *STEADY]
NO_CLIP = ["--clip.low", "1", "--clip.high", "10"]
FULL = ["--telemetry", "full"]

AT_ONCE = ["--gamma", "0", "--gae-lambda", "0"]
ASLEEP = ["--critic-lr", "1e-9", "--no-standardise-advantage"]
LEVELS = [*CONTROL, *AT_ONCE, *ASLEEP, "--steps", "16384", "--no-scale-returns"]
TEXT_LEVELS = [*LANGUAGE, *STEADY, *ASLEEP, "--episodes", "8", "--steps", "320"]
TEXT_LEVELS += ["--minibatch-size", "4", "--temperature", "1.5"]


def noise(rollout: Any, number: int) -> Any:
    return np.random.default_rng(number).normal(size=rollout.reward.shape)


def terminal_noise(rollout: Any, number: int) -> Any:
    return noise(rollout, number) * rollout.terminated


def levels(level: Callable[[int], float]) -> Plant:
    """Rewards on a level that moves, which no critic follows."""
    return rewards(lambda rollout, number: level(number) + noise(rollout, number))


def lifted(level: Callable[[int], float]) -> Plant:
    """The rewards of answers, on such a level."""
    return rewards(lambda rollout, number: rollout.reward + level(number) * rollout.terminated)


def jumping(number: int) -> float:
    return 3.0 if number % 2 else 0.5


def waving(number: int) -> float:
    return 3.0 + 3.0 * float(np.sin(0.3 * number))


def other_action(rollout: Any, number: int) -> Any:
    """The action that is paid is the other one in every second rollout."""
    paid = rollout.action.reshape(rollout.reward.shape) == number % 2
    return np.where(paid, 1.0, -1.0)


def flipped(rollout: Any, number: int) -> Any:
    """What was right is wrong in every second rollout."""
    return rollout.reward * (1.0 if number % 2 else -1.0)


class Case(NamedTuple):
    """A fault; `finds` is rule -> a part of its evidence."""

    algo: str
    arguments: list[str]
    plant: Plant | None
    finds: dict[str, str]


CASES = {
    "steps that are a hundred times too small": Case(
        "ppo", [*CONTROL, "--lr", "1e-5"], None, {"T50": "the gradient of 0.0%", "T51": "end out"}
    ),
    "a reward that contradicts itself": Case(
        "ppo",
        [*CONTROL, "--steps", "10240", "--lr", "0.03", "--entropy-coef", "0.1", *NO_CLIP, *FULL],
        rewards(flipped),
        {
            "T51": "moved more than 80%",
            "T58": "end with 95%",
            "T63": "goes up by",
            "T65": "lie outside",
            "T66": "above 0.5",
        },
    ),
    "a reward that is too strict, with a critic that does not learn": Case(
        "ppo",
        [*CONTROL, "--critic-lr", "1e-6"],
        rewards(lambda rollout, _: rollout.reward - 3.0),
        {"T55": "the mean advantage is -", "T57": "explains"},
    ),
    "rewards that jump": Case(
        "ppo",
        [*LEVELS, "--lr", "0.003", "--entropy-coef", "0.3", *NO_CLIP],
        levels(jumping),
        {"T52": "the loss jumps up and down"},
    ),
    "rewards that swing": Case(
        "ppo", [*LEVELS, "--lr", "1e-4"], levels(waving), {"T52": "the loss swings slowly"}
    ),
    "a reward that changes sides": Case(
        "ppo",
        [*CONTROL, *AT_ONCE, "--lr", "0.005", "--entropy-coef", "0.1"],
        rewards(other_action),
        {"T54": "updates have ratios up to", "T65": "lie outside"},
    ),
    "groups that are all paid the same": Case(
        "grpo",
        CONTROL,
        rewards(lambda rollout, _: 0.0 * rollout.reward),
        {"T53": "in 100% of the groups"},
    ),
    "one step per rollout": Case(
        "ppo", [*CONTROL, "--epochs", "1", "--minibatch-size", "512"], None, {"T60": "ratio is 1"}
    ),
    "bold steps with narrow bounds": Case(
        "ppo",
        [*PENDULUM, "--steps", "8192", "--lr", "0.03"],
        None,
        {"T51": "of the ratios end outside", "T56": "the 90th percentile of the ratio is 1."},
    ),
    "steps that leave the data behind": Case(
        "ppo",
        [*PENDULUM, "--lr", "0.3", "--n-steps", "64", *NO_CLIP],
        None,
        {"T56": "most ratios fall", "T58": "end with 95%", "T66": "above 0.5"},
    ),
    "a penalty that does not hold the start": Case(
        "grpo",
        [*CONTROL, "--steps", "20480", "--kl-coef", "1e-4", "--lr", "0.03"],
        None,
        {"T64": "the mean ratio to the policy at the start is 1."},
    ),
    "text: steps that are too small": Case(
        "grpo", [*TEXT, "--lr", "1e-7"], None, {"T50": "the gradient of 0.0%", "T51": "end out"}
    ),
    "text: a reward that contradicts itself": Case(
        "grpo",
        [*TEXT, "--lr", "0.003", *FULL],
        rewards(flipped),
        {
            "T56": "the 90th percentile",
            "T63": "goes up by",
            "T66": "above 0.5",
        },
    ),
    "text: a temperature near 0": Case(
        "grpo", [*TEXT, "--temperature", "0.05"], None, {"T53": "of the groups all episodes"}
    ),
    "text: rewards of another size": Case(
        "ppo",
        [*LANGUAGE, "--episodes", "16", "--no-standardise-advantage", *FULL],
        rewards(lambda rollout, _: 1000.0 * rollout.reward),
        {"T55": "the variance of the advantages is", "T61": "norm of the embedding"},
    ),
    "text: one step per rollout": Case(
        "grpo", [*TEXT, "--minibatch-size", "16"], None, {"T60": "every ratio is 1"}
    ),
    "text: rewards that jump": Case(
        "ppo",
        [*TEXT_LEVELS, *NO_CLIP, "--lr", "5e-4"],
        lifted(jumping),
        {"T52": "jumps up and down"},
    ),
    "text: rewards that swing": Case(
        "ppo", [*TEXT_LEVELS, "--lr", "1e-5"], lifted(waving), {"T52": "swings slowly"}
    ),
    "text: random rewards": Case(
        "gspo",
        [*TEXT, "--epochs", "4", "--temperature", "1.5", "--lr", "5e-4"],
        rewards(terminal_noise),
        {"T54": "updates have ratios up to"},
    ),
    "text: a penalty that does not hold the start": Case(
        "grpo", [*TEXT, "--kl-coef", "1e-4", "--lr", "0.001"], None, {"T64": "at the start is"}
    ),
    "text: a worker with another checkpoint": Case(
        "grpo",
        [*TEXT, "--stale", "1", "--lr", "1e-5"],
        other_weights(0.5),
        {"T51": "moved more than 80%", "T58": "before the update", "T65": "lie outside"},
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """A run whose steps are of a good size."""
    bold = ["--lr", "0.03", "--entropy-coef", "0.1", "--minibatch-size", "32"]
    return findings(tmp_path_factory.mktemp("sound"), "ppo", [*CONTROL, *bold])


SLOW = {"text: random rewards", "text: rewards that jump", "text: rewards that swing"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_named(name: str, tmp_path: Path, sound: dict[str, Finding]) -> None:
    algo, arguments, plant, finds = CASES[name]
    found = findings(tmp_path, algo, arguments, plant)
    assert finds.keys() <= found.keys()
    for rule, evidence in finds.items():
        assert evidence in found[rule].evidence
    assert not finds.keys() - {"T56"} & sound.keys()


def test_numbers_that_are_not_finite_on_a_language_model(tmp_path: Path) -> None:
    arguments = [*LANGUAGE, *GROUPS, "--lr", "1e38"]
    with pytest.raises(Tripped, match=r"not a finite number\. The policy is that of step 0 again"):
        train(resolve("grpo", arguments), tmp_path)
    (finding,) = [one for one in examine(read(tmp_path)) if one.severity == "warn"]
    assert (finding.rule, finding.steps) == ("T67", (16, 16))
