"""The document that a command line names: a path, or `-` for standard input."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from memagent.errors import DocumentNotFound

if TYPE_CHECKING:
    from memagent.documents import Document

SAMPLE_BYTES = 65536
"""Enough to tell one-byte texts from two-byte ones."""
GZIP_MAGIC = b"\x1f\x8b"


def open_source(
    doc: str | Path,
    *,
    encoding: str | None = None,
    errors: str = "strict",
    name: str | None = None,
) -> Document:
    """Opens a path, or `-`, as `open_document` does; `name` is what the document is called instead of its path.

    Raises:
        DocumentNotFound: the path is missing or a directory, or standard input is closed.
        ConfigError: there is no such encoding.
    """
    from memagent.documents import open_document

    if str(doc) != "-":
        return open_document(Path(doc), encoding=encoding, errors=errors, name=name)
    # None, whatever its type says, if the process was started without it.
    if cast("object", sys.stdin) is None:
        raise DocumentNotFound("standard input is closed: give a path, or send the text to -")
    stdin, name = sys.stdin.buffer, name or "<stdin>"
    return open_document(stdin, encoding=encoding, errors=errors, name=name)


def expected_chars(document: Document) -> int | None:
    """Characters of the document, roughly, for a progress bar: read off the file's size and its beginning."""
    if document.path is None or document.size is None:
        return None
    size = document.size
    try:
        with Path(document.path).open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
            if sample.startswith(GZIP_MAGIC):
                # The last four bytes of a gzip file are its unpacked size (modulo 4 GiB).
                file.seek(-4, 2)
                size = int.from_bytes(file.read(4), "little")
                file.seek(0)
                sample = gzip.GzipFile(fileobj=file).read(SAMPLE_BYTES)
    except (OSError, EOFError):
        return None
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return size // 2
    chars = len(sample.decode("utf-8", errors="replace"))
    return round(size * chars / len(sample)) if sample else None
