"""A run that was cut and gone on with equals one that was not, bit for bit."""

import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from command import redline, start_redline
from runs import CARTPOLE, cut, rows, same_runs

from redline.algorithms import registry
from redline.benchmark import checkpoint, cli
from redline.benchmark.arguments import resolve
from redline.benchmark.errors import BadInput
from redline.benchmark.loading import load
from redline.benchmark.resume import PROGRESS
from redline.benchmark.runs import is_done
from redline.benchmark.train import train
from redline.llm_track.models import load_model

PENDULUM = ["--task", "Pendulum-v1", "--steps", "2400", "--evals", "3", "--eval-episodes", "2"]
CHEETAH = ["--task", "HalfCheetah-v5", "--steps", "1600", "--evals", "2", "--eval-episodes", "1"]
LANGUAGE = ["--task", "llm:arithmetic", "--steps", "48", "--evals", "2"]
LANGUAGE += ["--eval-problems", "4", "--eval-samples", "2", "--max-completion", "24"]
LANGUAGE += ["--breaker", "record"]  # updates on 8 completions

SIZES: dict[str, list[str]] = {
    "episodes": ["--episodes", "2"],
    "groups": ["--groups", "2", "--group-size", "2"],
    "n_steps": ["--n-steps", "32"],
}


def sizes(algo: str) -> list[str]:
    fields = registry.get(algo).__dataclass_fields__
    kind = next(
        name
        for name in ("groups", "n_steps", "episodes")
        if name in fields and fields[name].default is not None
    )
    return SIZES[kind]


def language_sizes(algo: str) -> list[str]:
    fields = registry.get(algo).__dataclass_fields__
    few = ["--groups", "4", "--group-size", "2"] if "groups" in fields else ["--episodes", "8"]
    small = {"minibatch_size": "4", "epochs": "2", "fisher_rows": "4", "horizon": "24"}
    for name, value in small.items():
        few += [f"--{name.replace('_', '-')}", value] if name in fields else []
    return few


def check(algo: str, arguments: Sequence[str], folder: Path, steps: Sequence[int]) -> None:
    """Train without a cut, and with cuts at `steps`; both are the same."""
    resolved = resolve(algo, [*arguments, "--seed", "1000"])
    train(resolved, folder / "whole")
    for step in steps:
        cut(resolved, folder / "cut", step)
    train(resolved, folder / "cut")
    record = json.loads((folder / "cut" / "run.json").read_text())
    assert record["status"] == "done" and len(record["resumed"]) == len(steps)
    assert all(entry["exact"] for entry in record["resumed"])
    same_runs(folder / "whole", folder / "cut")


def test_seconds_of_cpu_are_those_before_and_after_a_cut(tmp_path: Path) -> None:
    resolved = resolve("ppo", [*CARTPOLE, *sizes("ppo")])
    cut(resolved, tmp_path, 1200)
    # As if the part before the cut had taken an hour.
    state = checkpoint.load(tmp_path)
    state[PROGRESS]["cpu_seconds"] += 3600.0
    checkpoint.save(tmp_path, state)
    before = time.process_time()
    train(resolved, tmp_path)
    spent = time.process_time() - before
    record = json.loads((tmp_path / "run.json").read_text())
    assert 3600.0 < record["cpu_seconds"] < 3600.0 + 2 * spent + 60
    assert record["wall_seconds"] < 3600


# The others of grpo's family have its parts and nothing of their own to remember.
ALIKE = {"cispo", "dr_grpo", "entropy_advantage", "gmpo", "gspo", "gspo_token", "rloo", "sapo"}
ALGORITHMS = [name for name in registry.names() if name not in ALIKE | {"reinforce_plus_plus"}]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_cut_run_on_control_goes_on_as_if_it_had_not_been(algo: str, tmp_path: Path) -> None:
    check(algo, [*CARTPOLE, *sizes(algo)], tmp_path, [1100, 2000])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_cut_run_on_language_goes_on_as_if_it_had_not_been(algo: str, tmp_path: Path) -> None:
    check(algo, [*LANGUAGE, *language_sizes(algo)], tmp_path, [30])


@pytest.mark.parametrize(
    "more",
    [
        ["--policy", "torch"],
        ["--normalize-observation", "--normalize-reward", "--scale-returns"],
        ["--action-bound", "tanh", "--recompute-advantage"],
        ["--evals", "0"],
        ["--no-tensorboard"],
    ],
    ids=" ".join,
)
def test_settings_that_keep_state(more: list[str], tmp_path: Path) -> None:
    if "--no-tensorboard" in more:
        resolved = resolve("ppo", [*PENDULUM, *more])
        train(resolved, tmp_path / "whole")
        cut(resolved, tmp_path / "cut", 1500)
        train(resolved, tmp_path / "cut")
        assert rows(tmp_path / "whole/metrics.jsonl") == rows(tmp_path / "cut/metrics.jsonl")
        return
    check("ppo", [*PENDULUM, "--n-steps", "32", "--minibatch-size", "64", *more], tmp_path, [1500])


