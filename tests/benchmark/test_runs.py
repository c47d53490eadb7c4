"""A run folder: one writer at a time, and nothing that is there is lost."""

import errno
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from redline.benchmark import cli, files, run_record
from redline.benchmark.arguments import resolve
from redline.benchmark.config import Resolved
from redline.benchmark.errors import BadInput
from redline.benchmark.run_record import record_failure
from redline.benchmark.runs import is_done, read_run
from redline.benchmark.writing import RunFolder

TASK = ["--task", "CartPole-v1", "--steps", "100", "--evals", "1", "--eval-episodes", "1"]


def settings(*arguments: str) -> Resolved:
    return resolve("reinforce", [*TASK, *arguments])


def command(folder: Path, *arguments: str) -> list[str]:
    return ["run", "reinforce", *TASK, "--out", str(folder), *arguments]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture
def trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main(command(tmp_path / "one")) == 0
    capsys.readouterr()
    return tmp_path / "one"


def test_one_writer_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(tmp_path, settings())
    run.log_eval(0, {"eval/mean_reward": 1.0})
    before = contents(tmp_path)
    assert cli.main(command(tmp_path, "--overwrite")) == 2
    assert capsys.readouterr().err == f"redline: another process is writing to {tmp_path}\n"
    assert not record_failure(tmp_path, settings(), "no", "")
    assert contents(tmp_path) == before
    run.finish("done", final={})
    RunFolder(tmp_path, settings()).finish("done", final={})


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.pt.123.tmp").touch()
    RunFolder(tmp_path, settings()).finish("done", final={})
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError), files.replacing(path) as temporary:
        assert str(os.getpid()) in temporary.name
        temporary.write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"] and path.read_text() == "old"


@pytest.mark.parametrize(
    "name", ["checkpoint.pt", "metrics.jsonl", "eval.jsonl", "events.out.tfevents.1.x", "run.json"]
)
def test_files_of_no_readable_run_are_kept(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert cli.main(command(tmp_path)) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / name) in error and "--overwrite" in error and error.count("\n") == 1
    assert contents(tmp_path) == {name: b"mine"}
    assert cli.main(command(tmp_path, "--overwrite")) == 0
    assert is_done(tmp_path, settings())


def test_a_damaged_record_is_not_trained_again_unasked(trained: Path) -> None:
    (trained / "run.json").write_text("{")
    with pytest.raises(BadInput, match=r"run\.json is no readable record of a run; --overwrite"):
        is_done(trained, settings())


def test_a_run_that_was_interrupted_is_done_again(trained: Path) -> None:
    text = (trained / "run.json").read_text()
    (trained / "run.json").write_text(text.replace('"done"', '"running"'))
    assert cli.main(command(trained)) == 0
    assert is_done(trained, settings())


def test_an_empty_folder_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "reinforce", *TASK, "--out", ""]) == 2
    assert capsys.readouterr().err == "redline: --out must be a folder, got ''\n"


@pytest.mark.parametrize(
    "change", [{"run": 4}, {"recipe": None}, {"hash": 1}, {"versions": []}, {"wall_seconds": "x"}]
)
def test_a_record_of_wrong_types_is_no_record(change: dict[str, Any], trained: Path) -> None:
    data = json.loads((trained / "run.json").read_text())
    assert read_run(trained) == data
    (trained / "run.json").write_text(json.dumps({**data, **change}))
    assert read_run(trained) is None


@pytest.mark.parametrize("text", ["{}", "null", "[]", "4", "", "[" * 100_000, "\udcff"])
def test_what_is_no_record(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_run(tmp_path) is None


def test_a_failure_before_the_start_spoils_no_run(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> None:
        raise MemoryError("too large\nby far")

    before = contents(trained)
    monkeypatch.setattr("redline.benchmark.train.make_track", fail)
    for more in ([], ["--hidden", "7"]):
        assert cli.main(command(trained, "--overwrite", *more)) == 1
        error = capsys.readouterr().err
        assert error == (
            "redline: the run failed: MemoryError: too large "
            f"(before it began; {trained} is as it was)\n"
        )
    assert contents(trained) == before
    assert cli.main(command(trained.parent / "new")) == 1
    assert "new/run.json holds the traceback" in capsys.readouterr().err
    assert "by far" in json.loads((trained.parent / "new/run.json").read_text())["traceback"]


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = run_record.write

    def full(folder: Path, resolved: Resolved, status: str, *rest: Any, **more: Any) -> None:
        if status != "running":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, resolved, status, *rest, **more)

    monkeypatch.setattr(run_record, "write", full)
    assert cli.main(command(tmp_path)) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.count("No space left on device") == 2
    # The folder was let go, and what was computed is there.
    files.Hold(tmp_path).release()
    assert contents(tmp_path).keys() >= {"checkpoint.pt", "metrics.jsonl", "run.json"}
    assert not [name for name in contents(tmp_path) if "tmp" in name]


def test_a_checkpoint_that_does_not_fit_on_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Past the limit the system refuses to write, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        assert cli.main(command(tmp_path)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    error = capsys.readouterr().err
    assert "OSError: [Errno 27] File too large" in error and error.count("\n") == 1
    assert read_run(tmp_path) is not None and not list(tmp_path.glob(".*.tmp"))


class Leaves(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole that ends the interpreter, or tries to."""

    def step(self, action: Any) -> Any:
        raise SystemExit(5)


@pytest.fixture
def leaving() -> Iterator[str]:
    gym.register("Leaves-v0", lambda **_: Leaves(gym.make("CartPole-v1")))
    yield "Leaves-v0"
    del gym.registry["Leaves-v0"]


def test_an_environment_that_exits_fails_its_run(
    leaving: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command(tmp_path, "--task", leaving)) == 1
    error = capsys.readouterr().err
    assert "the run failed: " in error and "SystemExit: 5" in error and error.count("\n") == 1
    data = json.loads((tmp_path / "run.json").read_text())
    assert data["status"] == "failed" and "SystemExit" in data["traceback"]


def test_a_record_is_valid_json(tmp_path: Path) -> None:
    RunFolder(tmp_path, settings()).finish("done", final={"a": float("nan"), "b": 1.5})
    text = (tmp_path / "run.json").read_text()
    assert "NaN" not in text and json.loads(text)["final"] == {"a": None, "b": 1.5}
