"""Command-line arguments over the fields of a dataclass; whatever does not fit is one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from redline.benchmark.errors import BadInput, unknown

T = TypeVar("T")

_SINGULAR = {int: "a whole number", float: "a number", str: "text", Path: "a path"}
_PLURAL = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


def parse(
    kind: type[T],
    arguments: Sequence[str],
    *,
    prog: str,
    description: str,
    flags: Mapping[str, Any] | None = None,
) -> T:
    """An instance of the dataclass `kind` from command-line arguments, by tyro.

    Args:
        kind: Fields with defaults become flags, `tyro.conf.Positional` ones arguments.
        arguments: What follows the command's name.
        prog: The command as the user typed it.
        description: First paragraph of the help.
        flags: Dotted name -> type of every flag; None: those of `kind`.

    Raises:
        BadInput: An unknown flag, or a value that does not parse or that `kind` refuses.
        SystemExit: With code 0, after --help was printed.
    """
    import tyro

    flags = flat_types(kind) if flags is None else flags
    _check_names(arguments, flags)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, strays = tyro.cli(
                kind,
                args=list(arguments),
                prog=prog,
                description=description,
                return_unknown_args=True,
            )
    except ValueError as error:
        raise BadInput(str(error)) from error
    except SystemExit as error:
        if not error.code:
            raise
        reason = _reason(error, complaint.getvalue(), arguments, flags)
        raise BadInput(reason or f"{prog} --help shows what is expected") from None
    if strays:
        raise BadInput(f"unexpected argument {strays[0]!r}; {prog} --help shows what is expected")
    return parsed


def option(arguments: Sequence[str], name: str) -> list[str]:
    """Values that follow a flag, read before the parser that depends on it can be built."""
    found: list[str] = []
    for i, argument in enumerate(arguments):
        head, equals, rest = argument.partition("=")
        if head.replace("_", "-") != f"--{name}":
            continue
        if equals:
            found.append(rest)
        else:
            for value in arguments[i + 1 :]:
                if value.startswith("--"):
                    break
                found.append(value)
    return found


def flat_types(kind: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name -> type of every leaf of a nested dataclass that is a flag."""
    import tyro

    hints = get_type_hints(kind, include_extras=True)
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if tyro.conf.Positional in getattr(hints[field.name], "__metadata__", ()):
            continue
        hint = _plain(hints[field.name])
        if dataclasses.is_dataclass(hint):
            leaves |= flat_types(hint, f"{prefix}{field.name}.")
        else:
            leaves[prefix + field.name] = hint
    return leaves


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _check_names(arguments: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Refuse an unknown flag with the nearest ones."""
    known = {"--help", *(_as_flag(name) for name in flags)}
    for name, hint in flags.items():
        if hint is bool:
            head, dot, last = name.rpartition(".")
            known.add(_as_flag(f"{head}{dot}no_{last}"))
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in known:
            raise unknown("flag", flag, known)


def _as_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _reason(
    error: SystemExit, complaint: str, arguments: Sequence[str], flags: Mapping[str, Any]
) -> str | None:
    """Why tyro gave up: the value of the flag that it names, or a dataclass that raised."""
    named = re.search(r"--[\w.-]*\w", complaint)
    hint = {_as_flag(name): hint for name, hint in flags.items()}.get(named[0]) if named else None
    if named is None or hint is None:
        cause = error.__context__
        while cause is not None and not isinstance(cause, ValueError):
            cause = cause.__context__
        return str(cause) if cause else None
    values = option(arguments, named[0][2:])
    if not values:
        return f"{named[0]} needs a value: {_expected(hint)}"
    got = " ".join(values)
    near = difflib.get_close_matches(got, map(str, _choices(hint)), n=1, cutoff=0.4)
    nearest = f"; nearest: {near[0]}" if near else ""
    return f"{named[0]} must be {_expected(hint)}, got {got!r}{nearest}"


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _expected(hint: Any) -> str:
    hint, origin = _plain(hint), get_origin(_plain(hint))
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if origin in (Union, types.UnionType):
        return " or ".join(
            "None" if part is type(None) else _expected(part) for part in get_args(hint)
        )
    if origin is tuple:
        return _PLURAL.get(_plain(get_args(hint)[0]), "values")
    return _SINGULAR.get(hint, f"a value of type {getattr(hint, '__name__', hint)}")
