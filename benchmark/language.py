"""What the language track refuses, as inputs that the user can mend."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator

from redline.benchmark.errors import BadInput, spelled
from redline.benchmark.tracks import require_language_packages


@contextlib.contextmanager
def refusals(task: str, settings: Container[str]) -> Iterator[None]:
    """A block that makes parts of the language track, which it must import itself.

    Args:
        task: Its name.
        settings: Names of settings, which sentences shall spell as flags.

    Raises:
        BadInput: Packages are missing, or what the block makes does not exist or does not fit.
    """
    require_language_packages(f"task {task!r}")
    from redline.llm_track.checks import CheckFailed
    from redline.llm_track.generation import SamplingError
    from redline.llm_track.pretrained import ModelError
    from redline.llm_track.ranks import RanksError
    from redline.llm_track.rewards import RewardError
    from redline.llm_track.split import TaskError
    from redline.llm_track.symbolic import SymbolicError
    from redline.llm_track.text import TextError

    try:
        yield
    except (
        TaskError,
        ModelError,
        SamplingError,
        TextError,
        CheckFailed,
        RanksError,
        RewardError,
        SymbolicError,
    ) as error:
        raise BadInput(spelled(str(error), settings)) from error
