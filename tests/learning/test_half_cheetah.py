"""PPO runs forward on HalfCheetah-v5 with its preset, in the memory of a small machine."""

import json

import pytest

from redline.benchmark.arguments import resolve
from redline.benchmark.train import train


@pytest.mark.slow
def test_half_cheetah_is_learned(tmp_path):
    finals, peaks = [], []
    for seed in range(3):
        arguments = ["--task", "HalfCheetah-v5", "--steps", "200000", "--evals", "1"]
        folder = tmp_path / str(seed)
        last = train(resolve("ppo", [*arguments, "--seed", str(seed)]), folder)
        finals.append(last["eval/mean_reward"])
        rows = (folder / "metrics.jsonl").read_text().splitlines()
        peaks.append(json.loads(rows[-1])["memory/peak_mb"])
    assert sum(finals) / 3 > 800.0, finals
    assert max(peaks) < 600.0, peaks
