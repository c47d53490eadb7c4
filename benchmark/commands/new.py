"""`redline new`: a file with a method of your own, and its test."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import tyro

from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse

_DESCRIPTION = (
    "Write NAME.py, a method that works and waits to be changed, and test_NAME.py, its test."
)


@dataclass(frozen=True)
class NewConfig:
    """Settings of `redline new`.

    Attributes:
        name: Of the method: lower-case letters, digits and underscores.
        out: Folder of the two files.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    out: Path = Path()


def main(arguments: Sequence[str]) -> int:
    """Write the two files, and say what to do with them."""
    config = parse(NewConfig, arguments, prog="redline new", description=_DESCRIPTION)
    name = _checked(config.name)
    recipe, test = config.out / f"{name}.py", config.out / f"test_{name}.py"
    for file in (recipe, test):
        if file.exists():
            raise BadInput(f"{file} is there already; choose another name or --out")
    title = name.replace("_", " ").capitalize()
    values = {
        "name": name,
        "file": recipe.name,
        "class_name": "".join(map(str.capitalize, name.split("_"))),
        "title": title,
    }
    folder = files("redline.benchmark") / "scaffold"
    config.out.mkdir(parents=True, exist_ok=True)
    for file, source in ((recipe, "recipe.txt"), (test, "test.txt")):
        text = Template((folder / source).read_text(encoding="utf-8")).substitute(values)
        file.write_text(text, encoding="utf-8")
    print(f"wrote {recipe} and {test}")
    print(f"test it:     pytest {test}")
    print(f"train it:    redline run {name} --plugin {recipe} --task CartPole-v1")
    print(
        f"compare it:  redline compare {name} ppo --plugin {recipe} --task CartPole-v1 --seeds 10"
    )
    return 0


def _checked(name: str | None) -> str:
    """The name, if a method, a module and a class can carry it."""
    if name is None:
        raise BadInput("say a name: redline new NAME")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise BadInput(
            f"NAME must be lower-case letters, digits and underscores, such as my_ppo, got {name!r}"
        )
    from redline.algorithms import registry

    if name in registry.names():
        raise BadInput(f"there is an algorithm {name!r} already; choose another name")
    return name
