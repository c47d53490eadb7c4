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

from redline.benchmark.errors import BadInput, as_flag, spelled, unknown

T = TypeVar("T")

_SINGULAR = {int: "a whole number", float: "a number", str: "text", Path: "a path"}
_PLURAL = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


# Names of the same settings in Stable-Baselines3 and CleanRL, and ours where those are meant.
_ELSEWHERE = {
    "--learning-rate": "--lr",
    "--total-timesteps": "--steps",
    "--env-id": "--task",
    "--env": "--task",
    "--clip-range": "--clip.high",
    "--clip-coef": "--clip.high",
    "--batch-size": "--minibatch-size",
    "--n-epochs": "--epochs",
    "--update-epochs": "--epochs",
    "--num-steps": "--n-steps",
    "--num-envs": "--n-envs",
    "--ent-coef": "--entropy-coef",
    "--lr": "--learning-rate",
    "--clip.high": "--clip-range",
    "--minibatch-size": "--batch-size",
    "--epochs": "--n-epochs",
    "--entropy-coef": "--ent-coef",
    "--delta": "--target-kl",
}


_NUMBER_OR_NONE = (int | None, float | None)


def parse(
    kind: type[T],
    arguments: Sequence[str],
    *,
    prog: str,
    description: str,
    flags: Mapping[str, Any] | None = None,
    elsewhere: Mapping[str, str] | None = None,
) -> T:
    """An instance of the dataclass `kind` from command-line arguments, by tyro.

    Args:
        kind: Fields with defaults become flags, `tyro.conf.Positional` ones arguments.
        arguments: What follows the command's name.
        prog: The command as the user typed it.
        description: First paragraph of the help.
        flags: Dotted name -> type of every flag; None: those of `kind`.
        elsewhere: Dotted name of a flag that is missing or of no use here -> what it belongs to.

    Raises:
        BadInput: An unknown flag, or a value that does not parse or that `kind` refuses.
        SystemExit: With code 0, after --help was printed.
    """
    import tyro

    flags = flat_types(kind) if flags is None else flags
    _check_names(arguments, flags, elsewhere or {})
    _check_lists(arguments, flags)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, strays = tyro.cli(
                kind,
                args=_capital_none(arguments, flags),
                prog=prog,
                description=description,
                return_unknown_args=True,
                registry=_whole_numbers(),
            )
    except ValueError as error:
        raise BadInput(spelled(str(error), flags)) from error
    except SystemExit as error:
        if not error.code:
            raise
        why = _reason(error, complaint.getvalue(), arguments, flags)
        raise BadInput(why or f"{prog} --help shows what is expected") from None
    if strays:
        stray = f"unexpected argument {strays[0]!r}{_after(strays[0], arguments, flags)}"
        raise BadInput(f"{stray}; {prog} --help shows what is expected")
    return parsed


def _whole_numbers() -> Any:
    """A rule of tyro's: every int may also be written 1e6."""
    from tyro import constructors

    registry = constructors.ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: constructors.PrimitiveTypeInfo) -> Any:
        if info.type is not int:
            return None
        return constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda texts: _whole(texts[0]),
            is_instance=lambda instance: isinstance(instance, int),
            str_from_instance=lambda instance: [str(instance)],
        )

    return registry


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not value.is_integer():
        raise ValueError(f"expected a whole number, got {text}")
    return int(value)


def _capital_none(arguments: Sequence[str], flags: Mapping[str, Any]) -> list[str]:
    """`none` as tyro spells it, where a number or None is expected."""
    optional = {as_flag(name) for name, hint in flags.items() if hint in _NUMBER_OR_NONE}
    result: list[str] = []
    for argument in arguments:
        head, equals, value = argument.partition("=")
        before = result[-1] if result and not equals else head
        if before.replace("_", "-") in optional and (value or argument) == "none":
            argument = f"{head}=None" if equals else "None"
        result.append(argument)
    return result


