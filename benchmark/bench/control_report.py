"""`redline bench control`, row by row: what the terminal, the JSON file and the report say."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from redline.benchmark import machine
from redline.benchmark.bench import control, output
from redline.benchmark.bench.comparisons import NETWORKS, Comparison
from redline.benchmark.bench.control import Measured, Pair, Timed
from redline.benchmark.formats import number
from redline.benchmark.tables import Table, show

_READING = """\
*ratio* is the CPU time of Stable-Baselines3 (sb3-contrib for TRPO) divided by Redline's, its median
over the repeats with the smallest and the largest; above 1 Redline is faster. A repeat trains both
from the same seed, one after the other in one process on one thread, and the one that goes first
changes every time. Timed are `model.learn()` there, with environments from `make_vec_env` and no
log, and here the same loop as in `redline run` with all of its metrics, metrics.jsonl and
TensorBoard events, but without evaluations and checkpoints, which `model.learn()` does not have
either. Making environments and networks does not count. *us/step* is CPU time per environment step,
median over the repeats. *return* is the mean over the first tenth of the episodes and over the last
tenth, then the mean over the repeats.
"""

_DIFFERENCES = """\
Hyperparameters, networks, their initialisation and the number of optimiser steps are the same. What
differs: PPO here clips the gradients of policy and critic each at max_grad_norm, there their joint
one; a schedule is read before a rollout here and after it there; the critic of TRPO has its
gradient clipped here and not there.
"""


@dataclass(frozen=True)
class Files:
    """Where the results go.

    Attributes:
        json: Ratios, None for no file.
        report: Markdown, None for no file.
        command: What the report says it was made by.
    """

    json: Path | None
    report: Path | None
    command: str


def command(only: Sequence[str], repeats: int, steps: int | None) -> str:
    """The command without its paths, which belong to one machine."""
    words = ["redline", "bench", "control", "--repeats", str(repeats)]
    words += ["--steps", str(steps)] if steps is not None else []
    words += ["--only", *only] if only else []
    return shlex.join(words)


def run(rows: Iterable[Comparison], repeats: int, steps: int | None, files: Files) -> None:
    """Measure rows one after the other; the files are complete after each.

    Raises:
        OSError: A file cannot be written.
    """
    torch.set_num_threads(1)
    found: list[Measured] = []
    for comparison in rows:
        pairs: list[Pair] = []
        for pair in control.pairs(comparison, repeats, steps):
            pairs.append(pair)
            print(f"{comparison.name} {len(pairs)}/{repeats}: {_sentence(pair)}", flush=True)
        found.append(Measured(comparison, pairs))
        output.write_rows(files.json, (measured.row() for measured in found))
        output.write_text(files.report, _markdown(found, files.command))
    show(table(found))


def _sentence(pair: Pair) -> str:
    sides = (("redline", pair.ours), ("sb3", pair.theirs))
    parts = [
        f"{name} {side.seconds:.2f} s, return {number(side.start)} -> {number(side.end)}"
        for name, side in sides
    ]
    return f"{'; '.join(parts)}; ratio {pair.ratio:.2f}"


def table(found: Iterable[Measured]) -> Table:
    """A row per comparison."""
    header = ["name", "ratio", "repeats", "redline us/step", "sb3 us/step"]
    header += ["redline return", "sb3 return"]
    rows = []
    for measured in found:
        sides = [pair.ours for pair in measured.pairs], [pair.theirs for pair in measured.pairs]
        median = statistics.median(measured.ratios)
        rows.append(
            [
                measured.comparison.name,
                f"{median:.2f} {output.spread(measured.ratios)}",
                str(len(measured.pairs)),
                *(f"{statistics.median(run.per_step for run in side):.1f}" for side in sides),
                *map(_learned, sides),
            ]
        )
    return Table("CPU time of Stable-Baselines3 divided by Redline's", header, rows)


def _learned(runs: Sequence[Timed]) -> str:
    start = statistics.fmean(run.start for run in runs)
    end = statistics.fmean(run.end for run in runs)
    return f"{number(start)} → {number(end)}"


def _markdown(found: Sequence[Measured], command: str) -> str:
    drawn = table(found)
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions().items())
    host = machine.host()
    parts = [
        f"# {drawn.title}",
        drawn.markdown(),
        _READING,
        _DIFFERENCES,
        "## Settings",
        "\n".join(f"- `{m.comparison.name}`: {_settings(m)}" for m in found),
        "## How it was run",
        f"```\n{command}\n```",
        f"- {machine.processor()}, {host['cpus']} cores, {host['system']} {host['machine']}\n"
        f"- {versions}",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _settings(measured: Measured) -> str:
    comparison, steps = measured.comparison, measured.pairs[0].ours.steps
    values = {"steps": f"{steps:,}", "n_envs": comparison.n_envs}
    everything = values | dict(NETWORKS) | dict(comparison.settings)
    shown = {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in everything.items()
    }
    return ", ".join(f"{name} {value}" for name, value in shown.items())
