"""What a page is made of; a section is anything that a reader of results should see together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redline.benchmark.contents import Contents
from redline.benchmark.tables import Table


@dataclass(frozen=True)
class Picture:
    """A figure as the page holds it.

    Attributes:
        source: Data URI.
        title: Shown above it, and read out where it cannot be seen.
    """

    source: str
    title: str


@dataclass(frozen=True)
class Matrix:
    """A share for every pair of methods.

    Attributes:
        title: What it shows.
        names: Of rows and columns.
        cells: Row by row; None on the diagonal and where there is nothing to compare.
    """

    title: str
    names: Sequence[str]
    cells: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; whatever it lacks takes no room.

    Attributes:
        title: Heading.
        prose: Paragraphs; *emphasis* and `code` as in Markdown.
        tables: Shown one after the other.
        pictures: Shown side by side where there is room.
        matrix: Shown after the tables.
        lines: A list.
        code: What was typed.
        folded: Tables that open on request.
    """

    title: str
    prose: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    matrix: Matrix | None = None
    lines: Sequence[str] = ()
    code: str = ""
    folded: Sequence[Table] = ()


@dataclass
class Page:
    """What every section is made from.

    Attributes:
        said: What the report says.
        styles: Method -> colour and dashes.
        room: Bytes that pictures may still take; those that come after are left out.
        left_out: How many were.
    """

    said: Contents
    styles: Mapping[str, Mapping[str, Any]]
    room: int = 2_300_000
    left_out: int = field(default=0, init=False)

    def fit(self, pictures: Sequence[Picture | None], spare: int = 0) -> list[Picture]:
        """Those that there are, as long as there is room and more than `spare` bytes stay of it."""
        kept = []
        for picture in pictures:
            if picture is None:
                continue
            if len(picture.source) > self.room - spare:
                self.left_out += 1
            else:
                self.room -= len(picture.source)
                kept.append(picture)
        return kept
