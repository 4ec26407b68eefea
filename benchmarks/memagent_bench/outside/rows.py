"""Rows of the user's files: JSON lines and parquet, one at a time and within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ValidationError

from memagent.texts import describe_problem, name_error
from memagent_bench.outside.base import BadData

LINE = 64 << 20
"""Maximum bytes of a row. The longest documents of the published corpora have a few megabytes."""
BATCH = 64
"""Rows of a parquet file in memory at the same time."""
SUFFIXES = (".jsonl", ".parquet")
Form = TypeVar("Form", bound=BaseModel)


class Row(NamedTuple):
    """A row, and where it comes from."""

    where: str
    """File and line, for messages."""
    fields: dict[str, Any]

    def read(self, form: type[Form]) -> Form:
        """Parses the row as a model.

        Raises:
            BadData: a field is missing or of the wrong type.
        """
        try:
            return form.model_validate(self.fields)
        except ValidationError as error:
            raise BadData(
                f"{self.where}: {describe_problem(error)}; it has the fields {', '.join(map(str, self.fields))}. Fetch "
                f"the data again, or correct the row"
            ) from error


def find_files(data: Path, suffixes: Sequence[str], what: str) -> list[Path]:
    """Returns the file itself, or the files in a folder and its subfolders, in order.

    Raises:
        BadData: there is none.
    """
    if data.is_file():
        files = [data] if data.suffix in suffixes else []
    else:
        files = sorted(
            path for path in data.rglob("*") if path.suffix in suffixes and path.is_file()
        )
    if not files:
        raise BadData(
            f"{str(data)!r} has no {what} (files that end in {', '.join(suffixes)}): give the folder that you fetched "
            f"(--data)"
        )
    return files


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of a file.

    Raises:
        BadData: a row isn't an object, or is too long; the file can't be read.
    """
    try:
        yield from (_parquet if path.suffix == ".parquet" else _lines)(path)
    except OSError as error:
        raise BadData(f"{str(path)!r} cannot be read ({error}); check --data") from error


def _lines(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(_read_lines(file, path), 1):
            where = f"{str(path)!r}, line {number}"
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadData(
                    f"{where} is not JSON ({error}); fetch the file again, or remove the line"
                ) from error
            if not isinstance(value, dict):
                raise BadData(f"{where} is not a JSON object; remove the line")
            yield Row(where, cast("dict[str, Any]", value))


def _read_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LINE + 1):
        number += 1
        if len(line) > LINE:
            raise BadData(
                f"{str(path)!r}, line {number} has more than {LINE:,} bytes; it should be JSON lines, one object a line"
            )
        yield line


def _parquet(path: Path) -> Iterator[Row]:
    try:
        # pyarrow is in the extra `train`. It has no types.
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise BadData(
            f"reading {str(path)!r} takes pyarrow: pip install pyarrow, or convert the file to JSON lines"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=BATCH):
                for fields in batch.to_pylist():
                    yield Row(f"{str(path)!r}, row {number}", fields)
                    number += 1
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise BadData(
            f"{str(path)!r} is not a parquet file ({name_error(error)}); fetch it again"
        ) from error
