"""Human grades of a run's samples, joined with what the run knew, once they are given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from redline.benchmark.errors import BadInput
from redline.benchmark.files import replacing
from redline.benchmark.loggers import JsonLines, finite, read_rows
from redline.benchmark.samples import GRADES, KEY, REVIEW, SAMPLES

_FEW = 3


def open_samples(folder: Path, grader: str) -> list[dict[str, Any]]:
    """Samples of a run that a grader has not graded, in an order that tells nothing of time.

    Raises:
        BadInput: The run has no samples.
    """
    rows = list(read_rows(folder / SAMPLES))
    if not rows:
        raise BadInput(
            f"{folder} has no samples: a run on a language task writes {SAMPLES} every "
            "--review-every updates"
        )
    done = {row["id"] for row in read_rows(folder / GRADES) if row.get("grader") == grader}
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    return [rows[i] for i in order if rows[i]["id"] not in done]


class Grades:
    """The grades of one grader, each on the disk at once.

    Args:
        folder: Of the run.
        grader: Their name.
    """

    def __init__(self, folder: Path, grader: str) -> None:
        self._grader, self._file = grader, JsonLines(folder / GRADES)

    def add(self, sample: Mapping[str, Any], grade: float) -> None:
        """Write one down."""
        self._file.write({"grader": self._grader, "id": sample["id"], "grade": grade})

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def joined(folder: Path) -> dict[str, Any]:
    """What all grades say about the reward; written to review.json as well.

    Returns:
        graded: samples with a grade. graders: how many. agreement: share of equal grades among
        pairs of graders on the same sample; kappa: the same beyond chance (Cohen 1960, mean over
        pairs of graders). correlation: Pearson's, of the mean grade of a sample with its reward;
        correlation_verdict and correlation_ratio: with the verifier's verdict, and with the mean
        ratio. None where there are too few, or all are equal.

    Raises:
        BadInput: Nothing is graded.
        OSError: The folder cannot be written.
    """
    by_grader: dict[str, dict[int, float]] = {}
    for row in read_rows(folder / GRADES):
        by_grader.setdefault(str(row["grader"]), {})[int(row["id"])] = float(row["grade"])
    key = {int(row["id"]): row for row in read_rows(folder / KEY)}
    by_sample: dict[int, list[float]] = {}
    for grades in by_grader.values():
        for sample, grade in grades.items():
            if sample in key:
                by_sample.setdefault(sample, []).append(grade)
    if not by_sample:
        raise BadInput(f"no sample of {folder} is graded yet")
    means = [float(np.mean(grades)) for grades in by_sample.values()]
    pairs = list(_pairs(list(by_grader.values())))
    found = {
        "graded": len(by_sample),
        "graders": len(by_grader),
        "agreement": _agreement([both for pair in pairs for both in pair]),
        "kappa": _mean([kappa for pair in pairs if (kappa := _kappa(pair)) is not None]),
    }
    for name, field in (("", "reward"), ("_verdict", "verdict"), ("_ratio", "ratio_mean")):
        values = [key[sample].get(field) for sample in by_sample]
        found[f"correlation{name}"] = _correlation(means, values)
    with replacing(folder / REVIEW) as temporary:
        temporary.write_text(json.dumps(finite(found), indent=1) + "\n", encoding="utf-8")
    return found


def _pairs(graders: Sequence[Mapping[int, float]]) -> Iterator[list[tuple[float, float]]]:
    """For every two graders, their grades of what both have graded."""
    for one, other in combinations(graders, 2):
        common = [(one[sample], other[sample]) for sample in one if sample in other]
        if common:
            yield common


def _agreement(pairs: Sequence[tuple[float, float]]) -> float | None:
    return float(np.mean([one == other for one, other in pairs])) if pairs else None


def _kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """(p - e) / (1 - e): p observed agreement, e that of independent graders."""
    agreement = _agreement(pairs)
    assert agreement is not None
    one, other = (np.array(grades) for grades in zip(*pairs, strict=True))
    values = np.unique(np.concatenate([one, other]))
    chance = sum(float(np.mean(one == v) * np.mean(other == v)) for v in values)
    return (agreement - chance) / (1.0 - chance) if chance < 1.0 else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _correlation(grade: Sequence[float], values: Sequence[Any]) -> float | None:
    """Pearson's; None for few samples, or where one of both does not vary."""
    known = [(g, float(v)) for g, v in zip(grade, values, strict=True) if v is not None]
    if len(known) < _FEW:
        return None
    one, other = np.array(known).T
    if one.std() == 0.0 or other.std() == 0.0:
        return None
    return float(np.corrcoef(one, other)[0, 1])
