"""`redline export`: results as files that other programs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.benchmark.errors import BadInput
from redline.benchmark.parsing import parse

_DESCRIPTION = (
    "Write the runs of a folder as tables: runs (a row each, with all settings), evals and updates "
    "(a row per evaluation and per update, with every metric)."
)


@dataclass(frozen=True)
class ExportConfig:
    """Settings of `redline export`.

    Attributes:
        folder: Where redline matrix or redline run wrote.
        csv: Write runs.csv, evals.csv and updates.csv.
        parquet: Write runs.parquet, evals.parquet and updates.parquet.
        out: Folder of the tables; None: DIR/export.
    """

    folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = None
    csv: bool = False
    parquet: bool = False
    out: Path | None = None


def main(arguments: Sequence[str]) -> int:
    """Write the tables."""
    config = parse(ExportConfig, arguments, prog="redline export", description=_DESCRIPTION)
    if config.folder is None:
        raise BadInput("say which folder: redline export DIR --csv")
    kinds = [kind for kind, asked in (("csv", config.csv), ("parquet", config.parquet)) if asked]
    if not kinds:
        raise BadInput("say in which form: --csv or --parquet")
    from redline.benchmark.exporting import export

    for path in export(config.folder, config.out or config.folder / "export", kinds):
        print(path)
    return 0
