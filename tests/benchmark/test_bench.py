"""What `redline bench` times, refuses and writes."""

import json
import math
import platform
import subprocess
import sys

import pytest
import torch

from redline.benchmark import checkpoint, cli, writing
from redline.benchmark.bench import comparisons, control, update
from redline.benchmark.bench.comparisons import ROWS
from redline.benchmark.bench.control import Measured, Pair, Timed
from redline.envs.track import ControlTrack

NAMES = [
    "ppo/CartPole-v1/zoo",
    "ppo/CartPole-v1/sb3-default",
    "trpo/CartPole-v1/contrib-default",
    "ppo/HalfCheetah-v5/sb3-default",
    "trpo/HalfCheetah-v5/contrib-default",
]
ZOO = NAMES[0]
CONTROL_KEYS = {"name", "ratio_median", "ratio_min", "ratio_max", "repeats"}


def test_the_rows_are_these_in_this_order():
    assert [row.name for row in ROWS] == NAMES
    assert [row.steps for row in ROWS] == [50_000] * 3 + [40_960] * 2
    assert [row.n_envs for row in ROWS] == [8, 1, 1, 1, 1]
    assert comparisons.chosen([NAMES[3], ZOO]) == [ROWS[0], ROWS[3]]


def a_run(seconds, steps=1000, start=20.0, end=100.0):
    return Timed(seconds, steps, start, end)


def test_a_row_is_their_time_divided_by_ours():
    repeats = [Pair(a_run(2.0), a_run(6.0)), Pair(a_run(1.0), a_run(5.0)), Pair(a_run(1), a_run(9))]
    assert Measured(ROWS[0], repeats).row() == {
        "name": ZOO,
        "ratio_median": 5.0,
        "ratio_min": 3.0,
        "ratio_max": 9.0,
        "repeats": 3,
    }
    assert a_run(2.0, steps=1000).per_step == pytest.approx(2000.0)


def test_start_and_end_of_a_run_are_tenths_of_its_episodes():
    assert control.ends([1.0, 3.0, *[50.0] * 16, 7.0, 9.0]) == (2.0, 8.0)
    assert control.ends([4.0, 5.0]) == (4.0, 5.0)
    assert all(map(math.isnan, control.ends([])))


class Fake:
    """A contestant on a clock of its own: 100 s to build, 3 to learn, 50 to close."""

    def __init__(self, name, clock, calls):
        self.name, self.clock, self.calls = name, clock, calls
        self.steps, self.returns = 10, [1.0]

    def __call__(self, resolved, stack):
        self.clock[0] += 100.0
        self.calls.append((self.name, resolved.run.seed, resolved.run.steps))
        stack.callback(lambda: self.clock.__setitem__(0, self.clock[0] + 50.0))
        return self

    def learn(self):
        self.clock[0] += 3.0


def test_sides_alternate_after_a_warm_up_and_only_learning_is_timed(monkeypatch):
    clock, calls = [0.0], []
    monkeypatch.setattr(control.time, "process_time", lambda: clock[0])
    both = (Fake("ours", clock, calls), Fake("theirs", clock, calls))
    found = list(control.pairs(ROWS[0], 3, sides=both))
    assert calls[:2] == [("ours", 0, 2048), ("theirs", 0, 2048)]
    order = [name for name, _, _ in calls[2:]]
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert [seed for _, seed, _ in calls[2:]] == [0, 0, 1, 1, 2, 2]
    assert {steps for _, _, steps in calls[2:]} == {50_000}
    assert [(pair.ours.seconds, pair.theirs.seconds) for pair in found] == [(3.0, 3.0)] * 3


def test_our_timed_part_logs_every_update_and_neither_evaluates_nor_saves(monkeypatch):
    logged = []
    log = writing.RunFolder.log

    def counted(self, *args):
        logged.append(self._views)
        log(self, *args)

    def never(*args):
        raise AssertionError("not a part of learning")

    monkeypatch.setattr(writing.RunFolder, "log", counted)
    monkeypatch.setattr(ControlTrack, "evaluate", never)
    monkeypatch.setattr(checkpoint, "save", never)
    found = control.timed(control.redline, ROWS[0].resolved(0, 1024))
    assert found.steps == 1024 and len(logged) == 4 and None not in logged
    assert found.start > 5


