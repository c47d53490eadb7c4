"""Runs that are cut, and what two runs left on the disk, bit for bit but for times and memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import identical
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from redline.benchmark import checkpoint
from redline.benchmark.config import Resolved
from redline.benchmark.train import train

CARTPOLE = ["--task", "CartPole-v1", "--steps", "2400", "--evals", "3", "--eval-episodes", "2"]


class Cut(BaseException):
    """Ends a run as Ctrl-C does."""


def cut(resolved: Resolved, folder: Path, step: int) -> None:
    """Train until some update at or after `step`."""

    def report(done: int, last: Any) -> None:
        if done >= step:
            raise Cut

    with pytest.raises(Cut):
        train(resolved, folder, report)
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"


def rows(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {key: value for key, value in row.items() if not key.startswith(("time/", "memory/"))}
        for row in found
    ]


def same_runs(one: Path, other: Path) -> None:
    """All that two runs left is the same, but for times and memory."""
    for name in ("metrics.jsonl", "eval.jsonl"):
        assert rows(one / name) == rows(other / name)
    first, second = (checkpoint.load(folder) for folder in (one, other))
    same(first["learner"], second["learner"])
    same(first["track"], second["track"])
    first, second = (state["progress"] for state in (first, second))
    for name in ("rng", "track", "returns", "lengths"):
        same(first[name], second[name])
    assert points(one) == points(other)


def same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            same(value, other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    elif isinstance(one, np.ndarray | torch.Tensor):
        identical(one, other)
    else:
        assert one == other


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of every curve that TensorBoard shows."""
    assert len(list(folder.glob("events.*"))) == 1
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    kept = [t for t in events.Tags()["scalars"] if not t.startswith(("time/", "memory/"))]
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in kept}
