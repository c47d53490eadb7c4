"""`redline eval`: play a trained policy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark.errors import BadInput, describe, first_line
from redline.benchmark.parsing import parse

_DESCRIPTION = "Play the policy of a run's last checkpoint, with raw rewards and frozen statistics."


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
    config = parse(EvalConfig, arguments, prog="redline eval", description=_DESCRIPTION)
    folder = require_run(config.run, "eval", config.episodes, config.seed)
    return played(lambda: _play(folder, config))


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
            for name, value in policy.evaluate().items():
                print(f"{name} {value:.8g}")
            return
        for kind, deterministic in (("deterministic", True), ("stochastic", False)):
            values = policy.returns(deterministic, first)
            n = len(values)
            std = f"{np.std(values, ddof=1):.4g}" if n > 1 else "n/a (n=1)"
            print(f"{kind:14} mean {np.mean(values):.8g}  std {std}  episodes {n}")
