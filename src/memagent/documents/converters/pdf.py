"""PDF, page by page, through PDFium (extra `formats`)."""

import logging
from collections.abc import Generator
from contextlib import closing
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from memagent.documents.converters import Passage
from memagent.errors import BinaryDocument, ConfigError
from memagent.texts import name_extra, plural

_log = logging.getLogger(__name__)
_CLEAN = {"\r": None, "\ufffe": None, "\x02": None, "\0": " "}
"""PDFium ends lines with both characters, and marks hyphens at line ends."""


def read(path: Path, name: str, *_: object) -> Generator[Passage]:
    """The pages' text, each from its own place. Pages without text, such as scans, are logged as a warning.

    Raises:
        BinaryDocument: it is encrypted, broken, or has no text at all.
        ConfigError: pypdfium2 is not installed.
    """
    try:
        pdfium: Any = import_module("pypdfium2")  # it has no types
    except ImportError as error:
        raise ConfigError(name_extra(f"the PDF file {name!r}", "formats")) from error
    table = str.maketrans(_CLEAN)
    try:
        with pdfium.PdfDocument(path) as document:
            empty: list[int] = []
            for number in range(1, len(document) + 1):
                with closing(document[number - 1]) as page:
                    text = page.get_textpage().get_text_bounded(errors="replace").translate(table)
                if text.strip():
                    yield Passage(f"{text}\n\n", f"p. {number}")
                else:
                    empty.append(number)
            count = len(document)
    except pdfium.PdfiumError as error:
        what = "is encrypted: decrypt" if "password" in str(error).lower() else "is broken: repair"
        raise BinaryDocument(f"{name!r} {what} the PDF file first ({error})") from error
    if len(empty) == count:
        raise BinaryDocument(
            f"{name!r} has {plural(count, 'page')} without text, probably a scan: add text by OCR first"
        )
    if empty:
        _log.warning("%r: no text on %s of %d pages: %s", name, len(empty), count, _ranges(empty))


def _ranges(numbers: list[int]) -> str:
    """As `3, 7-9`."""
    groups = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = ([n for _, n in run] for _, run in groups)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
