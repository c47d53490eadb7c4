"""Streams that are gone, and what else surrounds a command."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import REDLINE, unpinned

from redline.benchmark import cli
from redline.benchmark.launchers import LocalPool
from redline.benchmark.suite import cells
from redline.benchmark.suite_files import read

SUITE = """
tasks = ["CartPole-v1"]
seeds = [0, 1]
algorithms = ["reinforce"]

[settings]
steps = 20
evals = 1
eval_episodes = 1
"""


def shell(folder: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which $R is the command; the exit code is that of the command."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**unpinned(), "R": str(REDLINE), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "redirection", ["2>/dev/full", "2>&-", "2>&1 | head -1", "> >(head -c 1) 2>&1", ">&- 2>&-"]
)
def test_a_matrix_goes_on_when_nobody_can_read_it(redirection: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SUITE)
    shown = shell(tmp_path, f"$R matrix small.toml --out out {redirection}")
    found = [json.loads(path.read_text())["status"] for path in tmp_path.rglob("run.json")]
    assert found == ["done", "done"]
    assert "Traceback" not in shown.stderr + shown.stdout


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("$R list suites >&-", 0, ""),
        ("$R --help >/dev/full", 1, "redline: No space left on device\n"),
        ("$R list >/dev/full", 1, "redline: No space left on device\n"),
        ("$R list nothing 2>/dev/full", 2, ""),
        ("$R list suites >&- 2>&-", 0, ""),
    ],
)
def test_streams_that_cannot_be_written(line: str, code: int, error: str, tmp_path: Path) -> None:
    shown = shell(tmp_path, line)
    assert (shown.returncode, shown.stderr) == (code, error)


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SUITE)
    line = "$R matrix small.toml --out out && $R report out && $R list"
    shown = shell(tmp_path, line, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0 and "2 of 2 runs complete" in shown.stdout


def test_a_folder_that_was_deleted(tmp_path: Path) -> None:
    shown = shell(tmp_path, "mkdir gone && cd gone && rmdir ../gone && $R list suites")
    assert shown.returncode == 2 and shown.stderr.startswith("redline: the current folder does not")
    assert shown.stderr.count("\n") == 1


def test_an_argument_that_is_no_text(tmp_path: Path) -> None:
    shown = shell(tmp_path, "$R run ppo --task $'\\xff'")
    assert shown.returncode == 2 and shown.stderr.count("\n") == 1
    assert "'\\udcff' is not valid UTF-8 text" in shown.stderr


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "redline" and version[0].isdigit()


def test_a_worker_that_cannot_be_started_fails_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SUITE)
    todo = cells(read(str(tmp_path / "small.toml")), tmp_path / "out")

    def refuse(*arguments: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess._Popen", refuse)
    with LocalPool(1) as workers:
        outcomes = [outcome for _, outcome in workers.run(todo, lambda steps: None)]
    assert [outcome.error for outcome in outcomes] == [
        "BlockingIOError: [Errno 11] Resource temporarily unavailable"
    ] * 2


def test_handlers_and_streams_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM), sys.stdout, sys.stderr
    assert cli.main(["rnu"]) == 2
    assert before == (signal.getsignal(signal.SIGTERM), sys.stdout, sys.stderr)