def _after(stray: str, arguments: Sequence[str], flags: Mapping[str, Any]) -> str:
    """The flag that a stray argument follows, and how many values that takes."""
    for name, hint in flags.items():
        if stray in option(arguments, as_flag(name)[2:]):
            number = f"no value ({_negated(name)} switches it off)" if hint is bool else "one value"
            return f" after {as_flag(name)}, which takes {number}"
    return ""


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


def _check_names(
    arguments: Sequence[str], flags: Mapping[str, Any], elsewhere: Mapping[str, str]
) -> None:
    """Refuse an unknown flag with the nearest ones."""
    switches = {as_flag(name): _negated(name) for name, hint in flags.items() if hint is bool}
    known = {"--help", *map(as_flag, flags), *switches.values()}
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        flag = flag.replace("_", "-")
        if flag.startswith("--") and flag not in known:
            if _ELSEWHERE.get(flag) in known:
                raise BadInput(f"unknown flag {flag!r}; here it is {_ELSEWHERE[flag]}")
            others = {as_flag(name): owner for name, owner in elsewhere.items()}
            if flag in others:
                raise BadInput(f"unknown flag {flag!r} here: it belongs to {others[flag]}")
            raise unknown("flag", flag, known - others.keys())
        if equals and flag in switches:
            raise BadInput(f"{flag} takes no value; {switches[flag]} switches it off")


def _check_lists(arguments: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Refuse a list without entries, which would stand for all or for nothing."""
    given = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    for name, hint in flags.items():
        several = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) in (tuple, Mapping)]
        if several and as_flag(name) in given and not option(arguments, as_flag(name)[2:]):
            raise BadInput(f"{as_flag(name)} needs a value: {_expected(several[0])}")


def _negated(name: str) -> str:
    head, dot, last = name.rpartition(".")
    return as_flag(f"{head}{dot}no_{last}")


def _reason(
    error: SystemExit, complaint: str, arguments: Sequence[str], flags: Mapping[str, Any]
) -> str | None:
    """Why tyro gave up: the value of the flag that it names, or a dataclass that raised."""
    named = re.search(r"--[\w.-]*\w", complaint)
    hint = {as_flag(name): hint for name, hint in flags.items()}.get(named[0]) if named else None
    if named is None or hint is None:
        cause = error.__context__
        while cause is not None and not isinstance(cause, ValueError):
            cause = cause.__context__
        return spelled(str(cause), flags) if cause else None
    values = option(arguments, named[0][2:])
    if not values:
        return f"{named[0]} needs a value: {_expected(hint)}"
    got = " ".join(values)
    near = difflib.get_close_matches(got, _choices(hint), n=1, cutoff=0.4)
    if got.lower() == "none" and type(None) in get_args(hint):
        near = ["None"]
    nearest = f"; nearest: {near[0]}" if near else ""
    if get_origin(hint) is Mapping:
        nearest = f"; write it like this: {named[0]} {_in_pairs(values)}"
    return f"{named[0]} must be {_expected(hint)}, got {got!r}{nearest}"


def _in_pairs(values: Sequence[str]) -> str:
    """What was given, with 1 wherever a number is missing."""
    pairs: list[str] = []
    for value in " ".join(values).replace("=", " ").split():
        number = value.replace(".", "").isdigit()
        if number != bool(len(pairs) % 2):
            if number:
                continue
            pairs.append("1")
        pairs.append(value)
    return " ".join([*pairs, "1"] if len(pairs) % 2 else pairs)


def _choices(hint: Any) -> list[str]:
    return [str(choice) for choice in get_args(hint)] if get_origin(hint) is Literal else []


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
    if origin is Mapping:
        return f"names, each followed by {_SINGULAR.get(get_args(hint)[1], 'its value')}"
    return _SINGULAR.get(hint, f"a value of type {getattr(hint, '__name__', hint)}")
