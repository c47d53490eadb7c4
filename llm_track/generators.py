"""reasoning-gym's generators: problems by seed, split into training and held-out ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from redline.llm_track.split import HELD_OUT_SEED, TaskError, first_distinct, is_held_out

Entry = dict[str, Any]
# Question, an answer that is right, and whether another one is.
Generated = tuple[str, str, Callable[[str], bool]]

_PACKAGE = "reasoning_gym"
_INDICES = 2**31
# Draws of one side of the split before it is taken for empty; a draw fails nine times in ten.
_PATIENCE = 2_000


def generator_names() -> list[str]:
    """Every generator, sorted; none where reasoning-gym is not installed."""
    if find_spec(_PACKAGE) is None:
        return []
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


class Generator:
    """One generator with its settings.

    Problem k is made from seed k alone, and its question decides on which side of the split it
    is: two seeds may ask the same.

    Args:
        name: As reasoning-gym registers it, for example "chain_sum".
        settings: Of the generator's own configuration.

    Raises:
        TaskError: reasoning-gym is not installed, or knows no such generator or setting.
    """

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        if find_spec(_PACKAGE) is None:
            raise TaskError('needs reasoning-gym: pip install "redline-rl[llm]"')
        names = generator_names()
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise TaskError(f"reasoning-gym has no generator {name!r}{hint}")
        import reasoning_gym

        try:
            self._dataset = reasoning_gym.create_dataset(name, seed=0, size=_INDICES, **settings)
        except (AssertionError, TypeError, ValueError) as error:
            raise TaskError(f"settings {dict(settings)} are refused: {error}") from error

    def training(self, rng: np.random.Generator, count: int) -> list[Generated]:
        """`count` problems that are not held out."""
        return [
            self._next(lambda: int(rng.integers(_INDICES)), held_out=False) for _ in range(count)
        ]

    def held_out(self, count: int) -> list[Generated]:
        """The first `count` problems of the held-out set, all different."""
        index = iter(range(HELD_OUT_SEED, _INDICES))
        draw = partial(self._next, partial(next, index), held_out=True)
        return first_distinct(draw, lambda generated: generated[0], count)

    def _next(self, index: Callable[[], int], held_out: bool) -> Generated:
        for _ in range(_PATIENCE):
            entry = self._dataset[index()]
            if is_held_out(entry["question"]) == held_out:
                return entry["question"], str(entry["answer"]), partial(self._right, entry)
        raise TaskError(
            "it has too few different problems to hold some out: choose settings with more"
        )

    def _right(self, entry: Entry, answer: str) -> bool:
        # Generators pay a part for answers that merely contain the right one.
        return float(self._dataset.score_answer(answer, entry=entry)) >= 1.0
