"""Files of metrics as they are found: cut, of wrong types, written anew from the middle on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.benchmark.curves import Curves, read_curve

NAN = float("nan")


def read(path: Path, *rows: Any) -> Any:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_curve(path, ("step", "a", "b"))


def test_absent_and_null_are_nan(tmp_path: Path) -> None:
    found = read(tmp_path / "m", {"step": 1, "a": 2, "c": 3}, {"step": 2, "a": None, "b": 5.5})
    np.testing.assert_array_equal(found, [[1, 2, NAN], [2, NAN, 5.5]])
    assert read_curve(tmp_path / "none", ("step", "a")).shape == (0, 2)


@pytest.mark.parametrize("value", ["text", [1], {"x": 1}, 10**400])
def test_what_is_no_number_is_nan_and_costs_no_other_row(value: Any, tmp_path: Path) -> None:
    found = read(tmp_path / "m", {"step": 1, "a": value, "b": 2}, {"step": 2, "a": 3, "b": 4})
    np.testing.assert_array_equal(found, [[1, NAN, 2], [2, 3, 4]])


def test_of_rows_written_twice_the_later_count(tmp_path: Path) -> None:
    # Cut after step 40, gone on with from step 20.
    steps = [10, 20, 30, 40, 30, 40, 50]
    rows = [{"step": step, "a": i, "b": 0} for i, step in enumerate(steps)]
    found = read(tmp_path / "m", *rows, {"a": 9}, {"step": None, "a": 9})
    np.testing.assert_array_equal(found[:, 0], [10, 20, 30, 40, 50])
    np.testing.assert_array_equal(found[:, 1], [0, 1, 4, 5, 6])


@pytest.mark.parametrize(
    "damaged", ['{"step": 2, "a"', "", "[1]", '{"step": 2,\n"a": 3}', "{}, {}", "\x00"]
)
def test_rows_count_up_to_the_first_that_is_damaged(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text(f'{{"step": 1, "a": 2}}\n{damaged}\n{{"step": 3, "a": 4}}\n')
    assert read_curve(path, ("step", "a")).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "row, value",
    [
        (b'{"step": 2, "a": NaN}', NAN),
        (b'{"step": 2, "a": 3, "b": Infinity}', 3.0),
        (b'{"step": 2, "a": 3, "b": "\xff"}', 3.0),
        (b'{"step": 2, "a": 3, "b": "\\ud800"}', 3.0),
        (b'{"step": 2, "a": 9, "a": 3}', 3.0),
        (b'{"step": 2, "a": 123456789012345678901234567890}', 123456789012345678901234567890.0),
        (b'{"step": 2, "a": 0.1000000000000000055511151231257827}', 0.1),
        (b'{"step": 2, "a": 3}\r', 3.0),
    ],
)
def test_a_row_that_readers_of_json_disagree_about_is_read_as_written(
    row: bytes, value: float, tmp_path: Path
) -> None:
    (tmp_path / "m").write_bytes(b'{"step": 1, "a": 2}\n' + row + b'\n{"step": 3, "a": 4}\n')
    np.testing.assert_array_equal(read_curve(tmp_path / "m", ("step", "a"))[:, 1], [2, value, 4])


def test_runs_become_one_table() -> None:
    curves = Curves(("step", "a"), ("task", "seed"))
    assert list(curves.frame().columns) == ["step", "a", "task", "seed"]
    for task, seed, rows in (("x", 0, [[1.0, 2.0], [2.0, 3.0]]), ("y", 1, []), ("x", 2, [[1, 9]])):
        curves.add(np.array(rows, dtype=float).reshape(-1, 2), (task, seed))
    frame = curves.frame()
    assert frame["task"].tolist() == ["x", "x", "x"] and frame["seed"].tolist() == [0, 0, 2]
    assert frame["a"].tolist() == [2.0, 3.0, 9.0]
