"""Formats that are converted to text, and how each is recognised.

A converter is a generator of passages: text, and the place that begins with it. Converters of text formats get decoded
text, so files may have any encoding and be compressed; the others get a path.
"""

from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from memagent.errors import BinaryDocument


class Passage(NamedTuple):
    """A piece of a document's text."""

    text: str
    place: str | None = None
    """Place that begins here; None continues the previous one."""
    line: int = 0
    """Line of the place that the text begins in, from 1, if lines are places too."""


TEXTS = {
    ".htm": "html",
    ".html": "html",
    ".xhtml": "html",
    ".markdown": "markdown",
    ".md": "markdown",
    ".srt": "subtitles",
    ".vtt": "subtitles",
}
"""Converter modules by suffix."""
FILES = {".docx": "docx", ".eml": "mail", ".epub": "epub", ".pdf": "pdf"}


def convert_text(path: Path, pieces: Iterator[str], name: str) -> Generator[Passage] | None:
    """Converts a text format, known by the suffix (before a `.gz`). Returns None if there is nothing to convert."""
    kind = TEXTS.get(suffix_of(path))
    return None if kind is None else import_module(f"{__name__}.{kind}").read(pieces, name)


def convert_file(
    path: Path, start: bytes, name: str, *decoding: str | None
) -> Generator[Passage] | None:
    """Converts another format, recognised by suffix or first bytes; `decoding`: given encoding and error mode."""
    from memagent.documents.formats import PDF  # imported here, since its package imports this one

    kind = "pdf" if PDF.search(start[:1024]) else FILES.get(suffix_of(path))
    if kind and start.startswith(b"\x1f\x8b"):
        raise BinaryDocument(f"{name!r} is compressed: unpack it first (gunzip {name})")
    if kind is None or (kind in ("docx", "epub") and not start.startswith(b"PK")):
        return None
    return import_module(f"{__name__}.{kind}").read(path, name, *decoding)


def suffix_of(path: Path) -> str:
    """Returns the suffix of a file in lower case, or the one before `.gz`."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path).suffix.lower()
