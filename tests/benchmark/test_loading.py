"""A trained run played again: by the command, in a new process, and from Python."""

import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from closeness import identical
from command import redline as redline_command

import redline.benchmark
from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.errors import BadInput
from redline.benchmark.train import train

FEW = ["--steps", "500", "--evals", "1", "--eval-episodes", "3"]


def trained(folder: Path, algo: str, task: str, *arguments: str) -> dict[str, float]:
    """Train a short run; its last evaluation as eval.jsonl has it."""
    train(resolve(algo, ["--task", task, *FEW, *arguments]), folder)
    last: dict[str, float] = json.loads((folder / "eval.jsonl").read_text().splitlines()[-1])
    return last


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """A run on a task whose observations are normalised."""
    folder = tmp_path_factory.mktemp("run") / "one"
    last = trained(folder, "ppo", "Pendulum-v1", "--normalize-observation", "--normalize-reward")
    return folder, last


def test_eval_gives_the_numbers_of_training_in_a_new_process(
    run: tuple[Path, dict[str, float]],
) -> None:
    folder, last = run
    shown = run_command(folder.parent, "eval", "one")
    for kind, key in (
        ("deterministic", "eval/mean_reward"),
        ("stochastic", "eval/mean_reward_stochastic"),
    ):
        (line,) = (line for line in shown.splitlines() if line.startswith(kind))
        assert f"mean {last[key]:.8g}  std " in line and line.endswith("episodes 3")
    with redline.benchmark.load(folder) as policy:
        assert np.mean(policy.returns()) == last["eval/mean_reward"]


def run_command(folder: Path, *arguments: str) -> str:
    done = redline_command(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_episode_has_no_spread(
    run: tuple[Path, dict[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["eval", str(run[0]), "--episodes", "1"]) == 0
    assert capsys.readouterr().out.count("std n/a (n=1)  episodes 1") == 2
    assert cli.main(["eval", str(run[0]), "--episodes", "0"]) == 2


def test_actions_are_those_of_the_evaluation(run: tuple[Path, dict[str, float]]) -> None:
    env: Any = gym.make("Pendulum-v1")
    with redline.benchmark.load(run[0], episodes=1) as policy:
        observation, _ = env.reset(seed=10_000_000)
        total, over = 0.0, False
        while not over:
            observation, reward, ended, cut, _ = env.step(policy.act(observation))
            total, over = total + reward, ended or cut
        assert policy.returns() == [total]


def test_a_batch_is_its_rows(run: tuple[Path, dict[str, float]]) -> None:
    observation = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    with redline.benchmark.load(run[0]) as policy:
        rows = np.stack([policy.act(row) for row in observation])
        batch = policy.act(observation)
        assert batch.shape == (4, 1)
        np.testing.assert_allclose(batch, rows, rtol=1e-6, atol=1e-7)
        sampled = [policy.act(observation, np.random.default_rng(seed)) for seed in (1, 1, 2)]
        identical(sampled[0], sampled[1])
        assert (sampled[0] != sampled[2]).all()
        with pytest.raises(ValueError, match=r"have the shape \(3,\).*got \(4,\)"):
            policy.act(np.zeros(4))


def test_acting_never_moves_the_normaliser(run: tuple[Path, dict[str, float]]) -> None:
    observation = np.full(3, 100.0, np.float32)
    with redline.benchmark.load(run[0]) as policy:
        before = policy.act(observation)
        for _ in range(100):
            policy.act(observation)
        identical(policy.act(observation), before)


def test_observations_of_a_discrete_space(tmp_path: Path) -> None:
    trained(tmp_path, "reinforce", "FrozenLake-v1")
    with redline.benchmark.load(tmp_path) as policy:
        assert policy.act(3) in range(4)
        assert policy.act([0, 5, 15]).shape == (3,)


def test_a_checkpoint_with_code_is_refused(
    run: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path(tmp_path / "executed").touch, ())

    (tmp_path / "run.json").write_text((run[0] / "run.json").read_text())
    torch.save({"format": 1, "learner": Malicious()}, tmp_path / "checkpoint.pt")
    with pytest.raises(BadInput, match=r"checkpoint.pt is damaged, or holds code"):
        redline.benchmark.load(tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(pickle.dumps(Malicious(), protocol=2))
    with pytest.raises(BadInput, match=r"checkpoint.pt"):
        redline.benchmark.load(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_what_cannot_be_loaded_is_one_sentence(
    run: tuple[Path, dict[str, float]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer() -> str:
        assert cli.main(["eval", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "holds no run" in answer()
    (tmp_path / "run.json").write_text((run[0] / "run.json").read_text())
    assert "has no checkpoint.pt yet" in answer()
    whole = (run[0] / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    assert "checkpoint.pt" in answer()
    (tmp_path / "checkpoint.pt").write_bytes(b"")
    assert "checkpoint.pt is empty or cut short" in answer()
    state = torch.load(run[0] / "checkpoint.pt", weights_only=True)
    for wrong in ({}, [1], torch.zeros(3), {**state, "format": "a"}):
        torch.save(wrong, tmp_path / "checkpoint.pt")
        assert "checkpoint.pt is no checkpoint of Redline" in answer()
    torch.save({**state, "format": 99}, tmp_path / "checkpoint.pt")
    assert "has format 99" in answer()
    for key in ("learner", "track", "step"):
        torch.save({k: v for k, v in state.items() if k != key}, tmp_path / "checkpoint.pt")
        assert f"does not fit the settings in run.json (KeyError: '{key}')" in answer()


@pytest.mark.parametrize(
    "algo, arguments", [("reinforce", ()), ("ppo", ("--hidden", "8"))], ids=["method", "sizes"]
)
def test_a_checkpoint_of_another_run_is_one_sentence(
    algo: str,
    arguments: tuple[str, ...],
    run: tuple[Path, dict[str, float]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained(tmp_path, algo, "Pendulum-v1", *arguments)
    (tmp_path / "run.json").write_text((run[0] / "run.json").read_text())
    path = tmp_path / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    assert cli.main(["eval", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"redline: {path} belongs to another run than run.json\n"
    # As written before checkpoints named their run.
    torch.save({key: value for key, value in state.items() if key != "hash"}, path)
    assert cli.main(["eval", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"{path} does not fit the settings" in error and error.count("\n") == 1


@pytest.mark.parametrize("change", [{"algo": "nope"}, {"recipe": {"no such": 1}}, {"run": {}}])
def test_settings_that_cannot_be_read_are_one_sentence(
    change: dict[str, Any],
    run: tuple[Path, dict[str, float]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = json.loads((run[0] / "run.json").read_text())
    for key, value in change.items():
        data[key] = {**data[key], **value} if value and isinstance(value, dict) else value
    (tmp_path / "run.json").write_text(json.dumps(data))
    (tmp_path / "checkpoint.pt").write_bytes((run[0] / "checkpoint.pt").read_bytes())
    assert cli.main(["eval", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("fault", [ValueError("tank\nempty"), SystemExit(5)])
def test_an_environment_that_fails_while_playing(
    fault: BaseException,
    run: tuple[Path, dict[str, float]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: Any) -> None:
        raise fault

    monkeypatch.setattr("gymnasium.envs.classic_control.PendulumEnv.step", fail)
    assert cli.main(["eval", str(run[0])]) == 1
    error = capsys.readouterr().err
    assert error.startswith("redline: playing failed: ") and error.count("\n") == 1
