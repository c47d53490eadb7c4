"""Real, short runs with a fault planted into their loop, and what the doctor says of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from redline.benchmark.arguments import resolve
from redline.benchmark.doctor.examine import examine
from redline.benchmark.doctor.findings import Finding
from redline.benchmark.doctor.history import read
from redline.benchmark.loop import Loop
from redline.benchmark.train import opened

CARTPOLE = ["--task", "CartPole-v1", "--steps", "5120", "--evals", "2", "--eval-episodes", "4"]
LANGUAGE = ["--task", "llm:arithmetic", "--steps", "128", "--evals", "1", "--eval-problems", "4"]
LANGUAGE += ["--eval-samples", "2", "--max-completion", "24", "--minibatch-size", "8"]
GROUPS = ["--groups", "4", "--group-size", "4"]

Plant = Callable[[Loop], None]


def findings(
    folder: Path, algo: str, arguments: list[str], plant: Plant | None = None
) -> dict[str, Finding]:
    """What the doctor says of a run, with a fault planted into its loop."""
    with opened(resolve(algo, arguments), folder) as loop:
        if plant is not None:
            plant(loop)
        loop.evaluate_at_start()
        while not loop.finished:
            loop.update()
        loop.evaluate_at_end()
    return {finding.rule: finding for finding in examine(read(folder))}


def rewards(change: Callable[[Any, int], Any]) -> Plant:
    """The rewards [B, T] of every rollout are others.

    Args:
        change: Gives them for a rollout and its number, from 1 on.
    """

    def plant(loop: Loop) -> None:
        track: Any = loop._track
        collect, count = track.collect, 0

        def changed(policy: Any, need: Any) -> Any:
            nonlocal count
            rollout = collect(policy, need)
            count += 1
            return replace(rollout, reward=change(rollout, count))

        track.collect = changed

    return plant


def other_weights(factor: float) -> Plant:
    """Completions come from the first weights times a factor, whatever is learned."""

    def plant(loop: Loop) -> None:
        sampler: Any = loop._track.sampler  # type: ignore[attr-defined]
        sampler = getattr(sampler, "_sampler", sampler)  # where rollouts are stale
        collect, first = sampler.collect, loop._learner.policy.snapshot() * factor

        def sampled(policy: Any, need: Any) -> Any:
            current = policy.snapshot()
            policy.restore(first)
            try:
                return collect(policy, need)
            finally:
                policy.restore(current)

        sampler.collect = sampled

    return plant
