"""Checkpoints on the disk: whole ones come back as they were, all others are told apart."""

import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from redline.benchmark import checkpoint

STATE = {"hash": "h", "weights": np.linspace(0.0, 1.0, 500), "nested": {"list": [1, 2.5, "a"]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints, of which the last is the first that is asked for."""
    for step in (1, 2):
        checkpoint.save(tmp_path, {**STATE, "step": step})
    return tmp_path


def test_what_is_saved_comes_back(folder: Path) -> None:
    last, before = checkpoint.candidates(folder)
    assert (last["step"], before["step"]) == (2, 1)
    assert last["weights"].tobytes() == STATE["weights"].tobytes()  # type: ignore[attr-defined]
    assert last["nested"] == STATE["nested"] and checkpoint.load(folder)["step"] == 2
    assert sorted(path.name for path in folder.iterdir()) == [checkpoint.PREVIOUS, checkpoint.NAME]


def cut(path: Path, planted: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path, planted: Path) -> None:
    path.write_bytes(b"")


def future(path: Path, planted: Path) -> None:
    torch.save({"format": checkpoint.FORMAT + 1, "step": 3}, path)


def foreign(path: Path, planted: Path) -> None:
    torch.save([1, 2], path)


def bare_pickle(path: Path, planted: Path) -> None:
    path.write_bytes(pickle.dumps(Planted(planted), protocol=2))


def pickle_inside(path: Path, planted: Path) -> None:
    torch.save({"format": checkpoint.FORMAT, "step": Planted(planted)}, path)


class Planted:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


SPOILT = {
    cut: "is empty or cut short",
    empty: "is empty or cut short",
    future: f"has format {checkpoint.FORMAT + 1}, this version of Redline reads",
    foreign: "is no checkpoint of Redline",
    bare_pickle: "is empty or cut short, or no checkpoint",
    pickle_inside: "cannot be read (UnpicklingError)",
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_what_is_no_whole_checkpoint_is_told_and_the_one_before_is_taken(
    spoil: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planted = folder / "planted"
    spoil(folder / checkpoint.NAME, planted)
    (taken,) = checkpoint.candidates(folder)
    assert taken["step"] == 1 and not planted.exists()
    (record,) = caplog.records
    assert f"{folder / checkpoint.NAME} {SPOILT[spoil]}" in record.getMessage()
    spoil(folder / checkpoint.PREVIOUS, planted)
    assert not list(checkpoint.candidates(folder)) and not planted.exists()
    with pytest.raises((checkpoint.CheckpointError, pickle.UnpicklingError)):
        checkpoint.load(folder)
    assert not planted.exists()


def test_no_flipped_bit_changes_what_is_read(folder: Path) -> None:
    path, draw = folder / checkpoint.NAME, random.Random(0)
    whole, expected = path.read_bytes(), checkpoint.load(folder)
    refused = 0
    for _ in range(60):
        spoilt = bytearray(whole)
        spoilt[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(spoilt)
        try:
            found = checkpoint.load(folder)
        except Exception:  # whatever it is called
            refused += 1
        else:
            np.testing.assert_equal(found, expected)
    # The other bits are padding between the entries of the archive.
    assert refused > 20


def test_a_write_that_fails_leaves_what_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(folder, {**STATE, "step": 3})
    assert [state["step"] for state in checkpoint.candidates(folder)] == [2, 1]
    assert len(list(folder.iterdir())) == 2
