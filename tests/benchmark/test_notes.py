"""Notes on settings that cannot act: said where they apply, and only there."""

import pytest

from redline.algorithms import registry
from redline.benchmark.arguments import resolve
from redline.benchmark.errors import BadInput
from redline.benchmark.notes import notes, steps_per_rollout

LANGUAGE = ["--task", "llm:arithmetic"]
CARTPOLE = ["--task", "CartPole-v1"]


@pytest.mark.parametrize("task", [LANGUAGE, CARTPOLE, ["--task", "HalfCheetah-v5"]])
@pytest.mark.parametrize("algo", registry.names())
def test_presets_need_no_note(algo: str, task: list[str]) -> None:
    expected = 1 if algo == "dcpo" else 0
    assert len(notes(resolve(algo, task))) == expected
    assert notes(resolve("dcpo", [*task, "--starts", "64"])) == []


@pytest.mark.parametrize(
    ("algo", "arguments", "steps"),
    [
        ("grpo", [*LANGUAGE], 4),
        ("grpo", [*LANGUAGE, "--epochs", "2"], 8),
        ("grpo", [*LANGUAGE, "--minibatch-size", "256"], 1),
        ("grpo", [*LANGUAGE, "--minibatch-size", "300"], 1),
        ("grpo", [*CARTPOLE], None),
        ("grpo", [*CARTPOLE, "--minibatch-size", "none", "--epochs", "3"], 3),
        ("ppo", [*CARTPOLE, "--n-steps", "64", "--n-envs", "8", "--minibatch-size", "256"], 20),
        ("trpo", [*CARTPOLE], 1),
    ],
)
def test_steps_per_rollout(algo: str, arguments: list[str], steps: int | None) -> None:
    assert steps_per_rollout(resolve(algo, arguments)) == steps


@pytest.mark.parametrize(
    ("algo", "arguments", "part"),
    [
        ("grpo", [*LANGUAGE, "--minibatch-size", "none"], "the clip cannot act"),
        ("ppo", [*CARTPOLE, "--epochs", "1", "--minibatch-size", "512"], "the clip cannot act"),
        ("grpo", [*LANGUAGE, "--group-size", "4"], "groups of 4 with a clip of 0.2"),
        ("grpo", [*CARTPOLE, "--clip.high", "0.28"], "groups of 4 with a clip of 0.28"),
        (
            "grpo",
            [*LANGUAGE, "--steps", "2000", "--clip.schedule", "off-for"],
            "the budget is 7 rollouts",
        ),
    ],
)
def test_what_is_said(algo: str, arguments: list[str], part: str) -> None:
    (found,) = notes(resolve(algo, arguments))
    assert part in found


@pytest.mark.parametrize(
    ("algo", "arguments"),
    [
        ("grpo", [*LANGUAGE, "--minibatch-size", "none", "--stale", "1"]),  # then r is not 1
        ("grpo", [*LANGUAGE, "--group-size", "4", "--clip.high", "0.1"]),
        ("grpo", [*LANGUAGE, "--group-size", "16", "--clip.high", "0.25"]),
        ("trpo", CARTPOLE),
        ("sb3:ppo", CARTPOLE),
    ],
)
def test_what_is_not(algo: str, arguments: list[str]) -> None:
    assert notes(resolve(algo, arguments)) == []


@pytest.mark.parametrize("algo", ["trpo", "reinforce", "sapo"])
def test_a_method_without_a_clip_says_which_have_one(algo: str) -> None:
    with pytest.raises(BadInput, match="here: it belongs to methods with a clip"):
        resolve(algo, [*CARTPOLE, "--clip.schedule", "linear"])
