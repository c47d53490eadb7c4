"""The sections of a page."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from redline.benchmark import report
from redline.benchmark.comparison import samples
from redline.benchmark.page import figures
from redline.benchmark.page.sections import Matrix, Page, Picture, Section
from redline.benchmark.records import (
    ANSWER_LENGTH,
    CLIP_FRACTION,
    CLIP_HI,
    ENTROPY,
    KL,
    KL_COEF,
    MIXTURE_ALPHA,
    OUTSIDE_BAND,
)
from redline.benchmark.scores import scores
from redline.benchmark.stats import probability_of_improvement
from redline.benchmark.tables import Table
from redline.benchmark.tracks import track_of

# Of more methods a matrix of pairs cannot be read.
_MOST_PAIRED = 16

# Bytes that the pictures of a task leave to those from inside the updates.
_FOR_UPDATES = 700_000

_DYNAMICS = (
    KL,
    CLIP_FRACTION,
    OUTSIDE_BAND,
    ENTROPY,
    ANSWER_LENGTH,
    CLIP_HI,
    KL_COEF,
    MIXTURE_ALPHA,
)


def _task(page: Page, task: str) -> Section:
    results, track = page.said.results, track_of(task)
    by = "final" if page.said.how is None else page.said.how.by
    found = {name: [one.numbers] for name, one in samples(results, task, by).items()}
    own = page.said.tables[task]
    curves = (track.headline, track.second)
    pictures: list[Picture | None] = [_evaluated(page, task, metric) for metric in curves]
    title, label = f"profile: share of runs that reach a {by}", f"{by} {track.quantity}"
    pictures.append(figures.profiles(found, page.styles, title=title, label=label))
    return Section(
        title=task,
        prose=[] if own.uncompared is None else [own.uncompared],
        tables=[table for table in (own.rewards, own.comparison) if table is not None],
        pictures=page.fit(pictures, spare=_FOR_UPDATES),
        matrix=_pairs({name: parts[0] for name, parts in found.items()}),
        folded=[table for table in (own.sampled, own.robust) if table is not None],
    )


def _evaluated(page: Page, task: str, metric: str) -> Picture | None:
    track, evals = track_of(task), page.said.results.evals
    policy = track.policies[metric != track.headline]
    return figures.curve(
        evals[evals["task"] == task],
        metric,
        page.styles,
        title=f"{track.quantity} of the {policy}",
        unit=track.unit,
    )


def _pairs(found: dict[str, list[float]]) -> Matrix | None:
    names = [name for name, values in found.items() if values]
    if not 2 <= len(names) <= _MOST_PAIRED:
        return None
    cells = [
        [
            None if row == column else probability_of_improvement([found[row]], [found[column]])
            for column in names
        ]
        for row in names
    ]
    return Matrix("P(better): chance that a run of the row beats one of the column", names, cells)


def _dynamics(page: Page) -> Section | None:
    """How far updates went, and what held them back, task by task."""
    updates, tasks = page.said.results.updates, page.said.results.tasks
    frames = {task: updates[updates["task"] == task] for task in tasks}
    found = {
        (task, metric): _dynamic(page, frames[task], task, metric)
        for task in tasks
        for metric in _DYNAMICS
    }
    # The first metric of every task has more claim to room than the last one of any.
    fitting = page.fit([found[task, metric] for metric in _DYNAMICS for task in tasks])
    shown = [one for one in found.values() if one in fitting]
    prose = [
        "Means over seeds, each point the mean of the updates around it. A method that never clips "
        "has no line in the panel of the clip; `train/*` in metrics.jsonl has every update."
    ]
    return Section("Inside the updates", prose, pictures=shown) if shown else None


def _dynamic(page: Page, updates: pd.DataFrame, task: str, metric: str) -> Picture | None:
    # Bounds that are the same throughout are in the settings.
    if metric == CLIP_HI and updates[metric].nunique() < 2:
        return None
    title = f"{task}: {figures.metric_title(metric)}"
    return figures.curve(updates, metric, page.styles, title=title, unit=track_of(task).unit)


def _all_tasks(page: Page) -> Section | None:
    how, results = page.said.how, page.said.results
    if how is None or page.said.across is None:
        return None
    found = scores(results, how.baseline, how.by)
    if not found.tasks:
        return None
    scale = "; ".join(
        f"{task}: 0 is {low:.4g}, 1 is {high:.4g}" for task, (low, high) in found.references.items()
    )
    prose = [
        f"On every task 0 is what the untrained policy reaches and 1 the mean of {how.baseline} "
        f"({scale}). The *optimality gap* is the mean shortfall from 1. *n/a* stands for a method "
        "that was not run on every task."
    ]
    drawn = figures.profiles(
        {name: found.strata(name) for name in results.methods},
        page.styles,
        title="profile over all tasks",
        label="normalised score",
    )
    return Section("All tasks", prose, [page.said.across], page.fit([drawn]))


def _cost(page: Page) -> Section:
    shown = []
    for task, found in page.said.tables.items():
        table = found.costs
        title = f"on {task}, means over the runs that are done"
        shown.append(Table(title, table.header, table.rows))
    return Section("Cost", tables=shown)


def _trips(page: Page) -> Section | None:
    lines = report.tripped(page.said.results)
    return Section("Trips of the breaker", [report.TRIPS], lines=lines) if lines else None


def _findings(page: Page) -> Section | None:
    lines = [line.replace("**", "") for line in page.said.findings]
    return Section("What the doctor says", [report.DOCTOR], lines=lines) if lines else None


def _problems(page: Page) -> Section:
    lines = report.problems(page.said.results)
    prose = [] if lines else ["Nothing: every run that was asked for is done, with a number."]
    return Section("What does not count, or not alike", prose, lines=lines)


def _reading(page: Page) -> Section:
    prose = [*report.reading(page.said.results, page.said.how)]
    if page.left_out:
        prose.append(f"{page.left_out} figures were left out to keep the page below 3 MB.")
    return Section("How to read the numbers", prose)


def _provenance(page: Page) -> Section:
    results = page.said.results
    versions = report.versions(results).items()
    facts = Table("", ["", ""], [[name, " / ".join(values)] for name, values in versions])
    hashes = Table(
        "Hashes of the settings, in the order of the seeds",
        ["run", "hashes"],
        [[f"{method} on {task}", text] for task, method, text in report.hashes(results)],
    )
    code = "\n".join(report.commands(results))
    return Section("How it was run", tables=[facts], code=code, folded=[hashes])


# In the order of the page; each gives a section, or None where there is nothing to tell.
_AFTER_TASKS: tuple[Callable[[Page], Section | None], ...] = (
    _all_tasks,
    _dynamics,
    _cost,
    _trips,
    _findings,
    _problems,
    _reading,
    _provenance,
)


def sections(page: Page) -> list[Section]:
    """All sections that have something to tell."""
    found = [_task(page, task) for task in page.said.results.tasks]
    return [*found, *(one for make in _AFTER_TASKS if (one := make(page)) is not None)]
