"""EPUB books: the chapters in reading order; their headings are places."""

import posixpath
from codecs import getincrementaldecoder
from collections.abc import Generator
from pathlib import Path
from typing import IO
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError, parse

from memagent.documents.converters import Passage, html
from memagent.documents.converters.archive import Archive, opened
from memagent.errors import BinaryDocument

_CONTAINER = "META-INF/container.xml"
_BLOCK = 65536


def read(path: Path, name: str) -> Generator[Passage]:
    """The chapters of the book's spine.

    Raises:
        BinaryDocument: it is broken, encrypted or a bomb.
    """
    with opened(path, name) as archive:
        package = _find(_parse(archive, _CONTAINER, name), "rootfile", name).get("full-path", "")
        root, folder = _parse(archive, package, name), posixpath.dirname(package)
        hrefs = {item.get("id"): item.get("href", "") for item in root.iter() if _is(item, "item")}
        for reference in (item for item in root.iter() if _is(item, "itemref")):
            href = unquote(hrefs.get(reference.get("idref"), ""))
            with archive.open(posixpath.normpath(posixpath.join(folder, href))) as chapter:
                yield from html.read(_decoded(chapter), name)


def _decoded(file: IO[bytes]) -> Generator[str]:
    # EPUB allows UTF-8 and UTF-16 with a byte order mark.
    start = file.read(_BLOCK)
    wide = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    decoder = getincrementaldecoder("utf-16" if wide else "utf-8-sig")("replace")
    while start:
        if text := decoder.decode(start):
            yield text
        start = file.read(_BLOCK)
    if text := decoder.decode(b"", True):
        yield text


def _parse(archive: Archive, member: str, name: str) -> Element:
    with archive.open(member) as file:
        try:
            return parse(file).getroot()
        except ParseError as error:
            raise BinaryDocument(f"{name!r} is broken: {member}: {error}") from error


def _is(element: Element, tag: str) -> bool:
    return element.tag.rpartition("}")[2] == tag


def _find(root: Element, tag: str, name: str) -> Element:
    for element in root.iter():
        if _is(element, tag):
            return element
    raise BinaryDocument(f"{name!r} is broken: {_CONTAINER} has no {tag}")
