"""`redline bench`: what Redline costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from redline.benchmark.baselines import catalogue
from redline.benchmark.bench import comparisons, comparisons_llm, output
from redline.benchmark.errors import BadInput, unknown
from redline.benchmark.parsing import parse

_USAGE = """\
usage: redline bench PART [settings]

  redline bench control   CPU time of Stable-Baselines3 divided by ours, at the same settings
  redline bench update    time and memory of one update of every method on the same rollout
  redline bench telemetry what telemetry costs, by default and in full
  redline bench llm       completions per second of GRPO on a language model, TRL's and ours

redline bench PART --help lists the settings of a part.
"""


@dataclass(frozen=True)
class ControlConfig:
    """Settings of `redline bench control`.

    Attributes:
        json: Write the ratios to this file, after every row.
        report: Write a table with machine, versions and settings to this Markdown file.
        only: Names of rows, instead of all.
        repeats: Runs of either side per row.
        steps: Environment steps, instead of each row's own.
    """

    json: Path | None = None
    report: Path | None = None
    only: tuple[str, ...] = ()
    repeats: int = 5
    steps: int | None = None


@dataclass(frozen=True)
class UpdateConfig:
    """Settings of `redline bench update`.

    Attributes:
        json: Write the rows to this file, after every row.
        task: Gymnasium id that the rollout comes from.
        repeats: Timed updates per method; dense ones, which take long, are timed once.
        only: Names of methods, instead of all.
    """

    json: Path | None = None
    task: str = "HalfCheetah-v5"
    repeats: int = 5
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class TelemetryConfig:
    """Settings of `redline bench telemetry`.

    Attributes:
        json: Write the rows to this file, after every row.
        repeats: Timed updates per row.
        only: Names of rows, instead of all.
    """

    json: Path | None = None
    repeats: int = 12
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class LanguageConfig:
    """Settings of `redline bench llm`.

    Attributes:
        json: Write the rows to this file, after every row.
        repeats: Runs of either side per row.
        rollouts: Of a run, instead of each row's own.
        only: Names of rows, instead of all.
    """

    json: Path | None = None
    repeats: int = 3
    rollouts: int | None = None
    only: tuple[str, ...] = ()


def main(arguments: Sequence[str]) -> int:
    """Measure, print tables, and write files."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if arguments[0] not in _PARTS:
        raise unknown("part", arguments[0], _PARTS)
    return _PARTS[arguments[0]](arguments[1:])


def _control(arguments: Sequence[str]) -> int:
    config = parse(
        ControlConfig,
        arguments,
        prog="redline bench control",
        description="CPU time of Stable-Baselines3 and sb3-contrib divided by ours.",
    )
    output.require_repeats(config.repeats)
    if config.steps is not None and config.steps < 1:
        raise BadInput(f"--steps must be at least 1, got {config.steps}")
    rows = comparisons.chosen(config.only)
    output.require_writable({"--json": config.json, "--report": config.report})
    catalogue.require_packages("this compares with")
    # Torch and Gymnasium take longer to import than wrong input to answer.
    from redline.benchmark.bench import control_report

    command = control_report.command(config.only, config.repeats, config.steps)
    control_report.run(
        rows,
        config.repeats,
        config.steps,
        control_report.Files(config.json, config.report, command),
    )
    return 0


def _update(arguments: Sequence[str]) -> int:
    config = parse(
        UpdateConfig,
        arguments,
        prog="redline bench update",
        description="Wall time and memory of one update of every method on the same rollout.",
    )
    output.require_repeats(config.repeats)
    output.require_writable({"--json": config.json})
    from redline.benchmark.bench import update_report

    update_report.run(config.task, config.repeats, config.only, config.json)
    return 0


def _telemetry(arguments: Sequence[str]) -> int:
    config = parse(
        TelemetryConfig,
        arguments,
        prog="redline bench telemetry",
        description="CPU time of telemetry as part of an update, by default and in full.",
    )
    output.require_repeats(config.repeats)
    output.require_writable({"--json": config.json})
    from redline.benchmark.bench import telemetry

    for name in config.only:
        if name not in telemetry.ROWS:
            raise unknown("row", name, telemetry.ROWS)
    telemetry.run(config.only or tuple(telemetry.ROWS), config.repeats, config.json)
    return 0


def _llm(arguments: Sequence[str]) -> int:
    config = parse(
        LanguageConfig,
        arguments,
        prog="redline bench llm",
        description="CPU time of TRL's GRPO on the language model that ships, divided by ours.",
    )
    output.require_repeats(config.repeats)
    if config.rollouts is not None and config.rollouts < 1:
        raise BadInput(f"--rollouts must be at least 1, got {config.rollouts}")
    rows = comparisons_llm.chosen(config.only)
    output.require_writable({"--json": config.json})
    missing = [name for name in ("trl", "transformers", "datasets") if find_spec(name) is None]
    if missing:
        raise BadInput(
            f"this compares with TRL and needs {', '.join(missing)}: pip install "
            '"redline-rl[bench]"'
        )
    from redline.benchmark.bench import llm, llm_report, trl

    llm_report.run(rows, config.repeats, config.rollouts, config.json, (llm.redline, trl.trl))
    return 0


_PARTS: dict[str, Callable[[Sequence[str]], int]] = {
    "control": _control,
    "update": _update,
    "telemetry": _telemetry,
    "llm": _llm,
}
