"""Word documents: paragraphs and tables; headings are places."""

import logging
import posixpath
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import Element, iterparse

from memagent_formats import Passage
from memagent_formats.archive import Archive
from memagent_formats.html import RAISED
from memagent_formats.numbering import (
    WordLists,
    is_on,
    number_of,
    show_number,
    value_of,
)

_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "sup": "^"}
"""Text of elements; the last one is an exponent in an equation."""
_SYMBOLS = {
    "Symbol": dict(enumerate("ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ", 0x41))
    | dict(enumerate("′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐─↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬", 0xA2)),
    "Wingdings": {0xA8: "☐", 0xFB: "✗", 0xFC: "✓", 0xFE: "☑"},
}
"""Letters and signs by font and code; all others become U+FFFD."""
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_HIDDEN = {"moveFrom", "tabs", f"{_MC}Fallback"}
"""Elements to skip: text moved away, tab stops, and a repetition for old programs."""
_HEADINGS = ("heading", "title")
_RULES = ("styles", "numbering", "settings")
"""Parts without text, whose elements define what paragraphs are."""
_PARTS = ("header", "footer", "document", "footnotes", "endnotes", "comments")
_NOTES = {"footnote": "decimal", "endnote": "lowerRoman"}
"""Word's number formats of notes, unless the settings differ. A section's own settings are ignored."""
_log = logging.getLogger(__name__)


@dataclass
class _Context:
    """What parts of the file say about other parts."""

    headings: set[str] = field(default_factory=set[str])
    """Ids of heading styles."""
    lists: WordLists = field(default_factory=WordLists)
    notes: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in _NOTES})
    """Numbers of notes by kind and id, in the order of the text."""
    formats: dict[str, str] = field(default_factory=_NOTES.copy)
    starts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_NOTES, 1))

    def refer(self, kind: str, note: str) -> str:
        """Returns the number of a note that the text refers to."""
        number = show_number(self.starts[kind] + len(self.notes[kind]), self.formats[kind])
        return self.notes[kind].setdefault(note, number)


def read(path: Path, name: str, *_: object) -> Generator[Passage]:
    """Yields headers and footers, paragraphs in order, notes, comments. A table's row is a line separated by tabs.

    Lists, headings and notes have the numbers that Word shows; digits replace words (`First`) and signs (`*`).

    Raises like `Archive.member`.
    """
    context = _Context()
    margins: set[str] = set()
    with Archive(path, name) as archive:
        main = _find_parts(archive, "").get("document", ["word/document.xml"])[-1]
        kinds = (*_RULES, *_PARTS)
        parts = {kind: [f"word/{kind}.xml"] for kind in kinds} | _find_parts(archive, main)
        parts["document"] = [main]
        for kind, part in ((part_kind, part) for part_kind in kinds for part in parts[part_kind]):
            if kind != "document" and part not in archive.NameToInfo:
                continue
            with archive.member(part) as file:
                events = cast("Any", iterparse(file, events=("start", "end")))
                if kind in _RULES:
                    _take_rules(events, context)
                    continue
                context.lists.begin()
                for passage in _paragraphs(events, context, name):
                    if kind not in ("header", "footer"):
                        yield passage
                    elif passage.text not in margins:  # those of first and even pages may be equal
                        margins.add(passage.text)
                        yield passage


def _find_parts(archive: Archive, part: str) -> dict[str, list[str]]:
    """Returns the parts that a part, or the archive itself, refers to, by kind; `officeDocument` becomes `document`."""
    folder, name = posixpath.split(part)
    member = posixpath.join(folder, "_rels", f"{name}.rels")
    targets: dict[str, list[str]] = {}
    for relation in archive.parse(member) if member in archive.NameToInfo else ():
        kind = relation.get("Type", "").rpartition("/")[2].removeprefix("office").lower()
        target = posixpath.normpath(posixpath.join(folder, relation.get("Target", ""))).lstrip("/")
        targets.setdefault(kind, []).append(target)
    return targets


