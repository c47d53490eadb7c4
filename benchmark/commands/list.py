"""`redline list`: what there is to run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

import tyro

from redline.benchmark.errors import unknown
from redline.benchmark.parsing import parse

_DESCRIPTION = "List algorithms, tasks and suites with one line about each."

# Tasks of Gymnasium that need a package beyond ours, by the folder of their code.
_NEEDS = {"box2d": "Box2D", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}
# Its observations are a Tuple, which no policy here takes.
_UNSUPPORTED = ("Blackjack",)


@dataclass(frozen=True)
class ListConfig:
    """Settings of `redline list`.

    Attributes:
        what: "algorithms" (external baselines too), "tasks" or "suites"; all of them where it is
            left out.
        json: Print one JSON object instead: kind -> name -> description.
    """

    what: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="KIND")] = None
    json: bool = False


def main(arguments: Sequence[str]) -> int:
    """Print names with one line about each."""
    config = parse(ListConfig, arguments, prog="redline list", description=_DESCRIPTION)
    if config.what is not None and config.what not in _LISTS:
        raise unknown("list", config.what, _LISTS)
    kinds = [config.what] if config.what else list(_LISTS)
    if config.what == "algorithms":
        kinds.append("baselines")
    found = {kind: _LISTS[kind]() for kind in kinds}
    if config.json:
        print(json.dumps(found, indent=1))
        return 0
    for kind, names in found.items():
        if len(found) > 1:
            print(f"{kind}:")
        width = max(map(len, names), default=0)
        for name, text in names.items():
            print(f"  {name:{width}}  {text}".rstrip())
    return 0


def _algorithms() -> dict[str, str]:
    from redline.algorithms import registry

    return {
        name: (registry.get(name).__doc__ or "").partition("\n")[0] for name in registry.names()
    }


def _baselines() -> dict[str, str]:
    from redline.benchmark.baselines import catalogue

    return {name: catalogue.describe(name) for name in catalogue.names()}


def _tasks() -> dict[str, str]:
    """Language tasks; Gymnasium's own in their newest version, if their packages are there."""
    import gymnasium as gym

    from redline.envs.tasks import task_names
    from redline.llm_track.tasks import ARITHMETIC, REASONING_GYM

    found = {
        ARITHMETIC: "sums of two 3-digit numbers; --digits and --operands make others",
        f"{REASONING_GYM}NAME": "a generator of reasoning-gym, such as llm:rg:chain_sum",
        "llm:gsm8k": "word problems of primary school, from the hub or --data FILE.jsonl",
        "llm:math": "competition mathematics, from the hub or --data FILE.jsonl",
        "llm:FILE.jsonl": "questions of your own; --question-column and --answer-column name them",
    }
    specs = [gym.spec(name) for name in task_names()]
    newest: dict[tuple[str | None, str], int] = {}
    for spec in specs:
        key = spec.namespace, spec.name
        newest[key] = max(newest.get(key, 0), spec.version or 0)
    for spec in specs:
        folder = str(spec.entry_point).split(".")[2]
        missing = folder in _NEEDS and find_spec(_NEEDS[folder]) is None
        old = (spec.version or 0) < newest[spec.namespace, spec.name]
        # Without a time limit a policy may never end an evaluation episode.
        endless = spec.max_episode_steps is None
        if not (missing or old or endless or spec.name in _UNSUPPORTED):
            found[spec.id] = f"at most {spec.max_episode_steps:,} steps per episode"
    return found


def _suites() -> dict[str, str]:
    from redline.benchmark import suite_files

    found = {}
    for name in suite_files.shipped():
        one = suite_files.read(name)
        runs = sum(len(row.tasks) * len(row.seeds) for row in one.variants)
        size = f"{runs} runs on {', '.join(one.tasks)}"
        found[name] = f"{one.question} ({size})" if one.question else size
    return found


_LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "algorithms": _algorithms,
    "baselines": _baselines,
    "tasks": _tasks,
    "suites": _suites,
}
