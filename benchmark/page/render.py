"""The page as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from redline.benchmark import report
from redline.benchmark.baselines.catalogue import footnote
from redline.benchmark.contents import Contents
from redline.benchmark.page.answer import answer, lead
from redline.benchmark.page.parts import sections
from redline.benchmark.page.sections import Page
from redline.benchmark.panels import styles_of

_TEMPLATE = "report.html.j2"


def render(root: Path, said: Contents) -> str:
    """The whole page.

    Args:
        root: Folder of the runs; its name is the title where no suite has one.
        said: What the report says.
    """
    results = said.results
    page = Page(said, styles_of(results.methods))
    answers = [answer(page, task) for task in results.tasks]
    # The figure of the first screen has the first claim to room.
    first = lead(page)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("redline.benchmark.page", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"prose": _prose, "shade": _shade, "ident": _ident}
    environment.globals["swatch"] = lambda method: _swatch(page, method)
    return environment.get_template(_TEMPLATE).render(
        title=report.title(root, results),
        questions=report.questions(results),
        setup=report.setups(results),
        footnote=footnote(results.records),
        how=said.how,
        methods=results.methods,
        answers=answers,
        lead=first,
        sections=sections(page),
    )


def _prose(text: str) -> Markup:
    """*Emphasis* and `code` of a paragraph."""
    safe = str(escape(" ".join(text.split())))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return Markup(re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", safe))


def _shade(share: float | None) -> str:
    """Background of a share: blue above one half, orange below, the stronger the farther."""
    if share is None:
        return "none"
    red, green, blue = (0, 114, 178) if share >= 0.5 else (213, 94, 0)
    return f"rgba({red},{green},{blue},{abs(share - 0.5) * 1.2:.2f})"


def _ident(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _swatch(page: Page, method: str) -> Markup:
    """A piece of a method's line; nothing for what is no method."""
    if method not in page.styles:
        return Markup("")
    style: Any = page.styles[method]
    solid = style["linestyle"] == "-"
    dashes = "" if solid else " ".join(str(3 * length) for length in style["linestyle"][1])
    return Markup(
        '<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true"><line x1="0" y1="4" x2="26" '
        'y2="4" stroke="{}" stroke-width="3" stroke-dasharray="{}"/></svg>'
    ).format(style["color"], dashes)
