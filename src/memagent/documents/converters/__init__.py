"""Formats that are converted to text, and how each is recognised.

A converter is a generator of passages: text, and the place that begins with it. Text formats get decoded text, so they
come in any encoding, also compressed; the others get a path.
"""

from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeAlias

from memagent.documents.formats import PDF
from memagent.errors import BinaryDocument


class Passage(NamedTuple):
    """A piece of a document's text."""

    text: str
    place: str | None = None
    """The place that begins here; None continues the one before."""
    line: int = 0
    """The line of the place that the text begins in, from 1, if its lines are places too."""


OfText: TypeAlias = Callable[[Iterator[str], str], Generator[Passage]]
"""Text and the document's name -> passages."""
OfFile: TypeAlias = Callable[[Path, str, str | None, str], Generator[Passage]]
"""A path, the document's name, and the encoding and the error mode that were given -> passages."""

TEXTS = {
    ".htm": "html",
    ".html": "html",
    ".xhtml": "html",
    ".markdown": "markdown",
    ".md": "markdown",
    ".srt": "subtitles",
    ".vtt": "subtitles",
}
"""Module by suffix."""
FILES = {".docx": "docx", ".eml": "mail", ".epub": "epub", ".pdf": "pdf"}


def text_converter(path: Path) -> OfText | None:
    """The converter of a text format, by the suffix; `.gz` at its end is ignored."""
    kind = TEXTS.get(_suffix(path))
    return None if kind is None else import_module(f"{__name__}.{kind}").read


def file_converter(path: Path, start: bytes, name: str) -> OfFile | None:
    """The converter of another format, by the suffix, or the first bytes for PDF; compressed files are refused."""
    kind = "pdf" if PDF.search(start[:1024]) else FILES.get(_suffix(path))
    if kind and start.startswith(b"\x1f\x8b"):
        raise BinaryDocument(f"{name!r} is compressed: unpack it first (gunzip {name})")
    other = kind in ("docx", "epub") and not start.startswith(b"PK")
    return None if kind is None or other else import_module(f"{__name__}.{kind}").read


def _suffix(path: Path) -> str:
    return Path(path.stem if path.suffix.lower() == ".gz" else path).suffix.lower()
