"""Runs as tables with every setting and every metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from redline.benchmark.errors import BadInput
from redline.benchmark.loggers import read_rows
from redline.benchmark.records import Results, load


def export(root: Path, out: Path, kinds: Sequence[str]) -> list[Path]:
    """Write runs, evals and updates; gives the files.

    Args:
        root: Folder with runs at or below it.
        out: Folder of the files.
        kinds: "csv", "parquet" or both.

    Raises:
        BadInput: No runs there, a package for Parquet is missing, or the folder cannot be written.
    """
    if "parquet" in kinds and find_spec("pyarrow") is None:
        raise BadInput("--parquet needs pyarrow: pip install pyarrow")
    results = load(root)
    tables = {
        "runs": runs_table(results),
        "evals": _rows(root, results, "eval.jsonl"),
        "updates": _rows(root, results, "metrics.jsonl"),
    }
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            for kind in kinds:
                path = out / f"{name}.{kind}"
                if kind == "csv":
                    table.to_csv(path, index=False)
                else:
                    table.to_parquet(path, index=False)
                written.append(path)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror or error}") from error
    return written


def runs_table(results: Results) -> pd.DataFrame:
    """The rows of report.csv, with the settings of each run as text: `run.*` and `recipe.*`.

    They are text since a column may hold a number for one method and a word for another.
    """
    settings = {
        record["hash"]: {**_flat("run.", record["run"]), **_flat("recipe.", record["recipe"])}
        for record in results.records
    }
    # A run that a matrix lacks has none.
    more = pd.DataFrame([settings.get(code, {}) for code in results.runs["hash"]])
    return pd.concat([results.runs.reset_index(drop=True), more], axis=1)


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Dotted names."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(f"{prefix}{name}.", value)
        elif isinstance(value, list):
            flat[prefix + name] = " ".join(map(str, value))
        elif value is not None:
            flat[prefix + name] = str(value)
    return flat


def _rows(root: Path, results: Results, file: str) -> pd.DataFrame:
    """Every row of a file of all runs, those too that are not done, as far as they got."""
    parts = []
    runs = results.runs[results.runs["status"] != "missing"]
    key = ["task", "method", "seed"]
    for task, method, seed, path in runs[[*key, "path"]].itertuples(index=False):
        part = pd.DataFrame(list(read_rows(root / path / file)))
        parts.append(part.assign(task=task, method=method, seed=seed))
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=key)
    return rows[[*key, *(name for name in rows.columns if name not in key)]]
