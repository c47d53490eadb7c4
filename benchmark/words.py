"""Words around numbers."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """A number of things, for example "1 note" and "2 notes"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
