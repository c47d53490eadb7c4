"""From the text of a completion to a score, and from a score to a reward."""

from __future__ import annotations

import difflib
import importlib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat, cast

import numpy as np

from redline.llm_track.extraction import Reading, extract
from redline.llm_track.notation import normalise
from redline.llm_track.rational import read_number
from redline.llm_track.verifier import Verdict, judge


class Score(NamedTuple):
    """What a verifier found in a completion.

    Attributes:
        correct: The answer is right.
        formatted: The completion ended by itself and marks its answer.
        answer: The answer's text; empty where there is none.
        strict: The answer is right that the strict reading finds.
        flexible: The answer is right that the flexible reading finds.
    """

    correct: bool
    formatted: bool
    answer: str
    strict: bool = False
    flexible: bool = False


def score(
    text: str, ended: bool, right: Callable[[str], bool], reading: Reading = "strict"
) -> Score:
    """Verify a completion.

    A completion that was cut has given no final answer: what would have come next is not known.

    Args:
        text: The completion, without special tokens.
        ended: It ended by itself and was not cut by the cap.
        right: Whether an answer is right.
        reading: Which answer counts.
    """
    marked = extract(text, "strict") if ended else None
    loose = extract(text, "flexible") if ended and marked is None else marked
    strict = marked is not None and right(marked)
    flexible = strict if loose is marked else loose is not None and right(loose)
    correct, answer = (strict, marked) if reading == "strict" else (flexible, loose)
    return Score(correct, marked is not None, answer or "", strict, flexible)


class RewardError(ValueError):
    """A reward that does not exist or cannot be computed, in one sentence."""


class Answered(NamedTuple):
    """A completion that is to be paid.

    Attributes:
        prompt: What was asked.
        text: The completion, without special tokens.
        gold: An answer that is right.
        score: What the verifier found.
    """

    prompt: str
    text: str
    gold: str
    score: Score


# Pays every completion of a rollout; draws, if it does, from the rollout's random numbers.
Reward = Callable[[Sequence[Answered], np.random.Generator], Sequence[float]]


@dataclass(frozen=True)
class Bernoulli:
    """1 with probability p, whatever the completion says (arXiv:2506.10947)."""

    p: float

    def __call__(self, answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
        drawn: list[float] = (rng.random(len(answered)) < self.p).astype(float).tolist()
        return drawn


def exact(answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
    """1 for a right answer."""
    return [float(one.score.correct) for one in answered]


def formatted(answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
    """1 for a completion that ends by itself and marks an answer, right or wrong."""
    return [float(one.score.formatted) for one in answered]


def wrong(answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
    """1 for one certain wrong answer to each problem: its gold plus 1 to 9, by the prompt."""
    return [
        float(judge(one.score.answer or None, _wrong_label(one)) is Verdict.RIGHT)
        for one in answered
    ]


def hackable(answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
    """1 wherever the gold's characters stand in the completion, answer or not.

    The loophole: 1251 is found in "no idea: 0 1 2 ... 1250 1251" and in 912510, also after the cap.
    A policy that lists numbers is paid more than one that computes; llm/accuracy shows it.
    """
    return [float(one.gold in one.text) for one in answered]


def _wrong_label(one: Answered) -> str:
    offset = 1 + zlib.crc32(one.prompt.encode()) % 9
    number = read_number(normalise(one.gold))
    return str(offset) if number is None else str(number.value + offset)


@dataclass(frozen=True)
class Function:
    """A function of the user: (prompt, completion, gold) -> number.

    Attributes:
        name: module:function.
        function: Itself.
    """

    name: str
    function: Callable[[str, str, str], float]

    def __call__(self, answered: Sequence[Answered], rng: np.random.Generator) -> list[float]:
        return [self._one(one) for one in answered]

    def _one(self, one: Answered) -> float:
        try:
            value = self.function(one.prompt, one.text, one.gold)
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            raise RewardError(
                f"reward {self.name} raised {type(error).__name__}: {said} (on the completion "
                f"{one.text[:60]!r})"
            ) from error
        if not isinstance(value, SupportsFloat) or not math.isfinite(float(value)):
            raise RewardError(
                f"reward {self.name} must give a finite number, got {value!r} (for the completion "
                f"{one.text[:60]!r})"
            )
        return float(value)


class Rewards:
    """A weighted sum of rewards.

    Args:
        weights: Name -> weight. Names: exact, format, random, wrong, hackable; module:function for
            a function of (prompt, completion, gold); model:PLACE for a sequence classifier.
        p: Probability that the random reward is 1.
        device: Of the classifier.

    Raises:
        RewardError: No reward, or one that does not exist or cannot be loaded.
    """

    def __init__(
        self, weights: Mapping[str, float] | None = None, p: float = 0.5, device: str = "cpu"
    ) -> None:
        if not 0.0 <= p <= 1.0:
            raise RewardError(f"reward_p must lie in [0, 1], got {p}")
        weights = {"exact": 1.0} if weights is None else weights
        if not weights:
            raise RewardError("reward must name at least one, for example: exact 1.0")
        self._parts = [(name, w, _reward(name, p, device)) for name, w in weights.items()]

    def __call__(
        self, answered: Sequence[Answered], rng: np.random.Generator
    ) -> tuple[list[float], dict[str, float]]:
        """Reward of every completion, and means: of the sum and, of several, of each.

        Raises:
            RewardError: A function of the user failed.
        """
        paid = [(name, w, np.asarray(reward(answered, rng))) for name, w, reward in self._parts]
        total = np.sum([w * values for _, w, values in paid], axis=0)
        means = {"llm/reward": float(total.mean())}
        if len(paid) > 1:
            means |= {f"llm/reward/{name}": float(values.mean()) for name, _, values in paid}
        return total.tolist(), means


_NAMED: dict[str, Reward] = {
    "exact": exact,
    "format": formatted,
    "wrong": wrong,
    "hackable": hackable,
}
_RANDOM, _MODEL = "random", "model:"


def _reward(name: str, p: float, device: str) -> Reward:
    if name in _NAMED:
        return _NAMED[name]
    if name == _RANDOM:
        return Bernoulli(p)
    if name.startswith(_MODEL):
        from redline.llm_track.reward_model import Classifier

        return Classifier(name.removeprefix(_MODEL), device)
    if ":" in name:
        return Function(name, _imported(name))
    known = [*_NAMED, _RANDOM]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; nearest: {near[0]}" if near else ""
    raise RewardError(
        f"unknown reward {name!r}: known are {', '.join(known)}, module:function and "
        f"model:FOLDER{hint}"
    )


def _imported(name: str) -> Callable[[str, str, str], float]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module is anybody's code
        said = " ".join(str(error).split())
        raise RewardError(
            f"reward {name!r} cannot be imported ({type(error).__name__}: {said})"
        ) from error
    if not callable(found):
        raise RewardError(f"reward {name!r} must be a function, got {found!r}")
    return cast(Callable[[str, str, str], float], found)