def _take_rules(events: Iterator[tuple[str, Element]], context: _Context) -> None:
    """Records lists and the styles of headings, whose names are English in all languages."""
    _, root = next(events)
    w = root.tag.partition("}")[0] + "}"
    for event, element in events:
        tag = element.tag.removeprefix(w)
        kind = tag.removesuffix("Pr")
        if event == "end" and kind in _NOTES and kind != tag:
            context.formats[kind] = value_of(element, "numFmt", w) or context.formats[kind]
            start = number_of(value_of(element, "numStart", w))
            context.starts[kind] = context.starts[kind] if start is None else start
        elif event == "end" and tag in ("style", "abstractNum", "num"):
            context.lists.add(element, w)
            style_name = (value_of(element, "name", w) or "").lower()
            if tag == "style" and style_name.startswith(_HEADINGS):
                context.headings.add(element.get(f"{w}styleId", "no style"))
            root.clear()


def _paragraphs(
    events: Iterator[tuple[str, Element]], context: _Context, name: str
) -> Generator[Passage]:
    """Yields a part's text."""
    rows: list[list[str]] = []
    open_elements: list[Element] = []
    note = "", ""
    hidden, w = 0, ""
    for event, element in events:
        w = w or element.tag.partition("}")[0] + "}"  # Strict Open XML has another namespace
        tag = element.tag.removeprefix(w)
        if event == "start":
            open_elements.append(element)
            hidden += tag in _HIDDEN
            if tag in _NOTES:
                note = tag, element.get(f"{w}id", "")
            if tag == "tr" and not hidden:
                rows.append([])
            elif tag == "tc" and rows and not hidden:
                rows[-1].append("")
            continue
        open_elements.pop()
        if hidden:
            hidden -= tag in _HIDDEN
            element.clear()
        elif tag == "altChunk":
            _log.warning(
                "%r has a part that isn't read: let Word save it as a new .docx file", name
            )
        elif tag in ("p", "tr"):
            if tag == "tr":
                text = "\t".join(rows.pop())
            else:
                text = _text(element, w, context, note)
                number = context.lists.count(element, w, empty=not text.strip())
                if text.strip():
                    text = number + text
                elif rows and number:  # a column of numbers
                    text = number.strip()
            if rows:
                rows[-1][-1:] = [" ".join(filter(None, [*rows[-1][-1:], text]))]
            elif tag == "tr":
                yield Passage(f"{text}\n")
            elif text.strip():
                style = element.find(f"{w}pPr/{w}pStyle")
                kind = "" if style is None else style.get(f"{w}val", "")
                is_heading = kind in context.headings or kind.lower().startswith(_HEADINGS)
                yield Passage(f"{text}\n\n", " ".join(text.split()) if is_heading else None)
        if tag in ("p", "tr") and open_elements:
            open_elements[-1].clear()  # or the tree would grow with the document


def _text(paragraph: Element, w: str, context: _Context, note: tuple[str, str]) -> str:
    """Returns its text with equations (in a namespace ending in `/math`) and note numbers; `note` is around it."""
    text, is_raised, was_raised = "", False, False
    deletions = {e for deleted in paragraph.iter(f"{w}del") for e in deleted.iter()}
    for e in paragraph.iter():
        tag, content = e.tag.removeprefix(w).rpartition("/math}")[2], e.text or ""
        if tag == "r":
            is_raised, was_raised = False, is_raised
        elif tag == "vertAlign":
            is_raised = e.get(f"{w}val") == "superscript"
        elif tag == "sym":
            signs = _SYMBOLS.get(e.get(f"{w}font", ""), {})
            text += signs.get(int(e.get(f"{w}char", "0"), 16) % 256, "\ufffd")
        elif (kind := tag.removesuffix("Reference")) in _NOTES and kind != tag:
            if e not in deletions and not is_on(e.get(f"{w}customMarkFollows", "0")):
                text += f"^{context.refer(kind, e.get(f'{w}id', ''))}"
        elif (kind := tag.removesuffix("Ref")) in _NOTES and kind != tag:
            number = context.notes[kind].get(note[1]) if kind == note[0] else None
            text += "" if number is None else f"^{number}"
        elif tag == "t":
            text += (
                f"^{content}" if is_raised and not was_raised and RAISED.match(content) else content
            )
        else:
            text += _MARKS.get(tag, "")
    return text
