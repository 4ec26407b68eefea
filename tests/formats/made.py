"""Small files of each format, written by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def pdf(pages: Sequence[str], *notes: str) -> bytes:
    """A PDF of pages of Latin text, 8 points a line; an empty string is a page without text.

    A tab begins a cell, 100 points after the one before; the seventh lies outside of the page.

    Args:
        notes: the annotations of each of the first pages; those of the first one are the fields of a form.
    """
    fields = "".join(notes[:1]).encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[%s]>>>>" % fields,
        b"",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    kids: list[int] = []
    for number, text in enumerate(pages):
        shown = text.replace("(", r"\(").replace(")", r"\)")
        cells = (
            f" 1 0 0 1 {72 + 100 * column} {720 - 8 * row} Tm ({cell}) Tj"
            for row, line in enumerate(shown.split("\n"))
            for column, cell in enumerate(line.split("\t"))
        )
        stream = f"BT /F1 12 Tf{''.join(cells)} ET".encode("latin-1") if text else b""
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R"
            b"/Annots[%s]>>" % (len(objects), "".join(notes[number : number + 1]).encode())
        )
        kids.append(len(objects))
    refs = b" ".join(b"%d 0 R" % kid for kid in kids)
    objects[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(kids), refs)
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj%s endobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start))
    return out.getvalue()


def archive(path: Path, members: Mapping[str, str | bytes]) -> Path:
    """A zip archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of a Word document."""
    kind = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{kind}<w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(path: Path, body: str, more: Mapping[str, str] | None = None) -> Path:
    """A Word document with a body."""
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return archive(path, {"word/document.xml": document, **(more or {})})


def epub(path: Path, chapters: Mapping[str, str | bytes], spine: Sequence[str]) -> Path:
    """A book whose chapters are read in the spine's order."""
    ids = {name: f"id{number}" for number, name in enumerate(chapters)}
    items = "".join(f'<item id="{ids[name]}" href="{name}"/>' for name in chapters)
    refs = "".join(f'<itemref idref="{ids[name]}"/>' for name in spine)
    package = f"<package><manifest>{items}</manifest><spine>{refs}</spine></package>"
    container = '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
    parts = {f"OPS/{name}": chapter for name, chapter in chapters.items()}
    return archive(
        path,
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "OPS/book.opf": package,
            **parts,
        },
    )
