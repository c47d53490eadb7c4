"""`redline eval`: play a trained policy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark.errors import BadInput, describe, first_line
from redline.benchmark.language import refusals
from redline.benchmark.parsing import flat_types, option, parse
from redline.benchmark.tracks import LANGUAGE, track_of
from redline.llm_track.settings import LanguageSettings

_DESCRIPTION = "Play the policy of a run's last checkpoint, with raw rewards and frozen statistics."
_UNTRAINED = (
    "Let a language model answer the held-out problems of a task as it is, without training."
)


@dataclass(frozen=True)
class EvalConfig:
    """Settings of `redline eval`.

    Attributes:
        run: Folder of the run.
        episodes: How many, or how many held-out problems of a language task; None: as many as
            while training.
        seed: Episode k starts from seed + k; None: from the fixed seeds of every evaluation, which
            with as many episodes gives the numbers of eval.jsonl.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    episodes: int | None = None
    seed: int | None = None


def main(arguments: Sequence[str]) -> int:
    """Print what was reached: per episode on a control task, per problem on a language task."""
    if option(arguments, "task"):
        return _untrained(arguments)
    config = parse(EvalConfig, arguments, prog="redline eval", description=_DESCRIPTION)
    folder = require_run(config.run, "eval", config.episodes, config.seed)
    return played(lambda: _play(folder, config))


@dataclass(frozen=True)
class UntrainedConfig(LanguageSettings):
    """Settings of `redline eval --task TASK`.

    Attributes:
        task: llm:NAME.
        seed: Of adapters, where the model gets some.
    """

    task: str = ""
    seed: int = 0


def _untrained(arguments: Sequence[str]) -> int:
    """Print the figures of a model before any training."""
    config = parse(UntrainedConfig, arguments, prog="redline eval", description=_UNTRAINED)
    if track_of(config.task) is not LANGUAGE:
        raise BadInput(
            f"--task must be a language task, such as llm:gsm8k, got {config.task!r}; a policy of "
            "a control task is there once it was trained: redline eval RUN"
        )
    if config.eval_problems < 1 or config.eval_samples < 1:
        raise BadInput("--eval-problems and --eval-samples must be at least 1")
    with refusals(config.task, flat_types(UntrainedConfig)):
        from redline.llm_track.assembly import assemble
        from redline.llm_track.evaluate import LanguageEvaluator

        parts = assemble(config.task, config, config.seed)
        evaluator = LanguageEvaluator(
            parts.problems, parts.generation, config.eval_problems, config.eval_samples
        )
        found = evaluator.metrics(parts.policy)
    print(f"{config.model} on {config.eval_problems:,} held-out problems of {config.task}")
    _print(found)
    return 0


def _print(figures: Mapping[str, float]) -> None:
    for name, value in figures.items():
        print(f"{name} {value:.8g}")


def require_run(run: Path | None, command: str, episodes: int | None, seed: int | None) -> Path:
    """The folder of the run to play, after a look at how it is to be played.

    Raises:
        BadInput: No folder is named, or a number is out of range.
    """
    if run is None:
        raise BadInput(f"say which run: redline {command} RUN")
    if episodes is not None and episodes < 1:
        raise BadInput(f"--episodes must be at least 1, got {episodes}")
    if seed is not None and seed < 0:
        raise BadInput(f"--seed must be at least 0, got {seed}")
    return run


def played(play: Callable[[], None]) -> int:
    """Exit code of something that plays a task: its environment is anybody's code.

    Raises:
        BadInput: As `play` does.
    """
    try:
        play()
    except (BadInput, BrokenPipeError):
        raise
    except (Exception, SystemExit) as error:
        print(f"redline: playing failed: {first_line(describe(error))}", file=sys.stderr)
        return 1
    return 0


def _play(folder: Path, config: EvalConfig) -> None:
    import numpy as np

    from redline.benchmark.loading import TrainedModel, load
    from redline.envs.evaluate import FIRST_SEED

    first = FIRST_SEED if config.seed is None else config.seed
    with load(folder, config.episodes) as policy:
        run = policy.resolved.run
        if isinstance(policy, TrainedModel) and config.seed is not None:
            raise BadInput(f"the held-out problems of {run.task} are fixed: leave --seed out")
        print(f"{policy.resolved.algo} {run.task} seed={run.seed} at step {policy.step:,}")
        if isinstance(policy, TrainedModel):
            _print(policy.evaluate())
            return
        for kind, deterministic in (("deterministic", True), ("stochastic", False)):
            values = policy.returns(deterministic, first)
            n = len(values)
            std = f"{np.std(values, ddof=1):.4g}" if n > 1 else "n/a (n=1)"
            print(f"{kind:14} mean {np.mean(values):.8g}  std {std}  episodes {n}")
