"""What `redline bench telemetry` measures, refuses and writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.benchmark import cli
from redline.benchmark.bench.telemetry import Cost


def test_shares_by_hand() -> None:
    cost = Cost("x", [1.0, 2.0, 9.0], [2.0, 2.5, 3.0], [0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    assert cost.row() == {
        "row": "x",
        "updates": 3,
        "update_seconds": 2.0,
        "numbers": 0.1,
        "look_back": 0.25,
        "full": 0.25,
    }


def test_a_row_is_measured_and_written(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "out" / "telemetry.json"
    few = ["--repeats", "2", "--only", "ppo/CartPole-v1", "--json", str(file)]
    assert cli.main(["bench", "telemetry", *few]) == 0
    (row,) = json.loads(file.read_text())
    assert (row["row"], row["updates"]) == ("ppo/CartPole-v1", 2)
    assert 0.0 < row["numbers"] < 0.5 and 0.0 < row["look_back"] < 0.5
    assert "cost of telemetry as part of an update" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "ppo/CartPole"], "unknown row 'ppo/CartPole'; nearest: ppo/CartPole-v1"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_measured_is_told(arguments: list[str], says: str, capsys: Any) -> None:
    assert cli.main(["bench", "telemetry", *arguments]) == 2
    assert says in capsys.readouterr().err
