"""The kinds of source, and `open_document`, which picks one."""

import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence, Set
from glob import has_magic
from pathlib import Path
from typing import IO, TypeAlias, cast

from memagent.documents.base import Document
from memagent.documents.decoding import check_options
from memagent.documents.files import FileSource, FilesSource, FolderSource
from memagent.documents.streams import AsyncSource, IterableSource, OpenFileSource, TextSource
from memagent.errors import DocumentError
from memagent.texts import expand

Source: TypeAlias = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | IO[str]
    | IO[bytes]
    | Iterable[str]
    | Iterable[bytes]
    | Sequence[os.PathLike[str]]
    | AsyncIterable[str]
    | AsyncIterable[bytes]
    | Document
)
"""Accepted sources: a `str` is text (never a path), a `Path` a file, folder or pattern such as `~/*.md` (`~`: home)."""


def open_document(
    source: Source, *, encoding: str | None = None, errors: str = "strict", name: str | None = None
) -> Document:
    """Makes a document from a source. Opens nothing yet, but checks that a path can be a document.

    Files may be plain text, gzip, HTML, Markdown, WebVTT, SubRip, EPUB, DOCX, mail (.eml) and, with memagent[formats],
    PDF; to read HTML as it is written, pass an open file. Checking paths blocks, so async code should call this in a
    thread.

    Args:
        source: the text or where it comes from; a Document is returned unchanged. A one-line `str` that names a file
            or a URL is still text, alone or in a list, but gives a `UserWarning` when read. A folder, the files that
            match a pattern (`notes/**/*.md`), or a list of paths is one document.
        encoding: for sources of bytes; None detects it (byte order mark, UTF-8, else a guess with a warning).
        errors: for sources of bytes: "strict", "replace" (U+FFFD for bad bytes) or "ignore".
        name: display name for messages and records, instead of the path or kind; lone surrogates, as in
            paths with undecodable bytes, are escaped.

    Raises:
        DocumentError: the source has an unsupported type.
        DocumentNotFound: a path is missing, a folder has no files, or none matches a pattern.
        ConfigError: the encoding or the error mode does not exist.
    """
    check_options(encoding, errors)
    value = cast("object", source)
    if isinstance(value, str):
        return TextSource((value,), name or "<text>", None, "strict", len(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        size = memoryview(cast("bytes", value)).nbytes
        return IterableSource((value,), name or "<bytes>", encoding, errors, size)
    if isinstance(value, os.PathLike):
        path = os.fsdecode(cast("os.PathLike[str]", value))
        full_path = expand(path)
        # os.path's functions are False for what cannot be a path, where pathlib's raise.
        several = os.path.isdir(full_path) or (has_magic(path) and not os.path.lexists(full_path))  # noqa: PTH112
        kind = FolderSource if several else FileSource
        return kind(path, name, encoding, errors)
    items = cast("list[object]", source) if isinstance(source, (list, tuple)) else []
    paths = [Path(cast("os.PathLike[str]", x)) for x in items if isinstance(x, os.PathLike)]
    if paths and len(paths) == len(items):
        return FilesSource(paths, name or f"{len(paths)} files", encoding, errors)
    if callable(getattr(value, "pieces", None)):
        return cast("Document", value)
    if hasattr(value, "__aiter__"):
        return AsyncSource(value, name or "<async stream>", encoding, errors)
    if callable(getattr(value, "read", None)):
        return OpenFileSource(value, name, encoding, errors)
    if isinstance(source, Iterable) and not isinstance(source, (Mapping, Set)):
        return IterableSource(value, name or "<stream>", encoding, errors)
    raise DocumentError(
        f"a document cannot be made of {value!r:.80} (type {type(value).__name__}); accepted are str (the text "
        f"itself), pathlib.Path, bytes, an open file, an iterable or async iterable of str or bytes, or a Document"
    )
