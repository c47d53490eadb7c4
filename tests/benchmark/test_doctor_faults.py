"""Faults planted in real runs: the doctor names them, and is silent without them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted import CARTPOLE, GROUPS, LANGUAGE, findings, other_weights, rewards

from redline.benchmark.arguments import resolve
from redline.benchmark.breaking import Tripped
from redline.benchmark.doctor.examine import examine
from redline.benchmark.doctor.findings import Finding
from redline.benchmark.doctor.history import read
from redline.benchmark.loop import Loop
from redline.benchmark.train import train


@pytest.fixture(scope="module")
def sound(tmp_path_factory: Any) -> dict[str, dict[str, Finding]]:
    folder = tmp_path_factory.mktemp("sound")
    return {
        "ppo": findings(folder / "ppo", "ppo", CARTPOLE),
        "grpo": findings(folder / "grpo", "grpo", [*LANGUAGE, *GROUPS, "--lr", "1e-5"]),
    }


def test_sound_runs_have_no_warning(sound: dict[str, dict[str, Finding]]) -> None:
    assert not [found for found in sound["ppo"].values() if found.severity == "warn"]
    assert not {"T57", "T58", "T59", "T65", "T66", "T67"} & sound["grpo"].keys()


def test_a_critic_that_never_learns(tmp_path: Path, sound: Any) -> None:
    found = findings(tmp_path, "ppo", [*CARTPOLE, "--critic-lr", "1e-9"])
    assert "T57" in found and "T57" not in sound["ppo"]


def test_a_value_head_that_never_learns(tmp_path: Path) -> None:
    few = ["--episodes", "16", "--critic-lr", "1e-9", "--lr", "1e-5"]
    assert "T57" in findings(tmp_path, "ppo", [*LANGUAGE, *few])


def test_rewards_of_another_size(tmp_path: Path, sound: Any) -> None:
    more = rewards(lambda rollout, _: rollout.reward * 1000.0)
    found = findings(tmp_path, "ppo", CARTPOLE, more)
    assert "T55" in found and "T55" not in sound["ppo"]


def test_a_sampler_at_another_temperature(tmp_path: Path, sound: Any) -> None:
    def heat(loop: Loop) -> None:
        generation = loop._track.sampler.generation  # type: ignore[attr-defined]
        generation.settings = replace(generation.settings, temperature=2.0)

    found = findings(tmp_path, "grpo", [*LANGUAGE, *GROUPS, "--lr", "1e-5"], heat)
    assert found["T58"].severity == "warn" and "T58" not in sound["grpo"]


def test_a_sampler_with_other_weights(tmp_path: Path) -> None:
    found = findings(tmp_path, "grpo", [*LANGUAGE, *GROUPS, "--lr", "1e-5"], other_weights(1.02))
    assert found["T58"].severity == "warn"


@pytest.mark.parametrize(
    ("algo", "arguments"),
    [("ppo", [*CARTPOLE, "--lr", "0.1"]), ("grpo", [*LANGUAGE, *GROUPS, "--lr", "0.05"])],
)
def test_a_learning_rate_a_hundred_times_too_high(
    algo: str, arguments: list[str], tmp_path: Path
) -> None:
    with pytest.raises(Tripped):
        train(resolve(algo, arguments), tmp_path)
    found = {finding.rule: finding for finding in examine(read(tmp_path))}
    assert found["T66"].severity == "warn"


@pytest.mark.slow
def test_a_verifier_that_pays_for_short_answers(tmp_path: Path) -> None:
    def pay_for_brevity(loop: Loop) -> None:
        sampler: Any = loop._track.sampler  # type: ignore[attr-defined]
        collect = sampler.collect

        def hacked(policy: Any, need: Any) -> Any:
            rollout = collect(policy, need)
            paid = [float(length < 8) for length in rollout.episode_length]
            reward = rollout.terminated * [[pay] for pay in paid]
            return replace(rollout, reward=reward, episode_return=paid)

        sampler.collect = hacked

    arguments = ["--task", "llm:arithmetic", "--steps", "2048", "--evals", "1", "--lr", "3e-4"]
    arguments += ["--groups", "16", "--eval-problems", "100", "--minibatch-size", "32"]
    assert findings(tmp_path, "grpo", arguments, pay_for_brevity)["T59"].severity == "warn"
