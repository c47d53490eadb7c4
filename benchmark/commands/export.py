"""`redline export`: results and models as files that other programs read."""

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
    "(a row per evaluation and per update, with every metric); or with --hf the language model of "
    "a run as transformers reads it."
)


@dataclass(frozen=True)
class ExportConfig:
    """Settings of `redline export`.

    Attributes:
        folder: Where redline matrix or redline run wrote; with --hf a run.
        csv: Write runs.csv, evals.csv and updates.csv.
        parquet: Write runs.parquet, evals.parquet and updates.parquet.
        out: Folder of the tables; None: DIR/export.
        hf: Folder for the language model of the run's last checkpoint, with adapters merged in,
            tokenizer and model card.
        overwrite: Replace a model that is there.
    """

    folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = None
    csv: bool = False
    parquet: bool = False
    out: Path | None = None
    hf: Path | None = None
    overwrite: bool = False


def main(arguments: Sequence[str]) -> int:
    """Write the tables, or the model."""
    config = parse(ExportConfig, arguments, prog="redline export", description=_DESCRIPTION)
    if config.folder is None:
        raise BadInput("say which folder: redline export DIR --csv")
    if config.hf is not None:
        if config.csv or config.parquet or config.out is not None:
            raise BadInput("--hf writes a model, and goes with no other form")
        from redline.benchmark.model_folder import write_model

        write_model(config.folder, config.hf, config.overwrite)
        print(f"model: {config.hf} (redline run ALGO --task TASK --model {config.hf})")
        return 0
    kinds = [kind for kind, asked in (("csv", config.csv), ("parquet", config.parquet)) if asked]
    if not kinds:
        raise BadInput("say in which form: --csv or --parquet, or --hf DIR for a run's model")
    from redline.benchmark.exporting import export

    for path in export(config.folder, config.out or config.folder / "export", kinds):
        print(path)
    return 0
