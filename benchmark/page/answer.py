"""The answer of a page: what every method reached, how sure that is, and how it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redline.benchmark.comparison import judgements, samples
from redline.benchmark.formats import brackets, number
from redline.benchmark.page import figures
from redline.benchmark.page.sections import Page, Picture
from redline.benchmark.stats import Summary, summarise
from redline.benchmark.tables import methods_of, seeds
from redline.benchmark.tracks import track_of

# Words alone could be taken for colours of a traffic light; signs are seen without colour.
_SIGNS = {"better": "▲", "worse": "▼", "cannot tell": "≈", "too few seeds": "…"}


@dataclass(frozen=True)
class Row:
    """A method on one task.

    Attributes:
        method: Its name.
        seeds: How many runs count.
        mean: Result, over seeds.
        interval: Of the mean, 95%.
        gain: Difference to the baseline with its interval, "" for the baseline itself.
        word: The verdict in a word, "baseline" for the baseline, "" where there is none.
        more: What to know about it.
        sign: The verdict as a sign.
    """

    method: str
    seeds: str
    mean: str
    interval: str
    gain: str = ""
    word: str = ""
    more: str = ""
    sign: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer on one task.

    Attributes:
        task: Its name.
        measure: What is compared, and with whom.
        rows: A method each.
    """

    task: str
    measure: str
    rows: Sequence[Row]


def answer(page: Page, task: str) -> Answer:
    """What every method reached on a task."""
    track, how = track_of(task), page.said.how
    by = "final" if how is None else how.by
    found = samples(page.said.results, task, by)
    verdicts = {} if how is None else judgements(page.said.results, task, how)
    rows = []
    for method, runs in methods_of(page.said.results, task):
        summary = summarise(found[method].numbers)
        row = Row(method, seeds(runs), number(summary.mean), _interval(summary))
        if how is not None and method == how.baseline:
            row = Row(method, row.seeds, row.mean, row.interval, word="baseline")
        elif (one := verdicts.get(method)) is not None:
            gap = number(one.difference.mean, sign=True)
            gain = f"{gap} {brackets(one.difference.interval, one.n)}"
            more = one.text.removeprefix(one.word).strip(" ()")
            row = Row(
                method, row.seeds, row.mean, row.interval, gain, one.word, more, _SIGNS[one.word]
            )
        rows.append(row)
    curve = "last evaluation" if by == "final" else "mean of the learning curve"
    return Answer(task, f"{track.measure} ({track.policies[0]}, {curve})", rows)


def _interval(summary: Summary) -> str:
    return brackets(summary.mean_interval, summary.n) if summary.n else "n/a"


def lead(page: Page) -> list[Picture]:
    """The figure of the first screen: a single task's learning curves, or results on every task."""
    results, tasks = page.said.results, page.said.results.tasks
    by = "final" if page.said.how is None else page.said.how.by
    if len(tasks) == 1:
        track = track_of(tasks[0])
        title = f"{track.measure}, mean and 95% t interval over seeds"
        drawn = figures.curve(
            results.evals,
            track.headline,
            page.styles,
            title=title,
            unit=track.unit,
            wide=True,
        )
        return page.fit([drawn])
    return page.fit(
        [
            figures.intervals(
                {name: one.numbers for name, one in samples(results, task, by).items()},
                page.styles,
                title=f"{task}: {by} {track_of(task).quantity}",
            )
            for task in tasks
        ]
    )
