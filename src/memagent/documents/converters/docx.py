"""Word documents: paragraphs and tables; headings are places."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import Element, iterparse

from memagent.documents.converters import Passage
from memagent.documents.converters.archive import Archive

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BREAKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")


def read(path: Path, name: str) -> Generator[Passage]:
    """Paragraphs in order, then the notes. Paragraphs of a table's row are on one line, separated by tabs.

    Raises:
        BinaryDocument: it lacks a part, is encrypted or a bomb.
    """
    with Archive(path, name) as archive:
        for part in ("word/document.xml", *_NOTES):
            if part in _NOTES and part not in archive.NameToInfo:
                continue
            with archive.member(part) as file:
                yield from _paragraphs(cast("Any", iterparse(file, events=("start", "end"))))


def _paragraphs(events: Iterator[tuple[str, Element]]) -> Generator[Passage]:
    row: list[str] | None = None
    open_elements: list[Element] = []
    for event, element in events:
        if event == "start":
            open_elements.append(element)
            row = [] if element.tag == f"{_W}tr" else row
            continue
        open_elements.pop()
        if element.tag == f"{_W}p":
            text = _text(element)
            if row is not None:
                row.append(text)
            elif text.strip():
                yield Passage(
                    f"{text}\n\n", " ".join(text.split()) if _is_heading(element) else None
                )
        elif element.tag == f"{_W}tr":
            yield Passage("\t".join(row or ()) + "\n")
            row = None
        if element.tag in (f"{_W}p", f"{_W}tr") and open_elements:
            open_elements[-1].remove(element)  # the tree would grow with the document


def _text(paragraph: Element) -> str:
    return "".join(
        (element.text or "") if element.tag == f"{_W}t" else _BREAKS.get(element.tag, "")
        for element in paragraph.iter()
    )


def _is_heading(paragraph: Element) -> bool:
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    return style is not None and style.get(f"{_W}val", "").lower().startswith(("heading", "title"))
