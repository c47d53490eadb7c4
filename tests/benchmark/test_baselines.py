"""External baselines are recorded, evaluated and loaded like runs of ours."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import toys  # noqa: F401  (registers Toy*)
from closeness import identical
from command import redline as redline_command

import redline.benchmark
from redline.benchmark import checkpoint
from redline.benchmark.arguments import from_record, resolve
from redline.benchmark.baselines import catalogue
from redline.benchmark.baselines.training import parts, translated
from redline.benchmark.errors import BadInput
from redline.benchmark.loggers import read_rows
from redline.benchmark.train import train

FEW = ("--steps", "256", "--evals", "2", "--eval-episodes", "3")
SMALL = ("--n-steps", "64", "--n-envs", "2", "--hidden", "8", "8")
NORMALIZED = ("--normalize-observation", "--normalize-reward")
PENDULUM = ("--task", "Pendulum-v1", *FEW, *SMALL, *NORMALIZED)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PPO on a task whose observations and rewards are normalised."""
    folder = tmp_path_factory.mktemp("run") / "one"
    train(resolve("sb3:ppo", PENDULUM), folder)
    return folder


def rows(path: Path) -> list[dict[str, Any]]:
    kept = ("time/", "memory/")
    return [{k: v for k, v in row.items() if not k.startswith(kept)} for row in read_rows(path)]


def test_the_record_is_that_of_every_run(run: Path) -> None:
    data = json.loads((run / "run.json").read_text())
    assert (data["status"], data["algo"]) == ("done", "sb3:ppo")
    assert {"stable-baselines3", "sb3-contrib"} <= data["versions"].keys()
    assert from_record(data).hash == data["hash"]
    assert [row["step"] for row in rows(run / "eval.jsonl")] == [0, 128, 256]
    assert [(row["step"], row["update"]) for row in rows(run / "metrics.jsonl")] == [
        (128, 1),
        (256, 2),
    ]
    assert list(run.glob("events.out.tfevents.*"))


def test_returns_are_raw_and_each_update_has_its_own_metrics(tmp_path: Path) -> None:
    arguments = ["--task", "ToyEnds-v0", *FEW, *SMALL, *NORMALIZED]
    train(resolve("sb3:ppo", arguments), tmp_path)
    first, second = rows(tmp_path / "metrics.jsonl")
    assert (first["rollout/ep_rew_mean"], first["rollout/ep_len_mean"]) == (3.0, 3.0)
    assert first["train/value_loss"] != second["train/value_loss"]
    assert 0 < first["train/entropy"] <= np.log(2) and first["train/learning_rate"] == 3e-4
    assert first["sb3/n_updates"] == 10 and second["sb3/n_updates"] == 20
    (last,) = {row["eval/mean_reward"] for row in read_rows(tmp_path / "eval.jsonl")}
    assert last == 3.0


def test_only_what_means_the_same_has_a_name_of_ours() -> None:
    logged = {
        "train/learning_rate": 0.1,
        "train/approx_kl": 0.2,
        "train/value_loss": 0.3,
        "train/explained_variance": 0.4,
        "train/entropy_loss": -0.5,
        "train/clip_fraction": 0.6,
        "train/kl_divergence_loss": 0.7,
        "train/is_line_search_success": np.True_,
        "train/loss": 0.8,
    }
    assert translated(logged) == {
        "train/learning_rate": 0.1,
        "train/approx_kl": 0.2,
        "train/value_loss": 0.3,
        "train/explained_variance": 0.4,
        "train/entropy": 0.5,
        "sb3/clip_fraction": 0.6,
        "sb3/kl_divergence_loss": 0.7,
        "train/step_accepted": 1.0,
        "sb3/loss": 0.8,
    }


@pytest.mark.parametrize("algo", catalogue.names())
def test_the_same_seed_gives_the_same_numbers(algo: str, tmp_path: Path) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        torch.manual_seed(len(list(tmp_path.iterdir())))  # whatever ran before
        train(resolve(algo, [*PENDULUM, "--seed", seed]), tmp_path / name)
    for file in ("metrics.jsonl", "eval.jsonl"):
        a, b, c = (rows(tmp_path / name / file) for name in "abc")
        assert a == b and a != c


def test_the_evaluation_is_ours_with_frozen_statistics(run: Path) -> None:
    """Their own predict() under their own VecNormalize, on our seeds, gives our numbers."""
    last = rows(run / "eval.jsonl")[-1]["eval/mean_reward"]
    learned, track = parts(from_record(json.loads((run / "run.json").read_text())))
    state = checkpoint.load(run)
    learned.load_state_dict(state["learner"])
    track.load_state_dict(state["track"])
    venv: Any = track.sampler
    venv.env.training, venv.env.norm_reward = False, False
    assert venv.env.obs_rms.count > 256 and np.abs(venv.env.obs_rms.mean).max() > 0.01
    before = venv.state_dict()
    totals = []
    for seed in range(10_000_000, 10_000_003):
        env: Any = gym.make("Pendulum-v1")
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            seen = venv.env.normalize_obs(observation).astype(np.float32)
            action, _ = learned.method.predict(seen, deterministic=True)
            observation, reward, ended, cut, _ = env.step(action)
            total, over = total + float(reward), ended or cut
        totals.append(total)
    assert np.mean(totals) == pytest.approx(last, rel=1e-5)
    assert track.evaluate(learned.policy)["eval/mean_reward"] == last
    for name, moments in venv.state_dict().items():
        identical(moments["mean"], before[name]["mean"])
    track.close()


def test_a_run_is_played_again_in_a_new_process_and_from_python(run: Path) -> None:
    last = rows(run / "eval.jsonl")[-1]
    shown = redline_command(run.parent, "eval", "one")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("sb3:ppo Pendulum-v1 seed=0 at step 256\n")
    for key in ("eval/mean_reward", "eval/mean_reward_stochastic"):
        assert f"mean {last[key]:.8g} " in shown.stdout
    with redline.benchmark.load(run) as policy:
        assert np.mean(policy.returns()) == last["eval/mean_reward"]
        assert policy.act(np.zeros(3, np.float32)).shape == (1,)


def test_a_checkpoint_that_does_not_fit_is_one_sentence(run: Path, tmp_path: Path) -> None:
    data = json.loads((run / "run.json").read_text())
    data["run"]["hidden"] = [4]
    (tmp_path / "run.json").write_text(json.dumps(data))
    (tmp_path / "checkpoint.pt").write_bytes((run / "checkpoint.pt").read_bytes())
    with pytest.raises(BadInput, match=r"does not fit the settings in run.json") as caught:
        redline.benchmark.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_actions_that_do_not_count_from_0(tmp_path: Path) -> None:
    """The environment asserts that it gets 1, 2 or 3."""
    train(resolve("sb3:a2c", ["--task", "ToyGrid-v0", *FEW]), tmp_path)
    assert rows(tmp_path / "eval.jsonl")[-1]["eval/mean_reward"] == 3.0