# A short sight makes steps small enough to mix; the third component is the last before one network
# is made of them.
MIXED = ["--gamma", "0.7", "--epochs", "4", "--lr", "3e-3", "--max-components", "3"]


@pytest.mark.parametrize(
    ("algo", "more", "told"),
    [
        ("ppo", ["--clip.schedule", "adaptive", "--clip.window", "3"], "train/clip_lo"),
        ("grpo", ["--clip.schedule", "reward-noise", "--clip.window", "3"], "train/clip_lo"),
        ("cpi", MIXED, "train/mixture_components"),
        ("ppo", ["--telemetry", "full", "--n-steps", "64"], "follow/0"),
    ],
    ids=str,
)
def test_what_is_remembered_from_update_to_update(
    algo: str, more: list[str], told: str, tmp_path: Path
) -> None:
    check(algo, [*CARTPOLE, *sizes(algo), *more], tmp_path, [1100])
    metrics = rows(tmp_path / "cut/metrics.jsonl")
    for part in ([row for row in metrics if early == (row["step"] < 1100)] for early in (0, 1)):
        # It acts, and not always alike, on both sides of the cut.
        assert len({row[told] for row in part if told in row}) > 1


def test_mujoco(tmp_path: Path) -> None:
    check("trpo", [*CHEETAH, "--n-steps", "16"], tmp_path, [1000])


@pytest.mark.parametrize("before", [[], ["--sampler-process"]], ids=["one", "two"])
@pytest.mark.parametrize("after", [[], ["--sampler-process"]], ids=["one", "two"])
def test_stale_rollouts(before: list[str], after: list[str], tmp_path: Path) -> None:
    arguments = [*LANGUAGE, *language_sizes("grpo"), "--stale", "2"]
    train(resolve("grpo", arguments), tmp_path / "whole")
    cut(resolve("grpo", [*arguments, *before]), tmp_path / "cut", 30)
    train(resolve("grpo", [*arguments, *after]), tmp_path / "cut")
    assert "resumed" in json.loads((tmp_path / "cut" / "run.json").read_text())
    same_runs(tmp_path / "whole", tmp_path / "cut")


def test_frozen_parts_stay_what_they_were(tmp_path: Path) -> None:
    frozen = ["--freeze.embeddings", "--freeze.layers", "1"]
    check("grpo", [*LANGUAGE, *language_sizes("grpo"), *frozen], tmp_path, [30])
    with load(tmp_path / "cut") as trained:
        after = trained._policy.model.state_dict()
    for name, before in load_model("tiny").model.state_dict().items():
        still = "embed_tokens" in name or "layers.0." in name or "lm_head" in name
        assert torch.equal(after[name], before) == still, name


def test_a_run_whose_environments_nobody_can_capture_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gym.register("Odd-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=50)
    gym.registry["Odd-v0"].additional_wrappers = (
        gym.wrappers.RecordEpisodeStatistics.wrapper_spec(),
    )
    out = ["--out", str(tmp_path / "run")]
    arguments = ["--task", "Odd-v0", *CARTPOLE[2:], "--n-steps", "32"]
    cut(resolve("ppo", arguments), tmp_path / "run", 1100)
    assert cli.main(["run", "ppo", *arguments, *out]) == 0
    said = capsys.readouterr().out
    assert "its episodes began anew there, so an uncut run ends differently" in said
    assert "gone on with from step" in said


def test_other_settings_are_refused_as_before(tmp_path: Path) -> None:
    cut(resolve("ppo", [*CARTPOLE, "--n-steps", "32"]), tmp_path, 1100)
    before = (tmp_path / "metrics.jsonl").read_text()
    other = [*CARTPOLE, "--n-steps", "64", "--clip.high", "0.3"]
    with pytest.raises(BadInput, match=r"\(n_steps 32 -> 64, clip.high 0.2 -> 0.3\)"):
        is_done(tmp_path, resolve("ppo", other))
    assert (tmp_path / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize("arguments", [CARTPOLE, LANGUAGE], ids=["control", "language"])
def test_kill_9(arguments: list[str], tmp_path: Path) -> None:
    long = ["--steps", "12000", "--evals", "6"] if arguments is CARTPOLE else ["--steps", "96"]
    algo = "ppo" if arguments is CARTPOLE else "grpo"
    small = sizes(algo) if arguments is CARTPOLE else language_sizes(algo)
    settings = [*arguments, *small, *long]
    train(resolve(algo, settings), tmp_path / "whole")
    folder = tmp_path / "killed"
    command = ["run", algo, *settings, "--out", str(folder)]
    for least in (3, 9):
        process = start_redline(tmp_path, *command)
        metrics = folder / "metrics.jsonl"
        while not (metrics.is_file() and metrics.read_text().count("\n") >= least):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert redline(tmp_path, *command).returncode == 0
    same_runs(tmp_path / "whole", folder)
