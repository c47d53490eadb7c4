"""Runs made of numbers, for the rules of the doctor."""

from typing import Any

import numpy as np

from redline.benchmark.doctor.history import History

N = 40
UP = np.linspace(0.0, 1.0, N)
NOISE = np.random.default_rng(0).normal(0.0, 1.0, N)
ZIGZAG = np.where(np.arange(N) % 2, 1.0, -1.0)
WAVE = np.sin(np.arange(N) * 0.4)

# A run with nothing to say about it.
HEALTHY: dict[str, Any] = {
    "train/clip_lo": 0.8,
    "train/clip_fraction": 0.15,
    "train/outside_band": 0.3,
    "train/ratio_std": 0.17,
    "train/ratio_max": 1.7,
    "train/ratio_p90": 1.15,
    "train/loss": NOISE,
    "train/n_updates": 8.0,
    "train/advantage_mean": 0.0,
    "train/advantage_std": 1.0,
    "train/advantage_negative": 0.5,
    "train/value_loss": 1.0,
    "train/explained_variance": 0.6,
    "rollout/group_mixed": 0.7,
    "rollout/group_std": 0.4,
    "rollout/ep_rew_mean": 0.4 + 0.4 * UP,
    "rollout/outside_band": 0.0,
    "llm/top_answer": 0.05,
    "train/ratio_reference": 1.05,
    "train/grad_norm/embedding": 0.005,
    "follow/0": 1.0,
}
EVALS: dict[str, Any] = {"eval/accuracy": [0.4, 0.5, 0.6, 0.7, 0.75]}


def history(
    change: dict[str, Any] | None = None,
    evals: dict[str, Any] | None = None,
    recipe: dict[str, Any] | None = None,
    **more: Any,
) -> History:
    values = {"step": (np.arange(N) + 1) * 10.0, **HEALTHY, **(change or {})}
    metrics = {
        name: np.broadcast_to(np.asarray(value, dtype=float), (N,)).copy()
        for name, value in values.items()
    }
    curves = {name: np.array(value, dtype=float) for name, value in (evals or EVALS).items()}
    curves["step"] = np.linspace(0.0, 10.0 * N, len(curves["eval/accuracy"]))
    run = {"task": "llm:arithmetic", "eval_problems": 200}
    record = {"run": run, "recipe": {"gamma": 1.0, **(recipe or {})}, **more}
    review = record.pop("review", {})
    return History(record, metrics, curves, review)


def trips(rule: str, value: float) -> dict[str, Any]:
    listed = [{"rule": rule, "update": 3, "step": 30, "value": value, "reason": f"{rule} {value}"}]
    return {"trips": {"count": 1, "rules": {rule: 1}, "listed": listed}}
