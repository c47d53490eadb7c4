"""Folders of runs as training leaves them, without training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redline.benchmark.arguments import resolve
from redline.benchmark.runs import run_path

TASK = "CartPole-v1"


def write_run(
    root: Path,
    algo: str,
    seed: int,
    rewards: Sequence[float | None],
    *flags: str,
    task: str = TASK,
    **more: Any,
) -> Path:
    """A run as training leaves it: evaluated evenly, with these deterministic rewards."""
    arguments = ["--task", task, "--seed", str(seed), "--steps", "1000", *flags]
    resolved = resolve(algo, arguments)
    folder = run_path(root, resolved)
    folder.mkdir(parents=True)
    evals = [
        {
            "step": 1000 * i // max(len(rewards) - 1, 1),
            "eval/mean_reward": r,
            "eval/mean_reward_stochastic": 1.0,
        }
        for i, r in enumerate(rewards)
    ]
    record = {
        "status": "done",
        "hash": resolved.hash,
        **resolved.to_json(),
        "overrides": dict(resolved.overrides),
        "versions": {"torch": "2.0"},
        "wall_seconds": 2.0,
        "peak_memory_mb": 100.0,
        "final": {k: v for k, v in evals[-1].items() if k != "step"} if evals else {},
        **more,
    }
    (folder / "run.json").write_text(json.dumps(record))
    updates = [
        {
            "step": 50 * i,
            "update": i,
            "train/kl": 0.01,
            "train/clip_fraction": 0.1,
            "time/fps": 9.0,
            "time/update": 0.25,
        }
        for i in range(1, 4)
    ]
    for name, rows in (("eval.jsonl", evals), ("metrics.jsonl", updates)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
