"""`redline eval`: play a trained policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
        episodes: How many, each from its own fixed seed; None: as many as while training, which
            gives the numbers of eval.jsonl.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    episodes: int | None = None


def main(arguments: Sequence[str]) -> int:
    """Print mean and standard deviation over episodes, deterministic and stochastic."""
    config = parse(EvalConfig, arguments, prog="redline eval", description=_DESCRIPTION)
    if config.run is None:
        raise BadInput("say which run: redline eval RUN")
    if config.episodes is not None and config.episodes < 1:
        raise BadInput(f"episodes must be at least 1, got {config.episodes}")
    try:
        _play(config.run, config.episodes)
    except (BadInput, BrokenPipeError):
        raise
    except (Exception, SystemExit) as error:  # an environment is anybody's code
        print(f"redline: playing failed: {first_line(describe(error))}", file=sys.stderr)
        return 1
    return 0


def _play(folder: Path, episodes: int | None) -> None:
    import numpy as np

    from redline.benchmark.loading import load

    with load(folder, episodes) as policy:
        run = policy.resolved.run
        print(f"{policy.resolved.algo} {run.task} seed={run.seed} at step {policy.step:,}")
        for kind, deterministic in (("deterministic", True), ("stochastic", False)):
            values = policy.returns(deterministic)
            n = len(values)
            std = f"{np.std(values, ddof=1):.4g}" if n > 1 else "n/a (n=1)"
            print(f"{kind:14} mean {np.mean(values):.8g}  std {std}  episodes {n}")
