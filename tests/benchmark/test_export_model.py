"""`redline export RUN --hf DIR`, and `redline eval --task TASK` of a model as it is."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import redline.benchmark
from redline.benchmark import cli
from redline.benchmark.arguments import resolve
from redline.benchmark.train import train
from redline.llm_track.models import load_model

TASK = ["--task", "llm:arithmetic"]
FEW = ["--eval-problems", "4", "--eval-samples", "2", "--max-completion", "16"]
PROMPTS = ["482+769=", "111+222="]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of all parameters, of adapters, and of a mixture."""
    root = tmp_path_factory.mktemp("runs")
    sizes = ["--steps", "8", "--evals", "1"]
    groups = ["--groups", "2", "--group-size", "4", "--minibatch-size", "8", "--lr", "1e-3"]
    for name, algo, more in (
        ("whole", "grpo", groups),
        ("adapters", "grpo", [*groups, "--lora", "2"]),
        ("mixture", "cpi", ["--episodes", "8", "--minibatch-size", "8", "--lr", "5e-4"]),
    ):
        train(resolve(algo, [*TASK, *FEW, *sizes, *more]), root / name)
    return root


@pytest.mark.parametrize("name", ["whole", "adapters"])
def test_an_exported_model_answers_as_the_run_does(
    runs: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with redline.benchmark.load(runs / name, 1) as trained:
        answers = trained.complete(PROMPTS)
    out = tmp_path / "model"
    assert cli.main(["export", str(runs / name), "--hf", str(out)]) == 0
    assert f"--model {out}" in capsys.readouterr().out
    before, after = load_model("tiny").model, load_model(str(out)).model
    assert [n for n, _ in after.named_parameters()] == [n for n, _ in before.named_parameters()]
    layer = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(after.get_parameter(layer), before.get_parameter(layer))
    card = (out / "README.md").read_text()
    assert "# tiny after grpo on llm:arithmetic" in card and "| eval/accuracy |" in card
    folder = ["eval", *TASK, *FEW, "--model", str(out)]
    assert cli.main(folder) == 0
    shown = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:])
    last = json.loads((runs / name / "eval.jsonl").read_text().splitlines()[-1])
    assert float(shown["eval/accuracy_greedy"]) == last["eval/accuracy_greedy"]
    assert float(shown["eval/answer_length"]) == pytest.approx(last["eval/answer_length"])
    settings = resolve("grpo", [*TASK, "--model", str(out), *FEW]).language
    from redline.llm_track.assembly import assemble

    parts = assemble(TASK[1], settings, 0)
    rows = parts.generation.prompts(PROMPTS)
    assert parts.generation.texts(parts.generation.complete(parts.policy, rows, 1, None)) == answers


def test_a_model_that_is_there_is_kept(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", str(runs / "whole"), "--hf", str(tmp_path)]
    (tmp_path / "config.json").touch()
    assert cli.main(command) == 2
    assert "holds a model already; use --overwrite" in capsys.readouterr().err
    assert cli.main([*command, "--overwrite"]) == 0


def test_an_untrained_model_has_the_figures_of_a_run_before_its_first_update(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = json.loads((runs / "whole" / "eval.jsonl").read_text().splitlines()[0])
    assert cli.main(["eval", *TASK, *FEW]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "tiny on 4 held-out problems of llm:arithmetic"
    shown = {name: float(value) for name, value in map(str.split, lines)}
    assert shown.keys() == first.keys() - {"step"}
    assert {"eval/accuracy_strict", "eval/accuracy_flexible", "eval/pass@2"} <= shown.keys()
    np.testing.assert_allclose(list(shown.values()), [first[name] for name in shown], rtol=1e-6)


def test_what_cannot_be_had_is_one_sentence(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = tmp_path / "control"
    train(resolve("reinforce", ["--task", "CartPole-v1", "--steps", "64", "--evals", "0"]), control)
    out = ["--hf", str(tmp_path / "out")]
    for arguments, sentence in (
        (["export", str(runs / "whole"), *out, "--csv"], "goes with no other form"),
        (["export", str(tmp_path), *out], "holds no run"),
        (["export", str(control), *out], "CartPole-v1 is no language task"),
        (["export", str(runs / "mixture"), *out], "the policy of cpi is a mixture of models"),
        (["eval", "--task", "CartPole-v1"], "--task must be a language task, such as llm:gsm8k"),
        (["eval", "--task", "llm:arith"], "unknown task 'llm:arith'"),
        (["eval", *TASK, "--model", "./tinny"], "there is no such folder"),
        (["eval", *TASK, "--digits", "99"], "--digits must be from 1 to 15, got 99"),
        (["eval", *TASK, "--eval-samples", "0"], "--eval-samples must be at least 1"),
        (["eval", *TASK, "--steps", "3"], "unknown flag '--steps'"),
    ):
        assert cli.main(arguments) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
