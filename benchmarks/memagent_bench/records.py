"""The file of records: one JSON object per line, append-only, one writing process at a time."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from memagent.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly
from memagent.messages import Leaf
from memagent.texts import describe_problem
from memagent_bench.record import Record

logger = logging.getLogger("memagent.bench")

RESULTS = "results.jsonl"
_TAIL = 65536
"""Bytes searched at a time for the beginning of the last line."""
R = TypeVar("R", bound=Leaf)


def read_records(folder: Path) -> list[Record]:
    """Reads the records of a folder, the last one of each key, in the order in which keys first appear.

    Ignores text after the last line end: it is a line being written, or left by a killed writer.

    Raises:
        StoreError: there is no such file, or it cannot be read.
        StoreCorrupt: a line isn't a record; the message has its number.
    """
    last: dict[tuple[str, str, int, str, int], Record] = {}
    for record in every_record(folder):
        last[record.key] = record
    return list(last.values())


def every_record(folder: Path) -> Iterator[Record]:
    """Yields all records of a folder in the order written, including those that later ones replace.

    Raises:
        StoreError, StoreCorrupt: as `read_records`.
    """
    return lines_of(Path(folder) / RESULTS, Record)


def lines_of(path: Path, kind: type[R]) -> Iterator[R]:
    """Yields all records of a file, each of that kind.

    Raises:
        StoreError, StoreCorrupt: as `read_records`.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _parse(line, kind, path, number)
    except OSError as error:
        raise StoreError(
            f"no records in {str(path.parent)!r}: {path.name} cannot be read ({error.strerror}); name a folder "
            f"written by a benchmark (--out)"
        ) from error


class RecordFile:
    """Appends records; each is on disk when `append` returns. Blocks: some milliseconds per record.

    The caller makes sure that no other process writes (`memagent_bench.folder`).

    Args:
        folder: the folder of the file, which is created if needed.
        name: of the file.
        kind: the type of its lines.

    Raises:
        StoreReadOnly: the file cannot be written.
    """

    def __init__(self, folder: Path, name: str = RESULTS, kind: type[Leaf] = Record) -> None:
        self.path = folder / name
        self._kind = kind
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise StoreReadOnly(f"cannot write {str(self.path)!r}: {error.strerror}") from error
        try:
            self._mend()
        except BaseException:
            self.close()
            raise

    def append(self, record: Leaf) -> None:
        """Adds one record.

        Raises:
            StoreFull: the disk is full; earlier records are intact.
            StoreReadOnly: the file cannot be written for another reason.
        """
        line = _line(record)
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(line)
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            # A partial line in the middle would make the whole file unreadable.
            os.ftruncate(self._file.fileno(), size)
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreReadOnly
            raise kind(f"cannot write {str(self.path)!r}: {error.strerror}") from error

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _mend(self) -> None:
        """Removes a partial line that a killed writer left; completes a whole one that only lacks its line end."""
        size = os.fstat(self._file.fileno()).st_size
        start, tail = size, b""
        with self.path.open("rb") as file:
            while start and b"\n" not in tail:
                end, start = start, max(0, start - _TAIL)
                file.seek(start)
                tail = file.read(end - start) + tail
        torn = tail[tail.rfind(b"\n") + 1 :]
        if not torn:
            return
        try:
            self._kind.model_validate_json(torn)
        except ValidationError:
            os.ftruncate(self._file.fileno(), size - len(torn))
            logger.warning(
                "%s ended in the middle of a record (its writer was killed): removing these %d bytes, "
                "and repeating the sample",
                *(self.path, len(torn)),
            )
        else:
            self._file.write(b"\n")


def _line(record: Leaf) -> bytes:
    try:
        return record.model_dump_json().encode() + b"\n"
    except PydanticSerializationError:  # a lone surrogate, which data files and errors may contain
        return (
            json.dumps(record.model_dump(), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        )


def _parse(line: bytes, kind: type[R], path: Path, number: int) -> R:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise StoreCorrupt(
            f"{str(path)!r}, line {number} is not a record ({describe_problem(error)}); remove that line to continue "
            f"without it"
        ) from error
