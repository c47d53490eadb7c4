"""Errors that a user can mend: one sentence, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """Something the user asked for cannot be done; the message is shown without a traceback."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """An error that names the value and the nearest valid ones."""
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=3, cutoff=0.4)
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(options)}"
    return BadInput(f"unknown {kind} {name!r}; {hint}")
