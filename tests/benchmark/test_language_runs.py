"""Runs on language tasks through the loop, the files and the commands of every run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import redline as redline_command

import redline.benchmark
from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.train import train

TASK = "llm:arithmetic"
FEW = ["--steps", "16", "--evals", "1", "--eval-problems", "4", "--eval-samples", "2"]
SIZES = {
    "grpo": ["--groups", "4", "--group-size", "2", "--minibatch-size", "4"],
    "reinforce": ["--episodes", "8"],
    "cpi": ["--episodes", "8", "--minibatch-size", "4", "--lr", "5e-4", "--holdout", "0.5"],
    "trpo": ["--episodes", "8", "--fisher-rows", "4", "--cg-iterations", "2"],
}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of every method in `SIZES`: two updates of eight completions."""
    root = tmp_path_factory.mktemp("runs")
    for name, sizes in SIZES.items():
        train(resolve(name, ["--task", TASK, *FEW, *sizes, "--seed", "1000"]), root / name)
    return root


@pytest.mark.parametrize("name", SIZES)
def test_a_run_writes_what_every_run_writes(runs: Path, name: str) -> None:
    folder = runs / name
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "done" and record["run"]["model"] == "tiny"
    assert "n_envs" not in record["run"]
    first, last = rows(folder / "eval.jsonl")
    assert (first["step"], last["step"]) == (0, 16)
    assert {"eval/accuracy", "eval/accuracy_greedy", "eval/pass@2"} <= last.keys()
    assert record["final"] == {key: value for key, value in last.items() if key != "step"}
    updates = rows(folder / "metrics.jsonl")
    assert [(row["step"], row["update"]) for row in updates] == [(8, 1), (16, 2)]
    assert {"llm/accuracy", "llm/answer_length", "llm/group_all_right"} <= updates[0].keys()
    assert {"train/kl", "rollout/ep_rew_mean", "time/fps"} <= updates[0].keys()
    assert updates[0]["rollout/ep_rew_mean"] == updates[0]["llm/accuracy"]
    assert ("train/value_loss" in updates[0]) == (name in ("trpo", "cpi"))


def test_golds_that_cannot_be_read_are_named_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sums.jsonl"
    golds = ["???" if n % 4 == 0 else str(2 * n) for n in range(400)]
    asked = [{"question": f"{n}+{n}", "answer": gold} for n, gold in enumerate(golds)]
    file.write_text("".join(json.dumps(row) + "\n" for row in asked))
    sizes = ["--prompt", "equals", "--max-completion", "4", "--stale", "1", *SIZES["grpo"]]
    resolved = resolve("grpo", ["--task", f"llm:{file}", *FEW, *sizes])
    train(resolved, tmp_path / "out")
    path = tmp_path / "out/run.json"
    record = json.loads(path.read_text())
    found = record["left_out"]
    assert set(found["first"].values()) == {"???"} and len(found["first"]) == found["count"] > 1
    # A run that goes on names those from before the cut too.
    path.write_text(json.dumps({**record, "status": "running"}))
    state = torch.load(tmp_path / "out/checkpoint.pt", weights_only=True)
    state["progress"]["left_out"]["before.jsonl, row 1"] = "!!!"
    torch.save(state, tmp_path / "out/checkpoint.pt")
    train(resolved, tmp_path / "out")
    again = json.loads(path.read_text())
    assert again["status"] == "done" and again["left_out"]["first"]["before.jsonl, row 1"] == "!!!"
    assert cli.main(["report", str(tmp_path / "out")]) == 0
    shown, text = capsys.readouterr().out, (tmp_path / "out/report.md").read_text()
    count = again["left_out"]["count"]
    for where in (shown, text):
        assert f"{count} questions are never asked, for their gold answer cannot be read" in where
        assert " sums.jsonl, row " in where and "('???')" in where


def test_metrics_of_the_rollout_reach_tensorboard(runs: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(runs / "grpo"))
    events.Reload()
    shown = [(event.step, event.value) for event in events.Scalars("llm/accuracy")]
    assert shown == [(r["step"], r["llm/accuracy"]) for r in rows(runs / "grpo/metrics.jsonl")]
    assert {"eval/accuracy", "eval/accuracy_greedy", "train/kl"} <= set(events.Tags()["scalars"])


