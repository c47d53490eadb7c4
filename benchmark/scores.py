"""Results over several tasks, on a scale on which their references are 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from redline.benchmark.comparison import By, Judging
from redline.benchmark.formats import brackets, mean_and_half_width, number
from redline.benchmark.records import Results
from redline.benchmark.stats import (
    finite,
    iqm,
    iqm_interval,
    normalise,
    optimality_gap,
    probability_of_improvement,
    summarise,
)
from redline.benchmark.tables import Table, done
from redline.benchmark.words import counted


@dataclass(frozen=True)
class Scores:
    """Normalised results: 0 is the untrained policy, 1 the baseline's mean.

    Attributes:
        values: Columns task, method, seed, score; finite ones of runs that are done.
        tasks: Tasks that have such a scale.
        references: Task -> what 0 and 1 are there.
        refused: Tasks without one: both references are the same or nan.
    """

    values: pd.DataFrame
    tasks: Sequence[str]
    references: Mapping[str, tuple[float, float]]
    refused: Sequence[str]

    def strata(self, method: str) -> list[Any]:
        """Scores by seed, one array per task; empty where the method lacks a task."""
        own = self.values[self.values["method"] == method]
        parts = [own.loc[own["task"] == task, "score"].to_numpy() for task in self.tasks]
        return parts if all(map(len, parts)) else []

    def of_seeds(self, method: str) -> list[float]:
        """A seed's mean over all tasks; seeds that lack a task are left out."""
        per_seed = self.values[self.values["method"] == method].groupby("seed")["score"]
        return list(per_seed.mean()[per_seed.count() == len(self.tasks)])


def scores(results: Results, baseline: str, by: By = "final") -> Scores:
    """Normalise the results of every task on which that is possible."""
    ended = done(results.runs)
    parts, references, refused = [], {}, []
    for task, runs in ended.groupby("task"):
        low = float(runs["untrained"].mean())
        high = float(runs.loc[runs["method"] == baseline, by].mean())
        try:
            score = normalise(runs[by], low=low, high=high)
        except ValueError:
            refused.append(str(task))
        else:
            references[str(task)] = low, high
            parts.append(runs[["method", "seed"]].assign(task=task, score=score))
    columns = ["method", "seed", "task", "score"]
    values = pd.concat(parts) if parts else pd.DataFrame(columns=columns)
    return Scores(values.dropna(subset=["score"]), list(references), references, refused)


def across_tasks(results: Results, how: Judging) -> Table:
    """Means, middles and shortfalls of normalised results, a row per method.

    The score's ± comes from seeds' means over tasks, so that the seed stays the sample. IQM, gap
    and P(better) take all tasks' runs together, every task resampled by itself.
    """
    found = scores(results, how.baseline, how.by)
    base = found.strata(how.baseline)
    rows = []
    for method in results.methods:
        own, strata = found.of_seeds(method), found.strata(method)
        together = [score for part in strata for score in part]
        share = probability_of_improvement(strata, base) if strata and base else float("nan")
        fewest = min(map(len, strata), default=0)
        rows.append(
            [
                method,
                str(len(own)),
                mean_and_half_width(summarise(own)),
                number(iqm(finite(together))) if together else "n/a",
                brackets(iqm_interval(strata), fewest),
                number(optimality_gap(together)),
                "" if method == how.baseline else number(share),
            ]
        )
    skipped = (
        f" (without {', '.join(found.refused)}, where both references are the same or nan)"
        if found.refused
        else ""
    )
    title = f"normalised {how.by} over {counted(len(found.tasks), 'task')}{skipped}"
    header = ["algorithm", "seeds", "score", "IQM", "95% interval of IQM", "optimality gap"]
    return Table(title, [*header, f"P(better than {how.baseline})"], rows)
