"""PDF, page by page, through PDFium (extra `formats`)."""

import logging
import threading
from collections.abc import Generator
from contextlib import closing
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from memagent.errors import BinaryDocument, ConfigError
from memagent.texts import name_extra, plural
from memagent_formats import Passage

_log = logging.getLogger(__name__)
_CLEAN = str.maketrans({"\r": None, "\ufffe": None, "\x02": None, "\0": " "})
"""Characters to clean up: PDFium ends lines with both, and marks hyphens at line ends."""
_inside = threading.RLock()
"""PDFium crashes if two threads use it. The same thread may re-enter when it garbage-collects a forgotten reading."""


def read(path: Path, name: str, *_: object) -> Generator[Passage]:
    """Yields the pages' text, each page a place. Logs a warning for pages without text, such as scans.

    Raises:
        BinaryDocument: the file is encrypted, broken, or has no text at all.
        ConfigError: pypdfium2 isn't installed.
    """
    try:
        pdfium: Any = import_module("pypdfium2")  # it has no types
    except ImportError as error:
        raise ConfigError(name_extra(f"the PDF file {name!r}", "formats")) from error
    empty: list[int] = []
    has_text = False
    try:
        with _inside:
            document = pdfium.PdfDocument(path)
        try:
            with _inside:
                document.init_forms()
                count = len(document)
            for number in range(1, count + 1):
                with (
                    _inside,
                    closing(document[number - 1]) as page,
                    closing(page.get_textpage()) as words,
                ):
                    text = _text(page, words)
                    notes = "\n".join(_notes(page, document.formenv)).translate(_CLEAN)
                if not text.strip():
                    empty.append(number)
                if (text := f"{text}\n{notes}" if notes else text).strip():
                    has_text = True
                    yield Passage(f"{text}\n\n", f"p. {number}")
        finally:
            with _inside:
                document.close()
    except pdfium.PdfiumError as error:
        problem = (
            "is encrypted: decrypt" if "password" in str(error).lower() else "is broken: repair"
        )
        raise BinaryDocument(f"{name!r} {problem} the PDF file first ({error})") from error
    if not has_text:
        raise BinaryDocument(
            f"{name!r} has {plural(count, 'page')} without text, probably a scan: add text by OCR first"
        )
    if empty:
        _log.warning("%r: no text on %s of %d pages: %s", name, len(empty), count, _ranges(empty))


def _text(page: Any, words: Any) -> str:
    """Returns a page's text, with breaks between cells, which PDFium's text within bounds lacks."""
    raw: Any = import_module("pypdfium2.raw")
    units = (raw.FPDF_WCHAR * (words.count_chars() + 1))()
    raw.FPDFText_GetText(words, 0, len(units) - 1, units)
    text = bytes(units).decode("utf-16-le", "replace").rstrip("\0").translate(_CLEAN)
    bounded_text = words.get_text_bounded(errors="replace").translate(_CLEAN)
    if "".join(text.split()) == "".join(bounded_text.split()):
        return text
    left, bottom, right, top = page.get_bbox()  # PDFium's text includes what was cropped
    visible_text = ""
    for index in range(len(units) - 1):
        x, y, far, high = words.get_charbox(index)
        is_inside = x <= right and far >= left and y <= top and high >= bottom
        if is_inside or raw.FPDFText_IsGenerated(words, index) == 1:
            visible_text += chr(raw.FPDFText_GetUnicode(words, index))
    return (
        visible_text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").translate(_CLEAN)
    )


def _notes(page: Any, form: Any) -> list[str]:
    """Returns the filled fields of a page's form, each after its name, and the page's comments."""
    raw: Any = import_module("pypdfium2.raw")

    def string(name: str, *arguments: object) -> str:
        getter = getattr(raw, f"FPDFAnnot_Get{name}")
        buffer = (raw.FPDF_WCHAR * (getter(*arguments, None, 0) // 2))()
        getter(*arguments, buffer, len(buffer) * 2)
        return bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")

    texts: dict[str, None] = {}  # a dict, since radio buttons share a field
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        note = raw.FPDFPage_GetAnnot(page, number)
        kind, text = raw.FPDFAnnot_GetSubtype(note), ""
        if kind == raw.FPDF_ANNOT_WIDGET and form:
            value = string("FormFieldValue", form, note)
            label = string("FormFieldAlternateName", form, note)
            label = label or string("FormFieldName", form, note)
            # Off: an unticked box
            text = "" if value in ("", "Off") else f"{label}: {value}"
        elif kind not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):
            text = string("StringValue", note, b"Contents")
        raw.FPDFPage_CloseAnnot(note)
        if text.strip():
            texts[text] = None
    return list(texts)


def _ranges(numbers: list[int]) -> str:
    """Formats numbers as in `3, 7-9`."""
    groups = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = ([n for _, n in run] for _, run in groups)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
