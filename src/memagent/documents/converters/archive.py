"""Zip archives that are read without trusting them."""

import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from memagent.errors import BinaryDocument

MAX_RATIO = 200
"""Text compresses 3 to 20 times; bombs 1,000 times."""
SMALL = 10_000_000
"""Bytes of a member that are fine however well it is compressed."""


class Archive:
    """An open archive."""

    def __init__(self, archive: ZipFile, name: str) -> None:
        self._zip, self._name = archive, name

    def __contains__(self, member: str) -> bool:
        return member in self._zip.NameToInfo

    def open(self, member: str) -> IO[bytes]:
        """A member, for reading.

        Raises:
            BinaryDocument: it is missing, encrypted, or expands beyond reason.
        """
        info = self._zip.NameToInfo.get(member)
        if info is None:
            raise BinaryDocument(f"{self._name!r} is broken: it has no {member!r}")
        if info.flag_bits & 1:
            raise BinaryDocument(f"{self._name!r} is encrypted: decrypt it first")
        if info.file_size > max(SMALL, MAX_RATIO * info.compress_size):
            raise BinaryDocument(
                f"{member!r} in {self._name!r} expands from {info.compress_size:,} to {info.file_size:,} bytes, as "
                f"archives do that are made to exhaust memory: extract it yourself if you trust it"
            )
        return self._zip.open(info)


@contextmanager
def opened(path: Path, name: str) -> Generator[Archive]:
    """The archive at a path.

    Raises:
        BinaryDocument: it is broken.
    """
    try:
        with ZipFile(path) as archive:
            yield Archive(archive, name)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BinaryDocument(f"{name!r} is not a readable zip archive: {error}") from error
