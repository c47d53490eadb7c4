"""Matrices on a Ray cluster: the runs of any other launcher, also when a node is lost."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from runs import same_runs

from redline.benchmark import checkpoint, cli, matrix
from redline.benchmark.commands import matrix as command
from redline.benchmark.outcomes import Outcome
from redline.benchmark.ray_launcher import RayPool, _Desk, packed, unpack
from redline.benchmark.runs import read_run
from redline.benchmark.suite import Cell, cells
from redline.benchmark.suite_files import read

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra [ray]")

SUITE = """
tasks = ["CartPole-v1"]
seeds = [0, 1]
algorithms = ["reinforce"]

[settings]
steps = 6_000
evals = 12
eval_episodes = 1
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SUITE)
    assert cli.main(["matrix", str(tmp_path / "small.toml"), "--out", str(tmp_path / "whole")]) == 0
    return tmp_path / "small.toml"


def same(one: Path, other: Path) -> None:
    for seed in (0, 1):
        run = f"CartPole-v1/reinforce/seed={seed}"
        same_runs(one / run, other / run)


@needs_ray
@pytest.mark.slow  # starts a cluster
def test_a_cluster_of_its_own_gives_the_same_bits(suite: Path) -> None:
    out = suite.parent / "ray"
    arguments = ["matrix", str(suite), "--launcher", "ray", "--jobs", "2", "--out", str(out)]
    assert cli.main(arguments) == 0
    same(out, suite.parent / "whole")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cluster of two nodes with one CPU each, on the loopback address alone."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    one = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=one)
    second = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    cluster.wait_for_nodes()
    yield cluster, second
    cluster.shutdown()


class Killer:
    """Ends a node once both cells have written a checkpoint there."""

    def __init__(self, nodes: Any, todo: list[Cell]) -> None:
        self._nodes, self._todo = nodes, todo
        self.lost_cells: list[Cell] = []

    def watch(self, steps: dict[Cell, int]) -> None:
        written = [(cell.folder / checkpoint.NAME).exists() for cell in self._todo]
        if self._nodes and all(written) and min(steps.values(), default=0) > 1000:
            cluster, second = self._nodes
            self._nodes = None
            cluster.remove_node(second, allow_graceful=False)

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        assert outcome.error is None

    def lost(self, cell: Cell, outcome: Outcome) -> None:
        assert "Ray task was lost" in (outcome.error or "")
        self.lost_cells.append(cell)


@needs_ray
@pytest.mark.slow  # starts a cluster
def test_a_lost_node_costs_nothing(suite: Path, nodes: Any) -> None:
    out = suite.parent / "ray"
    todo = cells(read(str(suite)), out)
    killer = Killer(nodes, todo)
    outcomes = matrix.execute(todo, RayPool(nodes[0].address, jobs=1), killer)
    assert len(outcomes) == 2 and len(killer.lost_cells) == 1
    (lost,) = killer.lost_cells
    assert (read_run(lost.folder) or {})["resumed"]
    same(out, suite.parent / "whole")


@needs_ray
@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:1", "Connection refused"), ("here", "an address is HOST:PORT, or auto")],
)
def test_a_cluster_that_is_not_there(
    address: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.toml").write_text(SUITE)
    arguments = ["matrix", str(tmp_path / "small.toml"), "--out", str(tmp_path / "out")]
    assert cli.main([*arguments, "--launcher", "ray", "--address", address]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"redline: no Ray cluster at {address}: ") and why in error
    assert error.count("\n") == 1


def test_what_cannot_be_launched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["matrix", "demo", "--address", "127.0.0.1:6379"]) == 2
    assert "--address needs --launcher ray" in capsys.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert cli.main(["matrix", "demo", "--launcher", "ray"]) == 2
    assert '--launcher ray needs ray: pip install "redline-rl[ray]"' in capsys.readouterr().err


def test_files_travel_and_replace_what_was_there(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    files = {"run.json": b"{}", "metrics.jsonl": b"1\n", "events.out.tfevents.1": b"e"}
    unpack(files, one)
    assert packed(one) == files
    unpack({**files, "events.out.tfevents.2": b"f", checkpoint.NAME: b"c"}, other)
    unpack(files, other)
    assert packed(other) == files and not (other / checkpoint.NAME).exists()


def test_a_folder_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    with matrix.claim(tmp_path), pytest.raises(OSError, match="another process is writing"):
        unpack({"run.json": b"{}"}, tmp_path)


def test_metrics_come_before_the_checkpoint_that_relies_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    write = Path.write_bytes

    def noted(path: Path, content: bytes) -> int:
        order.append(path.name.split(".")[1])
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", noted)
    names = ("run.json", checkpoint.NAME, checkpoint.PREVIOUS, "metrics.jsonl", "eval.jsonl")
    unpack(dict.fromkeys(names, b""), tmp_path)
    assert order == ["metrics", "eval", "checkpoint-previous", "checkpoint", "run"]


def test_the_desk_keeps_files_until_they_are_collected() -> None:
    desk = _Desk()
    desk.tell("a", 0, {})
    desk.tell("a", 10, {"run.json": b"1"})
    desk.tell("a", 20, {})
    assert desk.collect() == {"a": (20, 3, {"run.json": b"1"})}
    assert desk.collect() == {"a": (20, 3, {})}
