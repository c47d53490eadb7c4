"""Recipes by name: modules of this package, entry points, and files given with --plugin."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

ENTRY_POINT_GROUP = "redline.algorithms"

_RECIPES: dict[str, type[Any]] = {}
_discovered = False

T = TypeVar("T", bound=type[Any])


class UnknownAlgorithm(ValueError):
    """A name that no recipe carries; the message gives the nearest ones."""


class PluginError(ValueError):
    """A plugin file that cannot be used, with the file and the line at fault."""


def register(name: str) -> Callable[[T], T]:
    """Class decorator: make a frozen dataclass with `build() -> Algorithm` a recipe.

    Args:
        name: Lower-case name used on the command line and in results.

    Raises:
        ValueError: The name is taken.
    """

    def add(recipe: T) -> T:
        if name in _RECIPES:
            taken = f"{_RECIPES[name].__module__}.{_RECIPES[name].__qualname__}"
            raise ValueError(f"algorithm {name!r} is registered already by {taken}")
        _RECIPES[name] = recipe
        return recipe

    return add


def discover() -> None:
    """Import every recipe module of this package and every installed entry point, once."""
    global _discovered
    if _discovered:
        return
    _discovered = True
    package = importlib.import_module("redline.algorithms")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg and module.name != "registry":
            importlib.import_module(f"redline.algorithms.{module.name}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        entry.load()


def load_plugin(path: str | Path) -> None:
    """Execute a Python file that registers recipes; a file already loaded is not run again.

    Raises:
        PluginError: No such file, it raises, or it registers nothing.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise PluginError(f"plugin {str(path)!r}: no such file")
    name = f"redline_plugin_{file.stem}_{abs(hash(str(file))):x}"
    if name in sys.modules:
        return
    discover()
    before = set(_RECIPES)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"plugin {str(path)!r}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise PluginError(
            f"plugin {_place(error, file)}: {type(error).__name__}: {error}"
        ) from error
    if set(_RECIPES) == before:
        raise PluginError(f"plugin {str(path)!r} registers no algorithm; use @register(name)")


def _place(error: Exception, file: Path) -> str:
    """`file:line` of the innermost frame that lies in the plugin."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{file.name}:{error.lineno}"
    line, traceback = 0, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(file):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f"{file.name}:{line}" if line else file.name


def names() -> list[str]:
    """All recipe names, sorted."""
    discover()
    return sorted(_RECIPES)


def get(name: str) -> type[Any]:
    """The recipe class called `name`.

    Raises:
        UnknownAlgorithm: With the nearest names.
    """
    discover()
    if name not in _RECIPES:
        near = difflib.get_close_matches(name, _RECIPES, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(sorted(_RECIPES))}"
        raise UnknownAlgorithm(f"unknown algorithm {name!r}; {hint}")
    return _RECIPES[name]
