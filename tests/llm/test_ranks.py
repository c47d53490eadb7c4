"""Several processes that train one model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command import REDLINE
from launched import FSDP, together
from runs import rows

from redline.benchmark import cli
from redline.llm_track.ranks import ALONE, Ranks, RanksError, join

HELPERS = Path(__file__).parents[1] / "helpers"
# Of the page that tells how to launch.
PAGE = (Path(__file__).parents[2] / "docs/gpu-and-cluster.md").read_text(encoding="utf-8")
CONFIGURATIONS = dict(re.findall(r"```yaml\n# (\w+)\.yaml:[^\n]*\n(.*?)```", PAGE, re.DOTALL))
RUN = ["run", "grpo", "--task", "llm:arithmetic", "--steps", "64", "--groups", "8"]
RUN += ["--group-size", "4", "--minibatch-size", "16", "--eval-problems", "8", "--evals", "1"]


def test_rows_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    for rank, ended in enumerate(together(tmp_path, sys.executable, HELPERS / "two_ranks.py")):
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == f"same {rank}\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    assert subprocess.run([REDLINE, *RUN, "--out", folder], capture_output=True).returncode == 0
    return folder


@pytest.mark.slow  # a quarter of a minute each
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_a_run_of_two_processes_is_that_of_one(name: str, alone: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIGURATIONS[name])
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "config.yaml"]
    ended = subprocess.run(
        [*launch, REDLINE, *RUN, "--out", "two"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    # One of them speaks and writes.
    assert ended.stdout.count("eval/accuracy_greedy") == 1
    record = json.loads((tmp_path / "two/run.json").read_text())
    assert record["processes"] == 2 and record.get("sharded", False) == (name == "fsdp2")
    for file in ("metrics.jsonl", "eval.jsonl"):
        one, two = (rows(folder / file) for folder in (alone, tmp_path / "two"))
        assert len(one) == len(two) > 1
        for expected, found in zip(one, two, strict=True):
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_rows_are_dealt_out_once() -> None:
    dealt = [Ranks(rank, 3).rows(7).tolist() for rank in range(3)]
    assert sorted(row for rows_of in dealt for row in rows_of) == list(range(7))
    assert dealt[1] == [1, 4]
    mask = torch.ones(7, 2, dtype=torch.bool)
    own = [Ranks(rank, 3).own(mask) for rank in range(3)]
    assert sum(part.int() for part in own).eq(1).all()  # type: ignore[union-attr]
    assert ALONE.own(mask) is mask and ALONE.rows(3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed is not supported"),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, "mixed_precision must be 'no' .* got 'bf16'"),
        ({"ACCELERATE_USE_FSDP": "true"}, "fsdp_version must be 2 .* got 1"),
        (FSDP | {"FSDP_OFFLOAD_PARAMS": "true"}, "fsdp_offload_params must be false"),
    ],
)
def test_what_a_configuration_cannot_ask_for(
    configured: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert join("cpu") is ALONE
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in configured.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RanksError, match=said):
        join("cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "ppo", "--task", "CartPole-v1"],
        ["run", "sb3:ppo", "--task", "CartPole-v1"],
        ["matrix", "demo"],
        ["warm-start"],
    ],
    ids=" ".join,
)
def test_what_one_process_does_is_refused_to_several(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert "runs in one process, and 2 were launched" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
