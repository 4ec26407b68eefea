"""Reads JSON lines of any size: only the lines' offsets are kept in memory."""

import gzip
import json
import os
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from memagent_train.data.columns import BadRow
from memagent_train.errors import DataError, DiskFull

GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
WIDE = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""
BLOCK = 1 << 20


class JsonlFile:
    """The lines of one file, read on demand. Blank lines are skipped.

    A gzipped file is unpacked into an unnamed temporary file, which disappears with the process. The file is
    kept open, so replacing it later has no effect.

    Args:
        path: the file.

    Raises:
        DataError: it can't be read, is empty, or isn't JSON lines.
        DiskFull: there is no room to unpack it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = self._open(path)
        except (OSError, ValueError) as error:  # ValueError: not a valid path
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"cannot read the data file {str(path)!r}: {reason}") from error
        weakref.finalize(self, self._file.close)
        self._starts, self._numbers = array("q"), array("q")
        """First byte of each non-blank line, and one past the last line; line numbers from 1."""
        self._find()
        if not self._numbers:
            raise DataError(
                f"the data file {str(path)!r} is empty: it must have one JSON object per line"
            )

    def __len__(self) -> int:
        return len(self._numbers)

    def where(self, place: int) -> str:
        """Names a line, for messages."""
        return f"{str(self.path)!r}, line {self._numbers[place]}"

    def row(self, place: int) -> dict[str, Any]:
        """Parses the object of a line. Blocks.

        Raises:
            BadRow: it isn't a JSON object.
        """
        raw = self._line(place)
        try:
            value = json.loads(raw.decode())
        except UnicodeDecodeError as error:
            raise BadRow(
                f"byte {error.start} of the line is not UTF-8 ({raw[error.start : error.start + 4]!r}): save the file "
                f"as UTF-8"
            ) from error
        except (ValueError, RecursionError) as error:
            if place == 0 and raw.lstrip().startswith(b"["):
                raise BadRow("the file is a single JSON list: write one entry per line") from error
            raise BadRow(f"this is not JSON ({error}): write one object per line") from error
        if not isinstance(value, dict):
            raise BadRow(
                f"this is a {type(value).__name__}, not an object: write one object per line"
            )
        return cast("dict[str, Any]", value)

    def _line(self, place: int) -> bytes:
        start, end = self._starts[place], self._starts[place + 1]
        raw = bytearray()
        while start + len(raw) < end:
            part = os.pread(self._file.fileno(), end - start - len(raw), start + len(raw))
            if not part:
                raise BadRow("the file was truncated after it was opened: restart with the new one")
            raw += part
        return bytes(raw).strip()

    def _find(self) -> None:
        """Records the lines' offsets, in one pass."""
        self._file.seek(0)
        at = len(BOM) if self._file.read(len(BOM)) == BOM else 0
        self._file.seek(at)
        for number, line in enumerate(self._file, start=1):
            if line.strip():
                self._starts.append(at)
                self._numbers.append(number)
            at += len(line)
        self._starts.append(at)

    @staticmethod
    def _open(path: Path) -> IO[bytes]:
        file = path.open("rb")
        begin = file.read(2)
        if begin in WIDE:
            file.close()
            raise DataError(f"the data file {str(path)!r} is in UTF-16: save it as UTF-8")
        if begin != GZIP:
            return file
        with file:
            file.seek(0)
            return _unpack(file, path)


def _unpack(packed: IO[bytes], path: Path) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with gzip.open(packed) as content:
            while block := content.read(BLOCK):
                _write(file, block, path)
    except BaseException as error:
        with suppress(OSError):  # on a full disk, closing tries again to write what is buffered
            file.close()
        if not isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
            raise
        raise DataError(
            f"the data file {str(path)!r} is a truncated or damaged gzip file ({error}): fetch it again"
        ) from error
    return file


def _write(file: IO[bytes], block: bytes, path: Path) -> None:
    try:
        file.write(block)
        file.flush()
    except OSError as error:
        raise DiskFull(
            f"there is no room in {tempfile.gettempdir()!r} to unpack {str(path)!r} ({error.strerror}): free some "
            f"space, set TMPDIR to another folder, or unpack it yourself"
        ) from error


class JsonlRows:
    """The rows of several files in sequence.

    Raises:
        DataError: see `JsonlFile`.
        DiskFull: likewise.
    """

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._files = [JsonlFile(path) for path in paths]
        self.name = ", ".join(path.name for path in paths)

    def __len__(self) -> int:
        return sum(map(len, self._files))

    def __iter__(self) -> Iterator[dict[str, Any] | BadRow]:
        """Yields all rows in order; for a row that isn't an object, the error."""
        for place in range(len(self)):
            try:
                yield self.row(place)
            except BadRow as bad:
                yield bad

    def row(self, place: int) -> dict[str, Any]:
        """Reads one row. Blocks.

        Raises:
            BadRow: its line isn't an object.
        """
        file, within = self._find(place)
        return file.row(within)

    def where(self, place: int) -> str:
        """Names a row, for messages."""
        file, within = self._find(place)
        return file.where(within)

    def _find(self, place: int) -> tuple[JsonlFile, int]:
        for file in self._files:
            if place < len(file):
                return file, place
            place -= len(file)
        raise IndexError(place)
