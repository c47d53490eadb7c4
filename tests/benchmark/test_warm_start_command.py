"""`redline warm-start`: a folder that runs start from, and what cannot be trained on."""

import json
from pathlib import Path

import pytest
import torch
from language import micro_llama

from redline.benchmark import cli
from redline.llm_track.characters import character_tokenizer
from redline.llm_track.models import load_model

PAIRS = [{"q": f"{i}+{i}=", "a": f"#{2 * i}"} for i in range(1, 6)]
COLUMNS = ["--prompt-column", "q", "--answer-column", "a"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a file of sums and a small model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    micro_llama().save_pretrained("micro")
    character_tokenizer().save_pretrained("micro")
    return tmp_path


def learn(*more: str) -> int:
    few = ["--steps", "60", "--batch", "5", "--lr", "1e-2"]
    return cli.main(["warm-start", "--data", "sums.jsonl", *COLUMNS, *few, *more])


def test_a_model_learns_a_file_and_runs_start_from_its_folder(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert learn("--model", "micro") == 0
    said = capsys.readouterr().out
    assert said.startswith("60 steps; loss of the last 60: ")
    folder = home / "results" / "warm-start" / "micro"
    assert "model: results/warm-start/micro (redline run ALGO --task TASK --model" in said
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert not list(folder.glob(".*"))
    before, after = load_model("micro").model, load_model(str(folder)).model
    assert not torch.equal(before.lm_head.weight, after.lm_head.weight)
    few = ["--groups", "2", "--group-size", "2", "--steps", "4", "--max-completion", "4"]
    few += ["--eval-problems", "2", "--eval-samples", "1", "--evals", "1"]
    run = ["run", "grpo", "--task", "llm:arithmetic", *few, "--out", "run"]
    assert cli.main([*run, "--model", str(folder)]) == 0
    assert json.loads((home / "run" / "run.json").read_text())["status"] == "done"


def test_the_same_seed_gives_the_same_bits(home: Path) -> None:
    for out, seed in (("one", "3"), ("two", "3"), ("three", "4")):
        assert learn("--model", "micro", "--steps", "5", "--seed", seed, "--out", out) == 0
    one, two, three = (load_model(name).model.lm_head.weight for name in ("one", "two", "three"))
    assert torch.equal(one, two) and not torch.equal(one, three)


def test_the_tiny_model_made_again_loads_as_a_folder(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["warm-start", "--steps", "2", "--out", "again"]
    assert cli.main(again) == 0
    # Two steps are not what the one that ships was made with: nothing to compare.
    assert "ships" not in capsys.readouterr().out
    made, shipped = load_model("again"), load_model("tiny")
    assert made.context == shipped.context and made.model.lm_head.weight.shape == (98, 128)
    assert made.tokenizer.prompt("4+3=") == shipped.tokenizer.prompt("4+3=")
    assert made.model.lm_head.weight is made.model.model.embed_tokens.weight
    assert cli.main(again) == 2
    assert "again holds a model already; use --overwrite" in capsys.readouterr().err
    assert cli.main([*again, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--data none.jsonl", "none.jsonl cannot be read: No such file or directory"),
        ("--data sums.jsonl", "sums.jsonl, line 1 has no column 'prompt'; it has q, a"),
        ("--data empty.jsonl", "empty.jsonl is empty: it holds no demonstrations"),
        ("--data sums.jsonl {columns} --model tinny", "model 'tinny' cannot be loaded"),
        ("--data sums.jsonl {columns} --model ./tinny", "model './tinny': there is no such folder"),
        ("--data long.jsonl {columns}", "has 603 tokens and the model's context is 512"),
        ("--data greek.jsonl {columns}", "the tokenizer has no token for a part of 'π'"),
        ("--data sums.jsonl {columns} --lr 1e30 --steps 60", "the loss is nan at step"),
        ("--data sums.jsonl {columns} --out empty.jsonl/out", "cannot write to empty.jsonl/out"),
        ("--data sums.jsonl --device gpu {columns}", "device 'gpu' cannot be used"),
        ("--dtype float16", "--dtype must be one of float32, bfloat16, float64, got 'float16'"),
        ("--model micro", "--model needs --data FILE: without a file the tiny model that ships"),
        ("--answer-column a", "--answer-column needs --data FILE"),
        ("--steps 0", "--steps must be at least 1, got 0"),
        ("--batch 0", "--batch must be at least 1, got 0"),
        ("--lr nan", "--lr must be above 0 and finite, got nan"),
        ("--seed -1", "--seed must be at least 0, got -1"),
        ("--date sums.jsonl", "unknown flag '--date'; nearest: --data"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: str,
    sentence: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("socket.create_connection", offline)
    monkeypatch.setattr("redline.llm_track.pretrained.getproxies", dict)
    (home / "empty.jsonl").write_text("\n")
    (home / "long.jsonl").write_text(json.dumps({"q": "1" * 600, "a": "#2"}))
    (home / "greek.jsonl").write_text(json.dumps({"q": "π", "a": "#2"}))
    filled = arguments.format(columns=" ".join(COLUMNS)).split()
    assert cli.main(["warm-start", *filled]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.startswith("redline: ") and error.count("\n") == 1
    assert not list(home.rglob("*.tmp")) and not list(home.glob("results/**/*.safetensors"))