def test_the_same_seed_gives_the_same_run(runs: Path, tmp_path: Path) -> None:
    arguments = ["--task", TASK, *FEW, *SIZES["grpo"], "--seed"]
    train(resolve("grpo", [*arguments, "1000"]), tmp_path / "again")
    train(resolve("grpo", [*arguments, "1001"]), tmp_path / "other")

    def learned(folder: Path) -> list[dict[str, Any]]:
        found = rows(folder / "metrics.jsonl")
        return [{k: v for k, v in r.items() if not k.startswith(("time/", "mem"))} for r in found]

    assert learned(tmp_path / "again") == learned(runs / "grpo") != learned(tmp_path / "other")


def test_eval_gives_the_numbers_of_training_in_a_new_process(runs: Path) -> None:
    last = rows(runs / "trpo" / "eval.jsonl")[-1]
    done = redline_command(runs, "eval", "trpo")
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    assert title == "trpo llm:arithmetic seed=1000 at step 16"
    shown = dict(line.split(" ") for line in lines)
    assert shown == {name: f"{value:.8g}" for name, value in last.items() if name != "step"}


def test_a_run_is_loaded_with_what_it_learned(runs: Path) -> None:
    first, last = rows(runs / "grpo" / "eval.jsonl")
    with redline.benchmark.load(runs / "grpo") as model:
        assert model.step == 16
        assert {"step": 16, **model.evaluate()} == last != {**first, "step": 16}
        prompts = ["123+456=", "999+111="]
        both = model.complete(prompts)
        assert both == [model.complete([text])[0] for text in prompts]
        assert all("#" in text for text in both)
        drawn = [model.complete(prompts * 8, np.random.default_rng(seed)) for seed in (0, 0, 1)]
        assert drawn[0] == drawn[1] != drawn[2]
    with redline.benchmark.load(runs / "grpo", episodes=2) as model:
        assert len(model.evaluate()) == len(last) - 1
        assert 2 * model.evaluate()["eval/accuracy_greedy"] in (0.0, 1.0, 2.0)


def test_a_mixture_of_language_models_is_loaded(runs: Path) -> None:
    first, last = rows(runs / "cpi" / "eval.jsonl")
    assert 0.0 < rows(runs / "cpi" / "metrics.jsonl")[-1]["train/mixture_alpha"] < 1.0
    with redline.benchmark.load(runs / "cpi") as model:
        assert {"step": 16, **model.evaluate()} == last != {**first, "step": 16}
        assert "#" in model.complete(["123+456="])[0]


def test_a_checkpoint_holds_the_parameters_and_their_optimiser_alone(runs: Path) -> None:
    path = runs / "grpo" / "checkpoint.pt"
    size = torch.load(path, weights_only=True)["learner"]["parameters"].nbytes
    assert size > 2_500_000
    assert 3 * size <= path.stat().st_size < 3.1 * size


def test_narrow_parameters_come_back(tmp_path: Path) -> None:
    arguments = ["--task", TASK, *FEW, *SIZES["grpo"], "--dtype", "bfloat16"]
    last = train(resolve("grpo", arguments), tmp_path)
    with redline.benchmark.load(tmp_path) as model:
        assert model.evaluate() == last


def test_what_a_language_run_cannot_do_is_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs / "grpo")
    for arguments, sentence in (
        (["watch", run], "llm:arithmetic is a language task, which gives no pictures"),
        (["eval", run, "--seed", "3"], "the held-out problems of llm:arithmetic are fixed"),
    ):
        assert cli.main(arguments) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1


def test_run_shows_accuracies_and_a_done_run_is_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "grpo", "--task", TASK, *FEW, *SIZES["grpo"], "--out", str(tmp_path / "run")]
    assert cli.main(command) == 0
    last = rows(tmp_path / "run" / "eval.jsonl")[-1]
    assert capsys.readouterr().out.splitlines() == [
        f"eval/accuracy {last['eval/accuracy']:.3f}",
        f"eval/accuracy_greedy {last['eval/accuracy_greedy']:.3f}",
        f"run: {tmp_path / 'run'}",
    ]
    assert cli.main(command) == 0
    assert "is complete already" in capsys.readouterr().out
    assert cli.main([*command, "--temperature", "0.8"]) == 2
    assert "temperature 1.0 -> 0.8" in capsys.readouterr().err