def test_control_end_to_end(tmp_path, capsys):
    table, report = tmp_path / "control.json", tmp_path / "control.md"
    arguments = ["--only", ZOO, "--steps", "300", "--repeats", "1"]
    files = ["--json", str(table), "--report", str(report)]
    assert cli.main(["bench", "control", *arguments, *files]) == 0
    (row,) = json.loads(table.read_text())
    assert set(row) == CONTROL_KEYS
    assert (row["name"], row["repeats"]) == (ZOO, 1)
    assert row["ratio_min"] == row["ratio_median"] == row["ratio_max"] > 0
    shown, text = capsys.readouterr().out, report.read_text()
    assert f"{ZOO} 1/1: redline" in shown and f"| {ZOO} | {row['ratio_median']:.2f} [" in text
    assert "redline bench control --repeats 1 --steps 300 --only ppo/CartPole-v1/zoo" in text
    for part in (f"torch {torch.__version__}", "n_steps 32", "lr 0.001", " cores, "):
        assert part in text
    for private in (str(tmp_path), platform.node(), "/tmp"):
        assert private not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["control.json", "control.md"]


def test_an_interruption_keeps_the_rows_that_are_complete(tmp_path, monkeypatch):
    def pairs(comparison, repeats, steps):
        yield Pair(a_run(1.0), a_run(4.0))
        if comparison is not ROWS[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(control, "pairs", pairs)
    table = tmp_path / "control.json"
    assert cli.main(["bench", "control", "--json", str(table)]) == 130
    assert [row["name"] for row in json.loads(table.read_text())] == [ZOO]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("nothing", "unknown part 'nothing'"),
        ("control --only ppo/CartPole", "unknown row 'ppo/CartPole'; nearest: ppo/CartPole-v1/zoo"),
        ("control --repeats 0", "repeats must be at least 1, got 0"),
        ("control --steps 0", "steps must be at least 1, got 0"),
        ("control --json file/x.json", "--json file/x.json: cannot make the folder file: File ex"),
        ("control --only", "--only needs a value: texts"),
        ("update --only", "--only needs a value: texts"),
        ("control --report folder", "--report folder is a folder; give the path of a file"),
        ("update --repeats 0", "repeats must be at least 1, got 0"),
        ("update --only tropo", "unknown method 'tropo'; nearest: trpo"),
        ("update --json file/x.json", "--json file/x.json: cannot make the folder file"),
        ("update --task Nope-v0", "unknown task 'Nope-v0'"),
    ],
)
def test_bad_input_is_said_before_any_work(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(control, "timed", None)
    monkeypatch.setattr(update, "measure", None)
    assert cli.main(["bench", *arguments.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_permission_and_a_missing_library(tmp_path, monkeypatch, capsys):
    from redline.benchmark.baselines import catalogue
    from redline.benchmark.bench import output

    with monkeypatch.context() as patch:
        patch.setattr(output.os, "access", lambda *_: False)
        assert cli.main(["bench", "control", "--json", str(tmp_path / "x.json")]) == 2
    assert "cannot write to the folder" in capsys.readouterr().err
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None)
    monkeypatch.setattr(control, "timed", None)
    assert cli.main(["bench", "control"]) == 2
    assert "pip install stable-baselines3 sb3-contrib" in capsys.readouterr().err


def test_help_does_not_wait_for_heavy_libraries():
    probe = (
        "import sys; from redline.benchmark import cli; cli.main(['bench', '--help']);"
        "print(*(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    usage, _, modules = done.stdout.rstrip().rpartition("\n")
    assert "redline bench control" in usage and "redline bench update" in usage
    heavy = {"torch", "numpy", "gymnasium", "stable_baselines3", "tyro", "pandas", "tensorboard"}
    assert not heavy & set(modules.split())


def test_missing_folders_of_files_are_made(tmp_path):
    from redline.benchmark.bench import output

    output.require_writable({"--json": tmp_path / "a" / "b" / "x.json", "--report": None})
    assert (tmp_path / "a" / "b").is_dir()
