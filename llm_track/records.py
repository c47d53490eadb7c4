"""Questions with answers from files and from the Hugging Face hub."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from redline.llm_track.extraction import extract
from redline.llm_track.split import TaskError

# Bytes of a line, far beyond any question: what is longer is no file of questions.
LONGEST_LINE = 4_000_000
_UTF8 = b"\xef\xbb\xbf"
_OTHER = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PAR1": "parquet", b"\x1f\x8b": "gzip"}


class Record(NamedTuple):
    """A question, its gold answer, and where they stand."""

    question: str
    gold: str
    place: str


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        question: Of the question.
        answer: Of the answer. Where it marks a final one, by #### or a box, that is the gold.
    """

    question: str
    answer: str


@dataclass(frozen=True)
class Split:
    """One split of a data set on the hub.

    Attributes:
        name: Of the data set.
        configs: Its parts, read one after the other.
        split: As the data set names it.
        columns: Of this split.
    """

    name: str
    configs: tuple[str, ...]
    split: str
    columns: Columns


def read_file(path: Path, columns: Columns) -> list[Record]:
    """Records of a .jsonl or .parquet file, each question once.

    Raises:
        TaskError: The file cannot be read, is empty, or a row does not hold what it should.
    """
    rows = _parquet(path) if path.suffix == ".parquet" else _lines(path)
    try:
        return _records(rows, columns, str(path))
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from error


def read_hub(split: Split) -> list[Record]:
    """Records of a data set on the hub, or of its copy in the cache.

    Raises:
        TaskError: `datasets` is not installed, or the data set cannot be had.
    """
    if find_spec("datasets") is None:
        raise TaskError(
            "needs the package datasets to read from the hub: pip install datasets; or give a "
            "file with data"
        )
    import datasets

    found: list[Record] = []
    for config in split.configs:
        try:
            rows = datasets.load_dataset(split.name, config, split=split.split)
        except Exception as error:  # the hub's, the network's and the files' errors share no base
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TaskError(
                f"{split.name} cannot be had from the hub ({reason}); give a file with data"
            ) from error
        found += _records(enumerate(rows, start=1), split.columns, f"{split.name} {config}")
    return found


def identity(question: str) -> str:
    """What a question is, whatever its capitals and spaces."""
    return " ".join(question.casefold().split())


def _records(rows: Iterable[tuple[int, Any]], columns: Columns, source: str) -> list[Record]:
    found: dict[str, Record] = {}
    for number, row in rows:
        place = f"{source}, row {number}"
        if not isinstance(row, dict):
            raise TaskError(f"{place}: expected an object with columns, got {str(row)[:60]!r}")
        question, answer = (_cell(row, name, place) for name in (columns.question, columns.answer))
        gold = extract(answer, "strict") or answer
        found.setdefault(identity(question), Record(question, gold.strip(), place))
    if not found:
        raise TaskError(f"{source} holds no questions")
    return list(found.values())


def _cell(row: dict[str, Any], name: str, place: str) -> str:
    if name not in row:
        near = difflib.get_close_matches(name, map(str, row), n=1, cutoff=0.5)
        hint = f"; nearest: {near[0]}" if near else ""
        raise TaskError(f"{place} has no column {name!r}, only {', '.join(map(str, row))}{hint}")
    value = row[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise TaskError(f"{place}, column {name!r}: expected text, got {str(value)[:60]!r}")
    if not value.isprintable() and any("\ud800" <= char <= "\udfff" for char in value):
        raise TaskError(f"{place}, column {name!r}: half a surrogate pair, {value[:60]!r}")
    return value


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the lines that hold something; no line is read beyond the limit."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            place = f"{path}, line {number}"
            if len(line) > LONGEST_LINE:
                raise TaskError(
                    f"{place} is longer than {LONGEST_LINE:,} bytes: expected one JSON object with "
                    "a question on each line"
                )
            if number == 1:
                line = _opening(path, line)
            if line.strip():
                yield number, _value(line, place)


def _opening(path: Path, line: bytes) -> bytes:
    """The first line without a byte order mark."""
    for mark, kind in _OTHER.items():
        if line.startswith(mark):
            raise TaskError(f"{path} is a {kind} file: expected JSON lines in UTF-8")
    return line.removeprefix(_UTF8)


def _value(line: bytes, place: str) -> Any:
    def columns(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise TaskError(f"{place} has the column {twice!r} twice")
        return row

    try:
        return json.loads(line.decode(), object_pairs_hook=columns)
    except TaskError:
        raise
    except UnicodeDecodeError as error:
        wrong = line[error.start : error.start + 1]
        raise TaskError(f"{place} is not UTF-8: it holds the byte {wrong!r}") from error
    except (ValueError, RecursionError) as error:
        shown = line[:60].decode(errors="replace").strip()
        raise TaskError(f"{place}: expected a JSON object, got {shown!r}") from error


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    if find_spec("pyarrow") is None:
        raise TaskError(f"{path} needs the package pyarrow: pip install pyarrow")
    from pyarrow import ArrowException, parquet

    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    try:
        with parquet.ParquetFile(path) as file:
            number, columns = 0, file.schema_arrow.names
            if len({*columns}) < len(columns):
                raise TaskError(f"{path} has a column twice: {', '.join(columns)}")
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except ArrowException as error:
        reason = str(error).splitlines()[0]
        raise TaskError(f"{path} is no parquet file ({reason})") from error


def without(records: Sequence[Record], others: Sequence[Record]) -> list[Record]:
    """The records whose questions are not among the others'."""
    known = {identity(record.question) for record in others}
    return [record for record in records if identity(record.question) not in known]
