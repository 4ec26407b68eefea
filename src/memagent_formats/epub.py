"""EPUB books: chapters in reading order; headings are places."""

import logging
import posixpath
import re
from collections.abc import Generator
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from memagent.documents.decoding import decode
from memagent.documents.filters import BLOCK_BYTES
from memagent.errors import BinaryDocument
from memagent_formats import Passage, html
from memagent_formats.archive import Archive

_log = logging.getLogger(__name__)


def read(path: Path, name: str, *_: object) -> Generator[Passage]:
    """Yields the chapters of the book's spine. Raises like `Archive.member`."""
    with Archive(path, name) as archive:
        rootfile = archive.parse("META-INF/container.xml").find(".//{*}rootfile")
        package = "" if rootfile is None else rootfile.get("full-path", "")
        root, folder = archive.parse(package), posixpath.dirname(package)
        items = {item.get("id"): item for item in root.iterfind(".//{*}item")}
        for reference in root.iterfind(".//{*}itemref"):
            item_id = reference.get("idref")
            if item_id not in items:
                raise BinaryDocument(
                    f"{name!r} is broken: spine item {item_id!r} isn't in the manifest"
                )
            href = unquote(items[item_id].get("href", "").partition("#")[0])
            if re.match(r"image/(?!svg)", items[item_id].get("media-type", "")):
                _log.warning("%r: the picture %r isn't read", name, href)
                continue
            with archive.member(posixpath.normpath(posixpath.join(folder, href))) as chapter:
                blocks = iter(partial(chapter.read, BLOCK_BYTES), b"")
                yield from html.read(decode(blocks, f"{name}: {href}", None, "replace"), name)
