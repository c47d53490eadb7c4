"""What telemetry costs: part of an update by default, and how much longer one takes with all of it.

Two learners take the same rollouts, one of them with --telemetry full. They do the same bit for
bit, so that their times compare update by update.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redline.algorithms.core.arrays import host
from redline.algorithms.core.closeup import CloseUp
from redline.algorithms.core.learner import Learner
from redline.algorithms.core.surrogates import Weights
from redline.algorithms.core.telemetry import Recorder, after_update
from redline.algorithms.core.types import Array, Evaluation, Progress
from redline.benchmark.arguments import resolve
from redline.benchmark.bench import output
from redline.benchmark.config import Resolved
from redline.benchmark.preflight import check_tasks
from redline.benchmark.summaries import buckets
from redline.benchmark.tables import Table, show
from redline.benchmark.train import parts

T = TypeVar("T")

ROWS = {
    "ppo/CartPole-v1": ("ppo", "CartPole-v1"),
    "ppo/HalfCheetah-v5": ("ppo", "HalfCheetah-v5"),
    "trpo/CartPole-v1": ("trpo", "CartPole-v1"),
    "grpo/llm:arithmetic": ("grpo", "llm:arithmetic"),
    "ppo/llm:arithmetic": ("ppo", "llm:arithmetic"),
}
# Imports and the growth of buffers are no part of an update.
_WARM_UP = 2

_READING = """\
CPU times of the learning part of an update (collecting and files left out), medians over updates.
numbers: computing what is logged, from log-probabilities that are there, as part of an update.
look back: the pass of the network after an update that exact KL and ratios need, also those that
the breaker judges; likewise.
full: how much longer an update takes with --telemetry full."""


@dataclass(frozen=True)
class Cost:
    """Of one method on one task; seconds of CPU per update, one value per update.

    Attributes:
        name: Of the row.
        basic: Learning.
        full: Learning with --telemetry full.
        numbers: Of it, computing metrics and histograms.
        look_back: Of it, the policy on its batch once more, and the exact divergence.
    """

    name: str
    basic: list[float]
    full: list[float]
    numbers: list[float]
    look_back: list[float]

    def row(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return {
            "row": self.name,
            "updates": len(self.basic),
            "update_seconds": statistics.median(self.basic),
            "numbers": _share(self.numbers, self.basic),
            "look_back": _share(self.look_back, self.basic),
            "full": _share(self.full, self.basic) - 1.0,
        }


def _share(part: Sequence[float], whole: Sequence[float]) -> float:
    return statistics.median(part) / statistics.median(whole)


def run(names: Sequence[str], updates: int, json: Path | None) -> None:
    """Measure rows one after the other; the file is complete after each.

    Raises:
        BadInput: A task cannot be made.
        OSError: The file cannot be written.
    """
    check_tasks([resolve(ROWS[name][0], ["--task", ROWS[name][1]]) for name in names])
    found: list[Cost] = []
    for name in names:
        found.append(measure(name, updates))
        output.write_rows(json, (cost.row() for cost in found))
    show(table(found))
    print(_READING)


def table(found: Sequence[Cost]) -> Table:
    """A row per method and task."""
    rows = [
        [
            str(row["row"]),
            str(row["updates"]),
            f"{1e3 * row['update_seconds']:,.1f}",
            *(f"{row[name]:.1%}" for name in ("numbers", "look_back", "full")),
        ]
        for row in (cost.row() for cost in found)
    ]
    header = ["row", "updates", "ms", "numbers", "look back", "full"]
    return Table("cost of telemetry as part of an update", header, rows)


def measure(name: str, updates: int) -> Cost:
    """Two learners on the same rollouts for so many updates."""
    resolved = resolve(ROWS[name][0], ["--task", ROWS[name][1]])
    found = Cost(name, [], [], [], [])
    with ExitStack() as stack:
        plain, track = _side(resolved, stack)
        watched, other_track = _side(resolved, stack)
        watched.watch = CloseUp()
        for update in range(_WARM_UP + updates):
            # Each its own, which is the same: a policy keeps from sampling what scoring needs.
            rollout = track.collect(plain.policy, plain.algorithm.need)
            other = other_track.collect(watched.policy, watched.algorithm.need)
            progress = Progress(0, resolved.run.steps)
            basic, metrics = _timed(lambda: plain.update(rollout, progress))  # noqa: B023
            full, _ = _timed(lambda: watched.update(other, progress))  # noqa: B023
            look_back, numbers = _parts(plain, int(metrics.get("train/n_updates", 1)))
            if update >= _WARM_UP:
                found.basic.append(basic)
                found.full.append(full)
                found.look_back.append(look_back)
                found.numbers.append(numbers)
    return found


def _side(resolved: Resolved, stack: ExitStack) -> tuple[Learner, Any]:
    learner, track = parts(resolved)
    stack.enter_context(closing(track))
    assert isinstance(learner, Learner)
    return learner, track


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def _parts(learner: Learner, steps: int) -> tuple[float, float]:
    """Seconds of the pass after an update, and of its numbers, once more on the same batch."""
    policy, seen = learner.policy, learner.seen
    assert seen is not None
    looked_at = seen.looked_at
    batch = dataclasses.replace(looked_at, reference=policy.evaluate(looked_at).params)
    # What was just read is not read again by a policy that has not moved.
    policy.restore(policy.snapshot())

    def look_back() -> tuple[Evaluation, Array]:
        evaluation = policy.evaluate(batch)
        return evaluation, policy.kl(batch, evaluation)

    seconds, (evaluation, divergence) = _timed(look_back)
    size = -(-len(batch) // min(steps, len(batch)))
    weights = Weights(batch.advantage, batch.mask, batch.advantage)
    slices = [slice(at, at + size) for at in range(0, len(batch), size)]
    # Minibatches and their weights are there without telemetry too.
    passed = [
        (batch.take(part), Weights(*(field[part] for field in weights)), evaluation.log_prob[part])
        for part in slices
    ]

    def numbers() -> None:
        recorder = Recorder()
        for step in range(steps):
            recorder.record(*passed[step % len(passed)])
        recorder.metrics()
        after_update(batch, evaluation, divergence)
        mask = host(batch.mask)
        buckets(host(evaluation.log_prob - batch.old_log_prob)[mask], host(batch.advantage)[mask])

    return seconds, _timed(numbers)[0]
