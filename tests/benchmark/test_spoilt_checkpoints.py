"""Checkpoints that a run does not go on from: an older one, or a new start, takes their place."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import CARTPOLE, cut, same_runs

from redline.benchmark import checkpoint
from redline.benchmark.arguments import resolve
from redline.benchmark.train import train


def test_a_new_start_where_it_is_asked_for(tmp_path: Path) -> None:
    arguments = [*CARTPOLE, "--n-steps", "32"]
    train(resolve("ppo", arguments), tmp_path / "whole")
    for flag in ("--no-resume", "--overwrite"):
        cut(resolve("ppo", arguments), tmp_path / flag, 1100)
        train(resolve("ppo", [*arguments, flag]), tmp_path / flag)
        assert "resumed" not in json.loads((tmp_path / flag / "run.json").read_text())
        same_runs(tmp_path / "whole", tmp_path / flag)


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def make_newer(path: Path) -> None:
    torch.save({**torch.load(path, weights_only=True), "format": checkpoint.FORMAT + 1}, path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (damage, "checkpoint.pt is empty or cut short"),
        (make_newer, f"checkpoint.pt has format {checkpoint.FORMAT + 1}, this version of Redline"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_falls_back_to_the_one_before(
    spoil: Callable[[Path], None], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    resolved = resolve("ppo", [*CARTPOLE, "--n-steps", "32"])
    train(resolved, tmp_path / "whole")
    cut(resolved, tmp_path / "cut", 2000)
    spoil(tmp_path / "cut" / checkpoint.NAME)
    train(resolved, tmp_path / "cut")
    assert said in caplog.text
    (resumed,) = json.loads((tmp_path / "cut/run.json").read_text())["resumed"]
    assert 800 <= resumed["step"] < 1600
    same_runs(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("spoil", ["both damaged", "none", "files cut short", "other versions"])
def test_nothing_to_go_on_from_is_a_new_start(spoil: str, tmp_path: Path) -> None:
    resolved = resolve("ppo", [*CARTPOLE, "--n-steps", "32"])
    train(resolved, tmp_path / "whole")
    cut(resolved, tmp_path / "cut", 2000)
    folder = tmp_path / "cut"
    for name in (checkpoint.NAME, checkpoint.PREVIOUS):
        if spoil == "both damaged":
            damage(folder / name)
        elif spoil == "none":
            (folder / name).unlink()
    if spoil == "files cut short":
        (folder / "metrics.jsonl").write_text("")
    if spoil == "other versions":
        record = json.loads((folder / "run.json").read_text())
        record["versions"]["numpy"] = "0.1"
        (folder / "run.json").write_text(json.dumps(record))
    train(resolved, folder)
    assert "resumed" not in json.loads((folder / "run.json").read_text())
    same_runs(tmp_path / "whole", folder)


def test_loading_a_checkpoint_executes_no_code(tmp_path: Path) -> None:
    resolved = resolve("ppo", [*CARTPOLE, "--n-steps", "32"])
    cut(resolved, tmp_path, 2000)

    class Planted:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "planted"),)

    for name in (checkpoint.NAME, checkpoint.PREVIOUS):
        torch.save({"format": 1, "hash": resolved.hash, "progress": Planted()}, tmp_path / name)
    train(resolved, tmp_path)
    assert not (tmp_path / "planted").exists()
