"""Runs of cpi, whose policy is a mixture, trained, saved and played again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import identical

import redline.benchmark
from redline.algorithms.core.mixture import MixturePolicy
from redline.algorithms.core.types import Batch
from redline.benchmark import train
from redline.benchmark.arguments import resolve

# A short sight makes the bound's steps large enough to see.
SETTINGS = ["--gamma", "0.7", "--epochs", "4", "--lr", "3e-3"]
BUDGET = ["--steps", "2560", "--n-steps", "64", "--evals", "1", "--eval-episodes", "2"]


def trained(folder: Path, task: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> MixturePolicy:
    """Train a short run; its policy at the end."""
    kept: list[Any] = []

    class Kept(train.Learner):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            kept.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(train, "Learner", Kept)
        resolved = resolve("cpi", ["--task", task, *SETTINGS, *BUDGET, *more])
        train.train(resolved, folder)
    policy = kept[0].policy
    assert isinstance(policy, MixturePolicy)
    return policy


def last_line(path: Path) -> dict[str, float]:
    last: dict[str, float] = json.loads(path.read_text().splitlines()[-1])
    return last


@pytest.mark.parametrize("policy", ["mlp", "torch"])
@pytest.mark.parametrize(("task", "size"), [("CartPole-v1", 4), ("Pendulum-v1", 3)])
def test_a_mixture_is_played_again_as_it_was(
    tmp_path: Path, task: str, size: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    mixture = trained(folder, task, monkeypatch, "--policy", policy)
    assert len(mixture.components) >= 3
    metrics = last_line(folder / "metrics.jsonl")
    assert metrics["train/mixture_components"] == len(mixture.components)
    assert ("train/kl" in metrics) == ("train/entropy" in metrics) == mixture.exact
    assert ("train/kl_sampled" in metrics) == (task == "Pendulum-v1")
    with redline.benchmark.load(folder) as loaded:
        again: Any = loaded._policy
        assert isinstance(again, MixturePolicy) and again.weights == mixture.weights
        identical(again.parameters, mixture.parameters)
        observation = np.random.default_rng(0).normal(size=(50, size)).astype(np.float32)
        for seed in (None, 3):
            rngs = [None if seed is None else np.random.default_rng(seed) for _ in range(2)]
            identical(again.act(observation, rngs[0]), mixture.act(observation, rngs[1]))
        action = mixture.act(observation, np.random.default_rng(4))
        zeros, mask = np.zeros(50, np.float32), np.ones(50, dtype=bool)
        batch = Batch(*map(mixture.asarray, (observation, action, zeros, zeros, mask)))
        identical(again.evaluate(batch).log_prob, mixture.evaluate(batch).log_prob)
        recorded = last_line(folder / "eval.jsonl")
        assert np.mean(loaded.returns()) == recorded["eval/mean_reward"]


def test_a_run_distils_its_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task, name in (
        ("CartPole-v1", "distillation_kl"),
        ("Pendulum-v1", "distillation_kl_sampled"),
    ):
        folder = tmp_path / task
        settings = ("--max-components", "2", "--distill-epochs", "2")
        trained(folder, task, monkeypatch, *settings)
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        assert sum(f"train/{name}" in line for line in lines) >= 1
