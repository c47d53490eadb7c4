"""`redline watch`: film a trained policy."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark.commands.eval import played, require_run
from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse
from redline.benchmark.video import film, require_encoder, require_file

_DESCRIPTION = "Film the policy of a run's last checkpoint while it plays, without a display."


@dataclass(frozen=True)
class WatchConfig:
    """Settings of `redline watch`.

    Attributes:
        run: Folder of the run.
        episodes: How many, one after the other.
        seed: Episode k starts from seed + k; None: from those of the evaluation.
        stochastic: Sample the actions instead of taking the most likely ones.
        out: The film; None: episode.mp4 in the run's folder.
        fps: Pictures per second; None: the task's own speed.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    episodes: int = 1
    seed: int | None = None
    stochastic: bool = False
    out: Path | None = None
    fps: float | None = None


def main(arguments: Sequence[str]) -> int:
    """Write the film; print the return of every episode, and where the film is."""
    config = parse(WatchConfig, arguments, prog="redline watch", description=_DESCRIPTION)
    folder = require_run(config.run, "watch", config.episodes, config.seed)
    if config.fps is not None and not 0.0 < config.fps < math.inf:
        raise BadInput(f"--fps must be a number above 0, got {config.fps}")
    require_encoder()
    _choose_renderer()
    return played(lambda: _film(folder, config))


def _choose_renderer() -> None:
    """Before MuJoCo and pygame are imported: without a display both must be told how to draw."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def _film(folder: Path, config: WatchConfig) -> None:
    from redline.benchmark.loading import TrainedPolicy, load
    from redline.envs.evaluate import FIRST_SEED
    from redline.envs.tasks import TaskError

    out = config.out or folder / "episode.mp4"
    first = FIRST_SEED if config.seed is None else config.seed
    with load(folder, 1) as policy:
        run = policy.resolved.run
        if not isinstance(policy, TrainedPolicy):
            raise BadInput(
                f"{run.task} is a language task, which gives no pictures; redline eval plays it"
            )
        require_file(out)
        print(f"{policy.resolved.algo} {run.task} seed={run.seed} at step {policy.step:,}")
        try:
            with (
                contextlib.closing(policy.film()) as drawn,
                film(out, config.fps or drawn.fps) as send,
            ):
                for seed in range(first, first + config.episodes):
                    total = drawn.play(seed, not config.stochastic, send)
                    print(f"episode from seed {seed}: return {total:.8g}")
        except TaskError as error:
            raise BadInput(str(error)) from error
    print(f"film: {out}")
