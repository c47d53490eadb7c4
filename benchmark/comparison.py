"""Which methods of a report are better than its baseline, task by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from redline.benchmark.errors import unknown
from redline.benchmark.formats import brackets, number
from redline.benchmark.records import Results
from redline.benchmark.stats import probability_of_improvement
from redline.benchmark.tables import Table, done, methods_of
from redline.benchmark.verdicts import Judgement, Sample, judge

# What of a learning curve may be judged. Not its highest point: of noisy evaluations the highest
# is the luckiest.
By = Literal["final", "area"]

# Settings that must agree before two results may be compared, as sentences say them.
_SAME = {"steps": "budgets", "eval_episodes": "numbers of evaluation episodes"}
_SAME |= {"eval_problems": "numbers of evaluation problems", "evals": "numbers of evaluations"}


@dataclass(frozen=True)
class Judging:
    """How methods are compared.

    Attributes:
        baseline: Method that the others are compared with.
        by: Result of a run that is compared.
        paired: Compare runs of the same seed.
    """

    baseline: str
    by: By = "final"
    paired: bool = False


def judging(
    results: Results, baseline: str | None = None, by: By = "final", paired: bool = False
) -> Judging | None:
    """How to compare; where no baseline is named it is ppo, or else the first method.

    Returns:
        None where there is one method only and none is named.

    Raises:
        BadInput: No such method.
    """
    methods = results.methods
    if baseline is None:
        if len(methods) < 2:
            return None
        baseline = "ppo" if "ppo" in methods else methods[0]
    if baseline not in methods:
        raise unknown("baseline", baseline, methods)
    return Judging(baseline, by, paired)


def samples(results: Results, task: str, by: By = "final") -> dict[str, Sample]:
    """Method -> what its seeds reached on a task. A run that failed or was tripped is lost."""
    found = {}
    for method, runs in methods_of(results, task):
        ended = done(runs)
        values = dict(zip(ended["seed"].astype(int), ended[by].astype(float), strict=True))
        failed = int(runs["status"].isin(("failed", "tripped")).sum())
        found[method] = Sample(values, failed)
    return found


def judgements(results: Results, task: str, how: Judging) -> dict[str, Judgement]:
    """Method -> how it compares on a task; empty where the baseline has no run there."""
    found = samples(results, task, how.by)
    return judge(found, how.baseline, how.paired) if how.baseline in found else {}


def comparison(results: Results, task: str, how: Judging) -> Table | None:
    """Differences to one method, with verdicts; None where nothing can be compared with it."""
    found = samples(results, task, how.by)
    rows = []
    for method, one in judgements(results, task, how).items():
        share = probability_of_improvement([found[method].numbers], [found[how.baseline].numbers])
        rows.append(
            [
                method,
                number(one.difference.mean, sign=True),
                brackets(one.difference.interval, one.n),
                "n/a" if np.isnan(one.p) else f"{one.p:.3f}",
                number(share),
                one.text,
            ]
        )
    if not rows:
        return None
    test = "paired t test on common seeds" if how.paired else "Welch's t test"
    title = f"compared with {how.baseline} by {test}, p after Holm over these rows"
    header = ["algorithm", f"{how.by} − {how.baseline}", "95% interval", "p", "P(better)"]
    return Table(title, [*header, "verdict"], rows)


def uncompared(results: Results, task: str, how: Judging) -> str | None:
    """Why nothing is compared on a task, as a sentence; None where something is."""
    methods = [name for name, _ in methods_of(results, task)]
    if how.baseline not in methods:
        return f"Nothing is compared here, for {how.baseline} was not run on {task}."
    if len(methods) == 1:
        return f"Nothing is compared here, for only {how.baseline} was run on {task}."
    return None


def unlike(results: Results, task: str) -> list[str]:
    """What differs between the methods' runs on a task and makes their results hard to compare."""
    of_task = results.runs[results.runs["task"] == task].dropna(subset=["hash"])
    records = {record["hash"]: record["run"] for record in results.records}
    notes = []
    for name, words in _SAME.items():
        values: dict[int, set[str]] = {}
        for method, one in zip(of_task["method"], of_task["hash"], strict=True):
            if name in records[one]:
                values.setdefault(records[one][name], set()).add(method)
        if len(values) > 1:
            parts = [f"{value:,} ({', '.join(sorted(values[value]))})" for value in sorted(values)]
            notes.append(f"{task}: {words} differ: {'; '.join(parts)}")
    return notes
