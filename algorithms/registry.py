"""Recipes by name: modules of this package, entry points, and files given with --plugin."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import importlib.metadata
import pkgutil
import re
import sys
import traceback
import types
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ENTRY_POINT_GROUP = "redline.algorithms"


class Plugin(NamedTuple):
    """The file that a recipe comes from, and a hash of the code that was run."""

    file: Path
    code: str


_RECIPES: dict[str, type[Any]] = {}
_PLUGINS: dict[str, Plugin] = {}
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
        ValueError: The name is taken, or what it stands for is no recipe.
    """

    def add(recipe: T) -> T:
        if not (isinstance(name, str) and re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name)):
            raise ValueError(f"the name of an algorithm is lower-case letters, got {name!r}")
        if name in _RECIPES:
            taken = f"{_RECIPES[name].__module__}.{_RECIPES[name].__qualname__}"
            raise ValueError(f"algorithm {name!r} is registered already by {taken}")
        _require_recipe(name, recipe)
        _RECIPES[name] = recipe
        return recipe

    return add


def _require_recipe(name: str, recipe: Any) -> None:
    """Refuse at the decorator's line what would fail far from it."""
    called = getattr(recipe, "__name__", repr(recipe))
    # Of the class itself: a base that is a dataclass would hide a forgotten decorator.
    if not (isinstance(recipe, type) and "__dataclass_fields__" in vars(recipe)):
        raise ValueError(
            f"algorithm {name!r} must be a dataclass, got {called}; "
            "write @register above @dataclass(frozen=True)"
        )
    if not callable(getattr(recipe, "build", None)):
        raise ValueError(f"algorithm {name!r}: {called} needs a method build() -> Algorithm")
    for field in dataclasses.fields(recipe):
        absent = field.default is dataclasses.MISSING
        if absent and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"algorithm {name!r}: field {field.name!r} needs a default")


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
        why = "a folder, not a file" if file.is_dir() else "no such file"
        raise PluginError(f"plugin {str(path)!r}: {why}")
    name = f"redline_plugin_{file.stem}_{abs(hash(str(file))):x}"
    if name in sys.modules:
        return
    discover()
    before = set(_RECIPES)
    # Not by an import: a stale cache of bytecode could then run other code than is hashed.
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        source = file.read_bytes()
        exec(compile(source, str(file), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        for half_loaded in set(_RECIPES) - before:
            del _RECIPES[half_loaded]
        raise PluginError(
            f"plugin {_place(error, file)}: {type(error).__name__}: {_one_line(error)}"
        ) from error
    if set(_RECIPES) == before:
        del sys.modules[name]
        raise PluginError(f"plugin {str(path)!r} registers no algorithm; use @register(name)")
    code = hashlib.sha256(source).hexdigest()[:16]
    _PLUGINS.update((added, Plugin(file, code)) for added in set(_RECIPES) - before)


def plugin_code(name: str) -> str | None:
    """Hash of the plugin file that registers `name`; None for every other recipe."""
    return _PLUGINS[name].code if name in _PLUGINS else None


def fault(name: str, error: BaseException) -> PluginError | None:
    """What a recipe raised, with its place in the plugin; None for a recipe of no plugin."""
    if name not in _PLUGINS:
        return None
    where = _place(error, _PLUGINS[name].file)
    return PluginError(f"algorithm {name!r} ({where}): {type(error).__name__}: {_one_line(error)}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _place(error: BaseException, file: Path) -> str:
    """`file:line` of the innermost frame that lies in the plugin."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file.name}:{error.lineno}"
    return _innermost(error, {file}) or file.name


def place(error: BaseException) -> str | None:
    """`file:line` of the innermost frame that lies in a plugin; None where there is none."""
    return _innermost(error, {plugin.file for plugin in _PLUGINS.values()})


def _innermost(error: BaseException, files: Set[Path]) -> str | None:
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename) in files:
            found = f"{Path(frame.filename).name}:{frame.lineno}"
    return found


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
        near = difflib.get_close_matches(name.lower(), _RECIPES, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(sorted(_RECIPES))}"
        raise UnknownAlgorithm(f"unknown algorithm {name!r}; {hint}")
    return _RECIPES[name]
