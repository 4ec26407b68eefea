"""Reads zip archives without trusting them."""

from pathlib import Path
from typing import IO
from xml.etree.ElementTree import Element, parse
from zipfile import ZipFile

from memagent.errors import BinaryDocument

MAX_RATIO = 200
"""Maximum ratio of sizes: text compresses 3 to 20 times; bombs 1,000 times."""
SMALL = 10_000_000
"""Bytes of a member that are allowed, however well it is compressed."""


class Archive(ZipFile):
    """An archive with the document's name."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        self._name = name

    def member(self, member: str) -> IO[bytes]:
        """Opens a member for reading.

        Raises:
            BinaryDocument: the member is missing, encrypted, or expands too much.
        """
        if (info := self.NameToInfo.get(member)) is None:
            raise BinaryDocument(f"{self._name!r} is broken: it has no {member!r}")
        if info.flag_bits & 1:
            raise BinaryDocument(f"{self._name!r} is encrypted: decrypt it first")
        if info.file_size > max(SMALL, MAX_RATIO * info.compress_size):
            raise BinaryDocument(
                f"{member!r} in {self._name!r} expands from {info.compress_size:,} to {info.file_size:,} bytes, as "
                f"archives do that are made to exhaust memory: extract it yourself if you trust it"
            )
        return self.open(info)

    def parse(self, member: str) -> Element:
        """Parses a member in XML; returns its root."""
        with self.member(member) as file:
            return parse(file).getroot()
