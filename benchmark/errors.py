"""Errors that a user can mend: one sentence, exit code 2."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable

from redline.algorithms import registry


class BadInput(ValueError):
    """Something the user asked for cannot be done; the message is shown without a traceback."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """An error that names the value and the nearest valid ones."""
    options = sorted(known)
    folded = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.4)
    near = [folded[option] for option in close]
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(options)}"
    return BadInput(f"unknown {kind} {name!r}; {hint}")


def as_flag(name: str) -> str:
    """A setting as the command line spells it."""
    return f"--{name.replace('_', '-')}"


def spelled(text: str, settings: Container[str]) -> str:
    """A sentence with the names of settings as flags, where they cannot be taken for words.

    Args:
        text: What a part says that knows no command line: "group_size must be at least 2".
        settings: Dotted names.
    """

    def flag(found: re.Match[str]) -> str:
        name, asked = found["name"], found["asked"]
        is_name = name in settings and bool(asked or "_" in name)
        return (as_flag(name) if is_name else name) + asked

    return re.sub(r"(?<![-\w./'])(?P<name>[a-z][a-z0-9_.]*\w)(?P<asked>(?: must\b)?)", flag, text)


def describe(error: BaseException) -> str:
    """One text for an exception: its type unless it is one of ours, and its place in a plugin."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    kind = type(error)
    if kind.__module__.startswith("redline."):
        return str(error)
    first, line_break, rest = str(error).partition("\n")
    where = registry.place(error)
    return f"{kind.__name__}: {first}{f' ({where})' if where else ''}{line_break}{rest}"


def first_line(text: str) -> str:
    """What of an error fits into a list."""
    return text.partition("\n")[0]
