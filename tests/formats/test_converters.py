"""Documents in formats that are converted to text, several files as one, and files made to do harm."""

from __future__ import annotations

import base64
import gzip
import logging
import os
import quopri
import re
import time
import zipfile
from collections.abc import Sequence
from contextlib import aclosing, suppress
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.formats import made
from tests.growth import growth

from memagent import MemoryAgent, ScriptedModel, open_document
from memagent.documents.files import FileSource, FilesSource, list_files
from memagent.documents.streams import IterableSource
from memagent.errors import (
    BinaryDocument,
    DecodingError,
    DocumentError,
    DocumentNotFound,
    EmptyDocument,
)
from memagent.run.result import Result
from memagent.tasks.origin import machine
from memagent.threads import run_sync
from memagent_bench.perf.process import python
from memagent_formats import docx, html, subtitles


def read(source: Path | Sequence[Path], **options: Any) -> tuple[str, list[tuple[str, str]]]:
    """The text, and each place with the text that it has."""
    document = open_document(source, **options)
    assert isinstance(document, FileSource | FilesSource)
    text = "".join(document.read())
    found: list[tuple[str, str]] = []
    for at in range(len(text)):  # places are found in order
        place = document.places.find(at, at + 1)
        if place and (not found or found[-1][0] != place):
            found.append((place, ""))
        if place:
            found[-1] = (place, found[-1][1] + text[at])
    return text, found


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- PDF


def test_pdf_has_pages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", made.pdf(["Anna rents the boat.", "It costs (exactly) 40."]))
    text, places = read(path)
    assert text == "Anna rents the boat.\n\nIt costs (exactly) 40.\n\n"
    assert [label for label, _ in places] == ["p. 1", "p. 2"]
    assert places[1][1] == "It costs (exactly) 40.\n\n"


def test_pages_without_text_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.pdf", made.pdf(["One.", "", "Three.", "", "", ""]))
    with caplog.at_level(logging.WARNING):
        _, places = read(path)
    assert [label for label, _ in places] == ["p. 1", "p. 3"]
    assert "no text on 4 of 6 pages: 2, 4-6" in caplog.text


def test_a_scan_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "scan.pdf", made.pdf(["", ""]))
    with pytest.raises(
        BinaryDocument, match=r"scan\.pdf' has 2 pages without text, probably a scan: add.*OCR"
    ):
        read(path)


@pytest.mark.parametrize("beside", ["", "\t\t\t\tCropped"])
def test_cells_of_a_pdf_are_kept_apart(tmp_path: Path, beside: str) -> None:
    table = made.pdf([f"Lift\t12\t9{beside}\nRent\t5\t7", "Anna rents the\nboat."])
    text, places = read(write(tmp_path / "a.pdf", table))
    assert text.split() == ["Lift", "12", "9", "Rent", "5", "7", "Anna", "rents", "the", "boat."]
    assert [label for label, _ in places] == ["p. 1", "p. 2"]


def test_a_pdf_may_begin_with_other_bytes(tmp_path: Path) -> None:
    content = b"\n" * 100 + made.pdf(["Anna rents the boat."])
    for name in ("a.pdf", "a.bin"):
        assert read(write(tmp_path / name, content))[0] == "Anna rents the boat.\n\n"
    with pytest.raises(BinaryDocument, match="is a PDF file: save it to a file, unpacked"):
        "".join(IterableSource([content], "<stream>", None, "strict").read())
    for told in (
        "Files of the kind %PDF- begin with %PDF-1.4, say.",
        "Line 1:\n%PDF-1.7\n\n1 line.",
    ):
        assert read(write(tmp_path / "a.txt", told))[0] == told


def test_a_broken_pdf_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", b"%PDF-1.7 and then nothing")
    with pytest.raises(BinaryDocument, match="is broken: repair the PDF file first"):
        read(path)


THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from memagent import open_document
def read(_):
    return "".join(open_document(Path(sys.argv[1])).read())
with ThreadPoolExecutor(8) as threads:
    print(len(set(threads.map(read, range(2000)))))  # opening is what crashes soonest
"""


def test_several_pdfs_may_be_read_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", made.pdf(["A line of the text."] * 2))
    assert python("-c", THREADS, str(path)).strip() == "1"


def test_pdf_has_comments_and_what_is_filled_into_its_form(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def note(kind: str, said: str, more: str = "") -> str:
        box = "/Type/Annot/F 4/Rect[72 600 300 640]"
        return f"<<{box}/Subtype/{kind}/Contents({said}){more}>>"

    def field(kind: str, name: str, value: str) -> str:
        return note("Widget", "", f"/FT/{kind}/T({name})/V{value}")

    fields = (
        field("Tx", "f1", "(45,300)/TU(Income)"),
        field("Tx", "f2", "()"),
        field("Btn", "married", "/Yes/AS/Yes"),
        field("Btn", "retired", "/Off/AS/Off"),
    )
    notes = (note("FreeText", "Make it 900."), note("Link", "no"), note("Text", "Agreed."))
    content = made.pdf(["The rent is 800.", ""], "".join(fields), "".join(notes))
    text, places = read(write(tmp_path / "a.pdf", content))
    assert text == ("The rent is 800.\nIncome: 45,300\nmarried: Yes\n\n\nMake it 900.\nAgreed.\n\n")
    assert [label for label, _ in places] == ["p. 1", "p. 2"]
    assert "no text on 1 of 2 pages: 2" in caplog.text  # it may still be a scan


def test_an_agent_reads_a_pdf_and_says_where(tmp_path: Path) -> None:
    pages = [f"Page {n} tells of the sea and the weather, and no more. " * 3 for n in range(30)]
    pages[20] = "The code of the lighthouse is 4812. " + pages[20]
    path = write(tmp_path / "a.pdf", made.pdf(pages))
    with MemoryAgent("extractive", window=2048, store=None) as agent:
        places: list[str] = []
        result = agent.ask(
            path,
            "What is the code of the lighthouse?",
            on_event=lambda e: places.append(e.place) if e.type == "chunk_read" else None,
        )
    assert result.answer == "The code of the lighthouse is 4812."
    assert len(places) > 2
    assert places[0].startswith("p. 1 to p. ")
    assert places[-1].endswith("p. 30")


# --- text formats


def test_html_shows_what_a_reader_sees(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title>no</title><style>p {}</style></head><body>
        <h1>The <em>boat</em></h1><p>Anna &amp; Ben\n  rent it.<br>Every day.</p>
        <script>var no = "<p>no</p>";</script>
        <table><tr><td>day</td><td>price</td></tr><tr><td>Mon</td><td>40</td></tr></table>
        <pre>a\n  b</pre><h2>The end</h2><ul><li>one<li>two</ul></body></html>"""
    text, places = read(write(tmp_path / "a.html", page))
    paragraphs = text.strip().split("\n\n")
    assert paragraphs == [
        "The boat",
        "Anna & Ben rent it.\nEvery day.",
        "day\tprice",
        "Mon\t40",
        "a\n  b",
        "The end",
        "one",
        "two",
    ]
    assert [label for label, _ in places] == ["The boat", "The end"]


def test_html_may_be_compressed_and_in_any_encoding(tmp_path: Path) -> None:
    page = "<p>Grüße aus Köln, schöne Grüße, und für später noch mehr Wörter</p>" * 20
    path = write(tmp_path / "a.html.gz", gzip.compress(page.encode("cp1252")))
    assert "Grüße aus Köln" in read(path, encoding="cp1252")[0]


@pytest.mark.parametrize(
    ("page", "paragraphs"),
    [
        # The tags of the head and of the body are optional.
        ("<head><title>no</title><h1>Mon</h1><p>One.<p>Two.", ["Mon", "One.", "Two."]),
        ("<title>no</title><link rel=x><p>One.", ["One."]),
        ("<p>One.</p><svg><path d=M0><title>no</title><p>Two.</p>", ["One.", "Two."]),
        # Anything that isn't a block is inline.
        ("<p>A <blink>new</blink> <x-y>lift</x-y> <svg><p></svg>is</p>", ["A new lift", "is"]),
        ("<p>A <script>no</script>lift<template><p>no</p></template> is in", ["A lift is in"]),
        (
            "<table>\n<tr>\n<td><p>Lift</p></td>\n<td><div><p>12</p></div></td></tr><tr><td><td>x</table>",
            ["Lift\t12", "\tx"],
        ),
        ("<td><p>a</p><p>b</p></td><td>c</td>", ["a", "b\tc"]),
        # What isn't shown.
        ("<p hidden>no<p style='color:red; DISPLAY: none'>no</p><p>One.", ["One."]),
        ("<div hidden><div>no</div>no</div>One.<input hidden>Two.", ["One.Two."]),
        ("<ul><li>One.<li hidden>no<li>Two.<li hidden>no</ul>Three.", ["One.", "Two.", "Three."]),
        ("<body style='display:none'><h2 hidden>no</h2><p>One.", ["One."]),
        # A hidden element ends with what it is in.
        ("<h1>Lease</h1><div><b hidden>no</div><p>One.", ["Lease", "One."]),
        ("<td><i hidden>no</td><td>One.</td></tr></table>Two.", ["\tOne.", "Two."]),
        ("<ul><li>One.<li hidden><ul>no</ul>no</ul>Two.", ["One.", "Two."]),
        ("<div><p hidden>no</b>no</div>One.", ["One."]),
        ("<div><section hidden><div>no</div>no</i>no<br></div>One.", ["One."]),
        (
            "<p>One.<!-- no --!><p>Two.<!--><p>Three.<!---><p>Four.",
            ["One.", "Two.", "Three.", "Four."],
        ),
        # Exponents and notes are told from the number before them.
        ("In 1812<sup><a>3</a></sup> 10<sup> −6</sup>", ["In 1812^3 10^−6"]),
        ("Ann<a epub:type=noteref>1</a>, Bob<a role=doc-noteref>*</a>", ["Ann^1, Bob*"]),
        ("Ann<a epub:type=noteref><img src=n></a> 1812", ["Ann 1812"]),
        ("1812<sup><a></a>3</sup>", ["1812^3"]),
        ("1<sup>st</sup> 2<sup hidden>no</sup> 3 <sup></sup>4 CO<sub>2</sub>", ["1st 2 3 4 CO2"]),
        # Labels of drawings.
        (
            "One.<svg><title>no</title><text>Costs</text><text>4<tspan>m</tspan></text></svg>Two.",
            ["One.", "Costs", "4\nm", "Two."],
        ),
        ("<p>a <![CDATA[b]]>c", ["a c"]),
        ("<html xmlns='x'><p>a <![CDATA[<b> & ]]>c", ["a <b> & c"]),
        # Declarations that no browser knows.
        ("<p>a</p><![foo[bar]]><p>b", ["a", "b"]),
        ("<p>a <![7 b</p>c", ["a c"]),
    ],
)
def test_html_is_read_as_browsers_do(tmp_path: Path, page: str, paragraphs: list[str]) -> None:
    text, _ = read(write(tmp_path / "a.html", page))
    assert text.strip(" \n").split("\n\n") == paragraphs


def test_long_preformatted_text_comes_in_parts() -> None:
    log = "".join(f"\n {number} started" for number in range(50_000)) + " " * 65536 + "\n"
    page = f"<p>Log</p><pre>{log}</pre>end"
    pieces = (page[at : at + 65536] for at in range(0, len(page), 65536))
    texts = [text for text, _, _ in html.read(pieces, "x")]
    assert "".join(texts) == f"Log\n\n{log}\n\nend\n\n"
    assert max(map(len, texts)) < 200_000


@pytest.mark.parametrize("tag", ["p", "h1"])
@pytest.mark.parametrize(("end", "shown"), [("<br>\n", "\n"), ("\n", " "), (" <td>", "\t")])
def test_a_long_block_comes_in_parts(tag: str, end: str, shown: str) -> None:
    page = f"<p>Log</p><{tag}>" + f"It  started.{end}" * 20_000 + f"<br> <br>.</{tag}><h2>End</h2>"
    pieces = (page[at : at + 65536] for at in range(0, len(page), 65536))
    found = list(html.read(pieces, "x"))
    line = f"It started.{shown}" * 20_000
    assert "".join(text for text, _, _ in found) == f"Log\n\n{line.rstrip(' ')}\n\n.\n\nEnd\n\n"
    assert [place for _, place, _ in found if place] == ["End"]
    assert max(len(text) for text, _, _ in found) < 200_000


def test_headings_may_have_elements(tmp_path: Path) -> None:
    page = "<h2><div>One</div></h2>a<h2>The <svg><path/></svg>two</h2>b"
    _, places = read(write(tmp_path / "a.html", page))
    assert [label for label, _ in places] == ["One", "The two"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<meta charset="iso-8859-2"><p>Šťastná'.encode("iso-8859-2"), "Šťastná"),
        ('<?xml version="1.0" encoding="koi8-r"?><p>Лифт'.encode("koi8-r"), "Лифт"),
        ("<meta charset=iso-8859-1><p>“Grüße”".encode("cp1252"), "“Grüße”"),
        # A byte order mark wins; what doesn't exist or doesn't fit is ignored.
        ("\ufeff<meta charset=koi8-r><p>Grüße".encode(), "Grüße"),
        ("<meta charset=none-such><p>Grüße".encode(), "Grüße"),
        ("<meta charset=utf-16><p>Grüße".encode(), "Grüße"),
        (("<meta charset=utf-8><p>" + "Grüße aus Köln " * 9).encode("cp1252"), "Grüße aus Köln"),
    ],
)
def test_html_names_its_encoding(tmp_path: Path, content: bytes, text: str) -> None:
    assert text in read(write(tmp_path / "a.html", content))[0]


def test_only_text_formats_may_be_compressed(tmp_path: Path) -> None:
    page = gzip.compress(b"# One\ntext")
    assert read(write(tmp_path / "a.md.gz", page))[1] == [("One", "# One\ntext")]
    for name in ("a.pdf.gz", "a.eml.gz", "a.docx.gz"):
        with pytest.raises(BinaryDocument, match=rf"unpack it first \(gunzip .*{name}\)"):
            read(write(tmp_path / name, page))


def test_markdown_headings_may_be_underlined(tmp_path: Path) -> None:
    page = (
        "---\ntitle: no\n---\n\nOne\n===\nTwo\n---\ntext\n\n---\n\n- no\n---\n"
        "````\nno\n---\n```\n# no\n```\n````\n```x``` \n# Three\nno\nno\n---\n\nFour\n---"
    )
    text, places = read(write(tmp_path / "a.md", page))
    assert text == page
    assert [label for label, _ in places] == ["One", "Two", "Three", "Four"]
    assert places[0][1] == "One\n===\n"


def test_markdown_is_unchanged(tmp_path: Path) -> None:
    page = "intro\n# One #\ntext\n```\n# no heading\n```\n## Two\r\n### C#\nend"
    text, places = read(write(tmp_path / "a.md", page))
    assert text == page
    assert [label for label, _ in places] == ["One", "Two", "C#"]
    assert places[0][1].endswith("```\n")


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (
            ".vtt",
            (
                "WEBVTT - a talk\n\nNOTE no\n\n1\n00:01.000 --> 00:04.000 align:start\n"
                "<v Anna>Hello <i>there</i>.\n\n01:00:05.500 --> 01:00:07.000\nYes,\nindeed.\n"
            ),
        ),
        (
            ".srt",
            (
                "1\n00:00:01,000 --> 00:00:04,000\n{\\an8}Anna: Hello there.\n\n2\n"
                "01:00:05,500 --> 01:00:07,000\nYes,\nindeed.\n"
            ),
        ),
    ],
)
def test_subtitles_have_times(tmp_path: Path, suffix: str, text: str) -> None:
    said, places = read(write(tmp_path / f"talk{suffix}", text))
    assert said == "Anna: Hello there.\nYes,\nindeed.\n"
    first = {".vtt": "00:01", ".srt": "00:00:01"}
    assert [label for label, _ in places] == [first[suffix], "01:00:05"]


def test_a_heading_with_many_blanks_takes_no_time(tmp_path: Path) -> None:
    page = f"# Total{' ' * 100_000}12 EUR {'#' * 100_000}{' ' * 100_000}\ntext\n"
    _, places = read(write(tmp_path / "a.md", page))
    assert [label for label, _ in places] == [f"Total{' ' * 100_000}12 EUR"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.vtt",
            "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>R&amp;D: &lt;5k&nbsp;euros\n42\n",
            "Ann: R&D: <5k\xa0euros\n42\n",
        ),
        (
            "a.srt",
            (
                "1\n00:00:01,000 --> 00:00:02,000\n\nThe lift broke.\n\n2\n00:00:02,000 --> 00:00:03,000\n\n"
                "3\n00:00:03,000 --> 00:00:04,000\n42\n"
            ),
            "The lift broke.\n42\n",
        ),
        ("a.srt", "1\n00:00:01.00 --> 00:00:02.0\nHello.\n", "Hello.\n"),
        (
            "a.srt",
            "1\n00:00:01.0 --> 00:00:02.0\nIn\n\n1805\n\n2\n\n00:00:03.0 --> 00:00:04.0\n\n7\n8\n\n9",
            "In\n1805\n7\n8\n9\n",
        ),
        (
            "a.srt",
            "1\n00:00:01.00 --> 00:00:02.0\nOne\n\nmore.\n\n2\n00:00:03.0 --> 00:00:04.0\nTwo.\n",
            "One\nmore.\nTwo.\n",
        ),
        ("a.srt", "1\n0:0:1:0 --> 0:0:2:0\nOne.\n\n2\n0:00:03,0 --> 4\nTwo.\n", "One.\nTwo.\n"),
        (
            "a.srt",
            "1\n1 s --> 2 s\nOne.\n\n2\n0:00:03,0 --> 0:00:04,0\nTwo.\n",
            "1\n1 s --> 2 s\nOne.\nTwo.\n",
        ),
        ("a.srt", "0:0:1,0 --> 2\n<Ann> <b>If</b> x <y and z> 3.", "<Ann> If x <y and z> 3.\n"),
        ("a.srt", "1\r00:00:01,0 --> 00:00:02,0\rHello\rthere.\r", "Hello\nthere.\n"),
        (
            "a.srt",
            "1\r\n00:00:01,0 --> 00:00:02,0\r\n" + "Hello.\r\n" * 20_000,
            "Hello.\n" * 20_000,
        ),
    ],
)
def test_subtitles_as_programs_write_them(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert read(write(tmp_path / name, text))[0] == said


@pytest.mark.parametrize(
    "tag", ["<v x", "<v", "<v.x", "<v ", "<b ", "<1", "{\\", "<b {\\", "<b <v x>", " "]
)
@pytest.mark.parametrize("end", ["", ">", "}", "<v >", "}>"])
def test_subtitles_take_time_in_proportion(tag: str, end: str) -> None:
    head, step = "WEBVTT\n\n00:01.000 --> 00:02.000\n", 10_000 // len(tag)
    short, long = (head + "Hello " + tag * (step * times) + end for times in (1, 20))
    work = [lambda text=text: [*subtitles.read(iter([text]), "x")] for text in (short, long)]
    assert growth(*work) < 60


def test_subtitles_without_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BinaryDocument, match=r"has no cues with times such as 00:01\.000 -->"):
        read(write(tmp_path / "a.vtt", "A talk.\nAnn: hello\n"))
    with pytest.raises(EmptyDocument):
        read(write(tmp_path / "a.vtt", "WEBVTT\n\n"))


# --- archives and mail


def test_docx_has_headings_tables_and_notes(tmp_path: Path) -> None:
    row = "<w:tr>" + "".join(f"<w:tc>{made.paragraph(t)}</w:tc>" for t in ("Mon", "40")) + "</w:tr>"
    body = (
        made.paragraph("The boat", "Heading1")
        + made.paragraph("Anna rents it.")
        + f"<w:tbl>{row}</w:tbl>"
    )
    notes = f'<w:footnotes xmlns:w="{made.WORD}">{made.paragraph("See the log.")}</w:footnotes>'
    text, places = read(made.docx(tmp_path / "a.docx", body, {"word/footnotes.xml": notes}))
    assert text == "The boat\n\nAnna rents it.\n\nMon\t40\nSee the log.\n\n"
    assert [label for label, _ in places] == ["The boat"]


def test_docx_numbers_notes_as_the_text_refers_to_them(tmp_path: Path) -> None:
    def refer(kind: str, number: int, more: str = "") -> str:
        return f'<w:r><w:{kind}Reference w:id="{number}"{more}/></w:r>'

    def said(text: str, *runs: str) -> str:
        return made.paragraph(text).replace("</w:p>", f"{''.join(runs)}</w:p>")

    def note(kind: str, number: int, text: str) -> str:
        marked = said(text).replace("<w:p>", f"<w:p><w:r><w:{kind}Ref/></w:r>")
        return f'<w:{kind} w:id="{number}"><w:p/>{marked}</w:{kind}>'

    own = refer("footnote", 3, ' w:customMarkFollows="1"') + "<w:r><w:t>*</w:t></w:r>"
    body = (
        said("Ann", refer("footnote", 7))
        + said("Cy", f"<w:del>{refer('footnote', 9)}</w:del>")
        + said("Bob", refer("endnote", 1), refer("footnote", 2), own)
    )
    feet = note("footnote", 2, " late") + note("footnote", 7, " early") + note("footnote", 9, "no")
    feet += f'<w:footnote w:id="3">{said("* never")}</w:footnote>'
    more = {
        "word/footnotes.xml": part("footnotes", feet),
        "word/endnotes.xml": part("endnotes", note("endnote", 1, " at noon")),
    }
    text, _ = read(made.docx(tmp_path / "a.docx", body, more))
    assert text.split("\n\n") == [
        *("Ann^1", "Cy", "Bob^i^2*", "^2 late", "^1 early", "no", "* never", "^i at noon", "")
    ]
    letters = '<w:footnotePr><w:numFmt w:val="upperLetter"/><w:numStart w:val="3"/></w:footnotePr>'
    digits = '<w:endnotePr><w:numFmt w:val="decimal"/></w:endnotePr>'
    more |= {"word/settings.xml": part("settings", letters + digits)}
    text, _ = read(made.docx(tmp_path / "a.docx", body, more))
    assert text.startswith("Ann^C\n\nCy\n\nBob^1^D*\n\n^D late")


def test_docx_has_equations(tmp_path: Path) -> None:
    for space in (
        "schemas.openxmlformats.org/officeDocument/2006",
        "purl.oclc.org/ooxml/officeDocument",
    ):
        equation = f'<m:oMath xmlns:m="http://{space}/math"><m:r><m:t>E=mc²</m:t></m:r></m:oMath>'
        body = made.paragraph("The energy is ").replace("</w:p>", f"{equation}</w:p>")
        assert read(made.docx(tmp_path / "a.docx", body))[0] == "The energy is E=mc²\n\n"


def relations(*targets: tuple[str, str]) -> str:
    """What a part of a Word document refers to: kinds and parts."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    each = (f'<Relationship Type="{kind}/{k}" Target="{v}"/>' for k, v in targets)
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{space}">{"".join(each)}</Relationships>'


def part(kind: str, content: str) -> str:
    """A part of a Word document."""
    return f'<w:{kind} xmlns:w="{made.WORD}">{content}</w:{kind}>'


def test_docx_has_headers_footers_and_comments_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = made.paragraph("The rent is 800.", "Heading1") + "<w:altChunk/>"
    header = made.paragraph("Contract 7731") + made.paragraph(" ")
    kinds = ("header", "comments", "header", "footer", "header")
    names = tuple((kind, f"{number}.xml") for number, kind in enumerate(kinds))
    more = {
        "word/_rels/document.xml.rels": relations(*names),
        "word/0.xml": part("hdr", header),
        "word/1.xml": part("comments", f"<w:comment>{made.paragraph('Make it 900.')}</w:comment>"),
        "word/2.xml": part("hdr", header + made.paragraph("Annex B")),
        "word/3.xml": part("ftr", made.paragraph("Until 2031")),
        "word/4.xml": part("hdr", ""),
    }
    text, places = read(made.docx(tmp_path / "a.docx", body, more))
    assert text.split("\n\n") == [
        *("Contract 7731", "Annex B", "Until 2031"),
        *("The rent is 800.", "Make it 900.", ""),
    ]
    assert [label for label, _ in places] == ["The rent is 800."]
    assert "a.docx' has a part that isn't read: let Word save it" in caplog.text


@pytest.mark.parametrize(
    "between", ['<w:bookmarkStart w:id="1" w:name="a"/><w:bookmarkEnd w:id="1"/>', "<w:tbl/>"]
)
def test_docx_takes_time_in_proportion(tmp_path: Path, between: str) -> None:
    short, long = (
        made.docx(tmp_path / f"{count}.docx", (made.paragraph("text") + between * 3) * count)
        for count in (2_000, 20_000)
    )
    assert growth(lambda: [*docx.read(short, "x")], lambda: [*docx.read(long, "x")]) < 30


def test_docx_may_name_its_parts_as_it_likes(tmp_path: Path) -> None:
    style = '<w:style w:styleId="x"><w:name w:val="heading 1"/></w:style>'
    members = {
        "_rels/.rels": relations(("officeDocument", "/word/document2.xml")),
        "word/_rels/document2.xml.rels": relations(
            ("styles", "styles2.xml"), ("footnotes", "../notes.xml")
        ),
        "word/document2.xml": part("document", made.paragraph("The boat", "x")),
        "word/styles2.xml": part("styles", style),
        "notes.xml": part("footnotes", made.paragraph("See the log.")),
    }
    text, places = read(made.archive(tmp_path / "a.docx", members))
    assert text == "The boat\n\nSee the log.\n\n"
    assert [label for label, _ in places] == ["The boat"]


def test_docx_keeps_the_cells_around_a_table_in_a_table(tmp_path: Path) -> None:
    def row(*cells: str) -> str:
        return f"<w:tbl><w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr></w:tbl>"

    inner = row(made.paragraph("b"), made.paragraph("c"))
    body = row(made.paragraph("a"), inner + made.paragraph("d"), made.paragraph("e"))
    text, _ = read(made.docx(tmp_path / "a.docx", body + made.paragraph("end")))
    assert text == "a\tb\tc d\te\nend\n\n"


def test_docx_keeps_exponents_symbols_and_columns(tmp_path: Path) -> None:
    def run(text: str, kind: str = "") -> str:
        kind = f'<w:rPr><w:vertAlign w:val="{kind}"/></w:rPr>' if kind else ""
        return f"<w:r>{kind}{text}</w:r>"

    def said(text: str, kind: str = "") -> str:
        return run(f"<w:t>{text}</w:t>", kind)

    def symbol(font: str, code: str) -> str:
        return run(f'<w:sym w:font="{font}" w:char="{code}"/>')

    up = "superscript"
    notes = said("In 1812") + said("3", up) + said(" the 1") + said("st", up) + said(" had 10")
    notes += said("-", up) + said("6", up) + said("; CO") + said("2", "subscript")
    symbols = "".join(symbol("Symbol", code) for code in ("F061", "F0b1", "F0D8", "F022"))
    symbols += symbol("Wingdings", "F0FC") + symbol("Other", "F0FC")
    cells = ("Ann", "late</w:t></w:r></w:p><w:p/><w:p><w:r><w:t>sorry", "", "5")
    row = "".join(f"<w:tc>{made.paragraph(cell)}</w:tc>" for cell in cells)
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    power = (
        f"<m:sSup {math}><m:r><m:t>10</m:t></m:r><m:sup><m:r><m:t>6</m:t></m:r></m:sup></m:sSup>"
    )
    body = (
        f"<w:p>{notes}</w:p><w:p>{symbols}</w:p><w:tbl><w:tr>{row}</w:tr></w:tbl><w:p>{power}</w:p>"
    )
    text, _ = read(made.docx(tmp_path / "a.docx", body))
    assert text.split("\n") == [
        *("In 1812^3 the 1st had 10^-6; CO2", "", "α±¬\ufffd✓\ufffd", ""),
        *("Ann\tlate sorry\t\t5", "10^6", "", ""),
    ]


def test_docx_shows_what_word_shows_once(tmp_path: Path) -> None:
    box = (
        f"<w:txbxContent>{made.paragraph('box')}<w:tbl><w:tr><w:tc/></w:tr></w:tbl></w:txbxContent>"
    )
    boxes = "".join(f"<mc:{kind}>{box}</mc:{kind}>" for kind in ("Choice", "Fallback"))
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    run = "<w:r><w:t>moved</w:t><w:tab/><w:t>text</w:t></w:r>"
    stops = '<w:pPr><w:tabs><w:tab w:pos="720"/></w:tabs></w:pPr>'
    body = (
        f"<w:p><w:r><mc:AlternateContent {mc}>{boxes}</mc:AlternateContent></w:r></w:p>"
        f"<w:p>{stops}<w:moveFrom>{run}</w:moveFrom></w:p><w:p>{stops}<w:moveTo>{run}</w:moveTo></w:p>"
    )
    text, _ = read(made.docx(tmp_path / "a.docx", body))
    assert text == "box\n\n\nmoved\ttext\n\n"


@pytest.mark.parametrize("space", [made.WORD, "http://purl.oclc.org/ooxml/wordprocessingml/main"])
def test_docx_has_headings_in_any_language(tmp_path: Path, space: str) -> None:
    name = '<w:name w:val="heading 1"/>'
    styles = (
        f'<w:styles xmlns:w="{space}"><w:style w:styleId="berschrift1">{name}</w:style></w:styles>'
    )
    body = made.paragraph("Der Lift", "berschrift1") + made.paragraph("Er hängt.", "Standard")
    document = f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
    members = {"word/styles.xml": styles, "word/document.xml": document}
    text, places = read(made.archive(tmp_path / "a.docx", members))
    assert text == "Der Lift\n\nEr hängt.\n\n"
    assert [label for label, _ in places] == ["Der Lift"]


def test_epub_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    chapters = {
        "one.xhtml": "<html><body><h1>One</h1><p>First.</p></body></html>",
        "two b.xhtml": "<html><body><h1>Two</h1><p>Second.</p></body></html>".encode("utf-16"),
    }
    text, places = read(made.epub(tmp_path / "a.epub", chapters, ["two b.xhtml", "one.xhtml"]))
    assert text == "Two\n\nSecond.\n\nOne\n\nFirst.\n\n"
    assert [label for label, _ in places] == ["Two", "One"]


def test_epub_chapters_have_fragments_and_encodings(tmp_path: Path) -> None:
    chapter = '<?xml version="1.0" encoding="iso-8859-1"?><html><p>Größe</p></html>'
    made.epub(tmp_path / "a.epub", {"a.xhtml#x": ""}, ["a.xhtml#x"])
    with zipfile.ZipFile(tmp_path / "a.epub", "a") as archive:
        archive.writestr("OPS/a.xhtml", chapter.encode("latin-1"))
    assert read(tmp_path / "a.epub")[0] == "Größe\n\n"
    package = '<package><spine><itemref idref="zz"/></spine></package>'
    members = {"META-INF/container.xml": '<c><rootfile full-path="b"/></c>', "b": package}
    with pytest.raises(BinaryDocument, match="spine item 'zz' isn't in the manifest"):
        read(made.archive(tmp_path / "b.epub", members))


def test_epub_pictures_are_named_unless_they_are_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = {"a.jpg": ("image/jpeg", b"\xff\xd8\xff"), "b.svg": ("image/svg+xml", b"<svg><text>42")}
    path = tmp_path / "a.epub"
    manifest = "".join(
        f'<item id="{n}" href="{n}" media-type="{t}"/>' for n, (t, _) in items.items()
    )
    spine = "".join(f'<itemref idref="{n}"/>' for n in items)
    members = {
        "META-INF/container.xml": '<c><rootfile full-path="b.opf"/></c>',
        "b.opf": f"<package><manifest>{manifest}</manifest><spine>{spine}</spine></package>",
        **{name: content for name, (_, content) in items.items()},
    }
    assert read(made.archive(path, members))[0] == "42\n\n"
    assert "a.epub': the picture 'a.jpg' isn't read" in caplog.text
    with pytest.raises(BinaryDocument, match=r"a\.epub: a\.jpg' is a JPEG image"):
        read(made.archive(path, members | {"b.opf": members["b.opf"].replace("image/jpeg", "")}))


def test_mail_has_headers_and_text_and_names_attachments(tmp_path: Path) -> None:
    from email.message import EmailMessage

    message = EmailMessage()
    message["From"], message["Subject"] = "anna@example.org", "Die Küche"
    message.set_content("The oven is broken.\n")
    message.add_alternative("<p>The oven is <b>broken</b>.</p>", subtype="html")
    message.add_attachment(b"x", maintype="image", subtype="png", filename="oven.png")
    text, _ = read(write(tmp_path / "a.eml", bytes(message)))
    assert text == (
        "From: anna@example.org\nSubject: Die Küche\n\nThe oven is broken.\n\nAttachments (not read): oven.png\n"
    )


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ('From: "', 'From: "'),
        ("From: x <", "From: x <"),
        ("From: a@", "From: a@"),
        ("From: a@[1.2.3", "From: a@[1.2.3"),
        ("From: a@b@c", "From: a@b@c"),
        ("From: Foo Bar [mailto:a@b.c]", "From: Foo Bar [mailto:a@b.c]"),
        ("To: Group: a@b.c, Sub: d@e.f;;", "To: Group: a@b.c, Sub: d@e.f;;"),
        ("To: a@b.c; d@e.f", "To: a@b.c; d@e.f"),
        ("to: =?utf-8?q?J=C3=BCrgen?=\n <a@b.c>", "To: Jürgen <a@b.c>"),
        ("Subject: =?utf-8?q?a=0ATo=3A?= b", "Subject: a To: b"),
        ("Subject: =?idna?q?a?=", "Subject: a"),
        ("Content-Disposition: inline; filename*=idna''x", ""),
    ],
)
def test_mail_headers_are_shown_as_they_were_sent(tmp_path: Path, header: str, shown: str) -> None:
    text, _ = read(write(tmp_path / "a.eml", f"{header}\n\nThe oven is broken.\n"))
    assert text == f"{shown}\n\nThe oven is broken.\n".removeprefix("\n" * (not shown))


def multipart(kind: str, *contents: str) -> str:
    """A part made of parts, each with its headers."""
    parts = "".join(f"--{kind}\nContent-Type: {content}\n" for content in contents)
    return f"multipart/{kind}; boundary={kind}\n\n{parts}--{kind}--\n"


PLAIN, PAGE = "text/plain\n\nThe oven is broken.", "text/html\n\n<p>The <b>oven</b> is broken.</p>"
PICTURE = 'image/png; name="=?utf-8?q?K=C3=BCche?="\n\nx'
UNREAD = "\nAttachments (not read): Küche\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (multipart("alternative", PLAIN, PAGE), "The oven is broken."),
        (multipart("alternative", "text/plain\n\n \n", PAGE), "The oven is broken.\n\n"),
        (
            multipart("alternative", "text/plain\n\nSee the web page.", PAGE),
            "See the web page.\nThe oven is broken.\n\n",
        ),
        ("text/markdown\n\n# The oven", "# The oven"),
        (
            multipart("alternative", PLAIN, multipart("mixed", PAGE, PICTURE)),
            "The oven is broken." + UNREAD,
        ),
        (
            multipart("mixed", PLAIN, PICTURE, "text/plain\n\nBy Tuesday."),
            "The oven is broken.\nBy Tuesday." + UNREAD,
        ),
        (
            multipart("mixed", PLAIN, "message/rfc822\n\nSubject: Fan\n\nIt hums."),
            "The oven is broken.\nSubject: Fan\n\nIt hums.",
        ),
    ],
)
def test_all_text_of_mail_is_read_once(tmp_path: Path, content: str, text: str) -> None:
    path = write(tmp_path / "a.eml", f"Content-Type: {content}")
    assert read(path)[0] == "\n" + text


CODINGS = ("base64", "quoted-printable")
FORWARD = b"Subject: Fan\nContent-Type: text/plain; charset=utf-8\n\nIt hums at 50\xc2\xa0Hz."


@pytest.mark.parametrize(
    ("coding", "sent", "text"),
    [
        ("base64", base64.encodebytes(FORWARD), "\nSubject: Fan\n\nIt hums at 50\xa0Hz."),
        ("Base64 ", base64.encodebytes(FORWARD), "\nSubject: Fan\n\nIt hums at 50\xa0Hz."),
        (
            "quoted-printable",
            quopri.encodestring(FORWARD),
            "\nSubject: Fan\n\nIt hums at 50\xa0Hz.",
        ),
        # Not encoded, although they say so.
        ("base64", FORWARD, "\nSubject: Fan\n\nIt hums at 50\xa0Hz."),
        ("quoted-printable", FORWARD + b" a=3D", "\nSubject: Fan\n\nIt hums at 50\xa0Hz. a=3D"),
        *((coding, b"\nFan: it hums.", "\n\nFan: it hums.") for coding in CODINGS),
        *((coding, b">From x\nFan: 50\xa0Hz", "\n\n>From x\nFan: 50\xa0Hz") for coding in CODINGS),
        ("base64", b"!?", "\n\n!?"),
        ("base64", b"It hums\nat 50.", "\n\nIt hums\nat 50."),
        ("quoted-printable", b"It hums.", "\n\nIt hums."),
        # Encoded, with lines that a mailing list added.
        (
            "base64",
            base64.encodebytes(FORWARD) + b"\n__\nTo leave: \xc3\xa9",
            "\nSubject: Fan\n\nIt hums at 50\xa0Hz.\n\n__\nTo leave: é",
        ),
        # Encoded, but not a message.
        ("base64", base64.encodebytes(b"\0\1\2" * 99), "\nAttachments (not read): fan.eml\n"),
    ],
)
def test_a_forwarded_message_may_be_encoded(
    tmp_path: Path, coding: str, sent: bytes, text: str
) -> None:
    part = f"message/rfc822; name=fan.eml\nContent-Transfer-Encoding: {coding}\n\nSENT"
    mail = f"Content-Type: {multipart('mixed', PLAIN, part)}".encode().replace(b"SENT", sent)
    assert read(write(tmp_path / "a.eml", mail))[0] == f"\nThe oven is broken.{text}"


@pytest.mark.parametrize(("depth", "is_read"), [(20, True), (21, False), (5000, False)])
def test_forwarded_messages_are_decoded_to_a_depth(
    tmp_path: Path, depth: int, is_read: bool
) -> None:
    # Headers need no escaping, so quoted-printable adds no characters.
    head = "Content-Type: message/rfc822\nContent-Transfer-Encoding: quoted-printable\n\n"
    mail = f"Content-Type: {multipart('mixed', PLAIN, head[14:] + head * (depth - 1) + 'Subject: Fan')}"
    text, _ = read(write(tmp_path / "a.eml", mail))
    assert ("Subject: Fan" in text) == is_read
    assert ("Attachments (not read): message/rfc822" in text) == (not is_read)


def test_a_long_header_of_mail_is_not_decoded(tmp_path: Path) -> None:
    long = (
        f"Subject: {'=?utf-8?q?b?= ' * 100_000}\nContent-Type: text/plain{'; name=value' * 100_000}"
    )
    text, _ = read(write(tmp_path / "a.eml", f"From: a@b.c\n{long}\n\nIt hums.\n"))
    subject = " ".join(["=?utf-8?q?b?="] * 100_000)
    assert text == f"From: a@b.c\nSubject: {subject}\n\nIt hums.\n"


@pytest.mark.parametrize(
    "text", ["It is broken", "It is broken.", "It is broken!!", "Broken, \n" * 20]
)
@pytest.mark.parametrize("footer", ["", "\n-- \nTo leave, see example.org: \xe9\n"])
def test_lines_after_a_part_in_base64_are_read(tmp_path: Path, text: str, footer: str) -> None:
    sent = base64.encodebytes(text.encode()) + footer.encode("latin-1")
    head = b"Content-Type: text/plain; charset=latin-1\nContent-Transfer-Encoding: Base64\n\n"
    found, _ = read(write(tmp_path / "a.eml", head + sent))
    assert found.split() == f"{text} {footer}".split()


@pytest.mark.parametrize(
    ("charset", "sent", "text", "fits"),
    [
        ("iso-8859-1", "80 € “netto”".encode("cp1252"), "80 € “netto”", True),
        ("gb2312", "朱镕基".encode("gb18030"), "朱镕基", True),
        ("utf-8", "80 €".encode(), "80 €", True),
        ("unknown-8bit", b"80 euros", "80 euros", False),
        ("us-ascii", "Die Brücke für 80 €.".encode("cp1252"), "Die Brücke für 80 €.", False),
        ("idna", "80 €".encode(), "80 €", False),
        ("utf-8", "Grüße, Grüße, Grüße ".encode() + b"\xff", "Grüße, Grüße, Grüße \ufffd", False),
    ],
)
def test_mail_has_charsets(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    charset: str,
    sent: bytes,
    text: str,
    fits: bool,
) -> None:
    part = f"text/plain; charset={charset}\nContent-Transfer-Encoding: 8bit\n\nSENT"
    content = f"Content-Type: {multipart('alternative', part)}".encode()
    path = write(tmp_path / "a.eml", content.replace(b"SENT", sent))
    assert read(path)[0] == f"\n{text}"
    assert caplog.text.count("isn't in its charset") == (not fits)


def test_mail_is_read_in_the_encoding_that_is_given(tmp_path: Path) -> None:
    head = b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
    path = write(tmp_path / "a.eml", head + "Grüße".encode("cp1252"))
    assert read(path, encoding="cp1252")[0] == "\nGrüße"
    with pytest.raises(DecodingError, match="name its encoding"):
        read(path, encoding="ascii")


def test_the_encoding_that_is_given_is_not_for_mail_that_declares_its_own(tmp_path: Path) -> None:
    parts = [f"text/plain{kind}\n\nCafé{n}" for n, kind in enumerate(("; charset=utf-8", ""))]
    first, last = f"Content-Type: {multipart('mixed', *parts)}".split("Café1")
    path = write(tmp_path / "a.eml", first.encode() + "Café1".encode("cp1252") + last.encode())
    assert read(path, encoding="cp1252")[0] == "\nCafé0\nCafé1"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "\nAttachments (not read): a.txt\n"),
        (b"\x07\x08\xff\x01\x02", "\nAttachments (not read): a.txt\n"),
        (b"The code \xe9t\xe9 is\0 47.", "\nThe code été is 47."),
        (b"It is 47. " * 20 + bytes(range(128, 256)), "\n" + "It is 47. " * 20 + "\ufffd" * 128),
    ],
)
def test_a_part_of_mail_may_be_anything(tmp_path: Path, content: bytes, text: str) -> None:
    part = "text/plain; name=a.txt\nContent-Disposition: inline\n\nODD"
    mail = f"Content-Type: {multipart('mixed', PLAIN, part)}".encode()
    assert read(write(tmp_path / "a.eml", mail.replace(b"ODD", content)))[0] == (
        f"\nThe oven is broken.{text}"
    )
    if "not read" in text:
        with pytest.raises(BinaryDocument, match="has no text"):
            read(write(tmp_path / "a.eml", f"Content-Type: {part}".encode()[:-3] + content))


@pytest.mark.parametrize("part", ["message/rfc822\n\n", "multipart/mixed; boundary={0}\n\n--{0}\n"])
def test_mail_within_mail_without_end_is_refused(tmp_path: Path, part: str) -> None:
    parts = "".join(f"Content-Type: {part}".format(number) for number in range(2000))
    with pytest.raises(BinaryDocument, match="is broken"):
        read(write(tmp_path / "a.eml", parts))


# --- lines


def test_text_files_have_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "One.\nTwo.\n\nFour.")
    _, places = read(path)
    assert places == [
        *(("a.txt:1", "One.\n"), ("a.txt:2", "Two.\n")),
        *(("a.txt:3", "\n"), ("a.txt:4", "Four.")),
    ]
    result = MemoryAgent(ScriptedModel(["Two.", "Four."]), store=None).ask(path, "Which?")
    assert [(quote.place, quote.text) for quote in result.quotes()] == [
        ("a.txt:4", "Four."),
        ("a.txt:2", "Two."),
    ]


def test_a_chunk_of_millions_of_characters_has_its_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "A line of some text.\n" * 200_000)
    document = open_document(path)
    assert isinstance(document, FileSource)
    at = sum(len(piece) for piece in document.read())
    assert document.places.find(5, at) == "a.txt:1-200000"


def test_lines_are_told_apart_far_into_a_file_and_never_guessed(tmp_path: Path) -> None:
    lines = [f"Line {number} of many.\n" for number in range(1, 500_001)]
    path = write(tmp_path / "a.txt", gzip.compress("".join(lines).encode()))
    document = open_document(path)
    assert isinstance(document, FileSource)
    at = sum(len(piece) for piece in document.read())
    start = len("".join(lines[:-1]))
    assert document.places.find(start, at) == "a.txt:500000"
    again = open_document(path)
    assert isinstance(again, FileSource)
    for _ in again.read():
        pass
    assert again.places.find(0, 5) == "a.txt"  # too long ago to say more


# --- several files


def test_a_folder_is_one_document(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    write(folder / ".git" / "config", "no")
    write(folder / "b.md", "# Boat\nIt is red.\n")
    write(folder / "sub" / "c.txt", "The end.")
    write(folder / "a.pdf", made.pdf(["One.", "Two."]))
    text, places = read(folder)
    assert text.startswith("[file a.pdf]\n\nOne.\n\nTwo.\n\n\n\n[file b.md]\n\n# Boat\n")
    assert "no" not in text
    assert [label for label, _ in places] == [
        *("a.pdf", "a.pdf: p. 1", "a.pdf: p. 2"),
        *("b.md", "b.md: Boat", "sub/c.txt", "sub/c.txt:1"),
    ]
    document = open_document(folder)
    assert document.rereadable
    assert document.path == str(folder)
    text_of_list, _ = read([folder / "b.md", folder / "sub" / "c.txt"])
    assert "".join(text_of_list.split()) in "".join(
        text.replace("[file ", f"[file {folder}/").split()
    )


def test_a_run_over_a_folder_resumes_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(20):
        write(
            folder / f"{number:02}.txt",
            f"The gate {number} has the code {number + 500}. " + "The sea is calm. " * 60,
        )
    with MemoryAgent("extractive", window=1024, store=tmp_path / "s.sqlite") as agent:
        stream = agent.stream(folder, "Which code has the gate 17?", run_id="r")

        async def begin() -> None:
            async with aclosing(stream) as events:
                async for event in events:
                    if event.type == "memory_updated" and event.chunk == 2:
                        return

        run_sync(begin())
        result = agent.resume("r")
    assert isinstance(result, Result)
    assert result.answer == "The gate 17 has the code 517."


def test_files_that_match_a_pattern_are_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.txt", "a.md", "deep/c.txt", "deep/.hidden.txt", ".git/d.txt", "deep/e.txt.old"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, f"This is {name}.")
    monkeypatch.chdir(tmp_path)
    document = open_document(Path("**/*.txt"))
    assert (document.name, document.path) == ("**/*.txt", str(tmp_path / "**/*.txt"))
    assert document.rereadable
    assert document.path
    files = "[file b.txt]\n\nThis is b.txt.\n\n[file deep/c.txt]\n\nThis is deep/c.txt.\n\n"
    assert read(Path("**/*.txt"))[0] == read(Path(document.path))[0] == files
    assert read(Path("deep/*.txt"))[0] == "[file c.txt]\n\nThis is deep/c.txt.\n\n"
    write(tmp_path / "b[1].txt", "Brackets.")
    assert read(Path("b[1].txt"))[0] == "Brackets."  # the file itself, if there is one
    (tmp_path / "[x]").mkdir()
    write(tmp_path / "[x]" / "f.txt", "Below brackets.")
    monkeypatch.chdir(tmp_path / "[x]")
    assert read(Path("*.txt"))[0] == "[file f.txt]\n\nBelow brackets.\n\n"
    for none in ("*.pdf", "none/*.txt"):
        with pytest.raises(DocumentNotFound, match=re.escape(f"no file matches '{none}'")):
            read(Path(none))


def test_small_files_keep_their_lines(tmp_path: Path) -> None:
    for number in range(200):
        write(tmp_path / f"{number:03}.txt", f"\nRoom {number}.\n")
    _, places = read(tmp_path)
    assert [label for label, text in places if "Room" in text] == [
        f"{n:03}.txt:2" for n in range(200)
    ]


@pytest.mark.parametrize("pattern", ["", "**", "**/*.txt", "*/**/*.txt"])
def test_links_are_followed_once(tmp_path: Path, pattern: str) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    (folder / "sub").mkdir(parents=True)
    other.mkdir()
    write(folder / "sub" / "a.txt", "One.")
    write(other / "b.txt", "Two.")
    for name, target in {
        "around": tmp_path,
        "itself": folder,
        "sub/up": folder,
        "a.txt": folder / "sub" / "a.txt",
        "all": folder / "sub",
        "sub/other": other,
        "again": other,
    }.items():
        (folder / name).symlink_to(target)
    found = [path.relative_to(folder).as_posix() for path in list_files(folder / pattern)[1]]
    assert found == ["again/b.txt", "sub/a.txt"]
    assert list_files(folder / "al*" / "*.txt")[1] == [folder / "all" / "a.txt"]


@pytest.mark.parametrize("pattern", ["", "**", "**/*.md", "*/*.md", "*/**/*.md"])
def test_a_link_that_moves_changes_no_name(tmp_path: Path, pattern: str) -> None:
    found: list[list[str]] = []
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "spec.md", version)
        (latest := tmp_path / "latest").unlink(missing_ok=True)
        latest.symlink_to(version)
        files = list_files(tmp_path / pattern)[1]
        found.append([path.relative_to(tmp_path).as_posix() for path in files])
    assert found == [["v1/spec.md"], ["v1/spec.md", "v2/spec.md"]]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 50)
    with pytest.raises(BinaryDocument, match=r"b\.png' is a PNG image"):
        read(tmp_path)
    (tmp_path / "blank").mkdir()
    write(tmp_path / "blank" / "a.txt", "text")
    for name in ("b.txt", "b.html", "b.md"):
        page = write(tmp_path / "blank" / name, " \n")
        with pytest.raises(EmptyDocument, match=name):
            read(tmp_path / "blank")
        page.unlink()
    with pytest.raises(DocumentNotFound, match=r"none\.txt"):
        read([tmp_path / "a.txt", tmp_path / "none.txt"])


@pytest.mark.parametrize("pattern", ["", "**/*.txt", "*/*.txt", "locked/*.txt"])
def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    for name in ("locked", "open", ".locked"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.txt", "text")
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if isinstance(path, str | os.PathLike) and os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may list everything, so it is played
    with pytest.raises(DocumentNotFound, match=r"/locked' cannot be read: Permission denied"):
        open_document(tmp_path / pattern)
    with MemoryAgent(ScriptedModel(lambda _: "m"), store=None) as agent:
        (mapped,) = agent.map([tmp_path / pattern], "Which?")
    assert isinstance(mapped.error, DocumentNotFound)


def test_a_link_to_what_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "text")
    (tmp_path / ".lock").symlink_to("nowhere")
    (tmp_path / "itself").symlink_to("itself")
    assert read(tmp_path)[0] == "[file a.txt]\n\ntext\n\n"
    (tmp_path / "minutes.txt").symlink_to("/unmounted/minutes.txt")
    for pattern in ("", "*.txt", "**/min*"):
        with pytest.raises(DocumentNotFound, match=r"/minutes\.txt' cannot be read: No such file"):
            read(tmp_path / pattern)


# --- hostile files


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    bomb = made.archive(tmp_path / "a.docx", {"word/document.xml": b"\0" * 30_000_000})
    with pytest.raises(BinaryDocument, match=r"expands from [\d,]+ to 30,000,000 bytes"):
        read(bomb)


def test_a_bomb_of_entities_is_refused(tmp_path: Path) -> None:
    lines = ['<!ENTITY a0 "ha">']
    lines += [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)]
    document = (
        f'<!DOCTYPE x [{"".join(lines)}]><w:document xmlns:w="{made.WORD}">&a11;</w:document>'
    )
    bomb = made.archive(tmp_path / "a.docx", {"word/document.xml": document})
    start = time.monotonic()
    with pytest.raises(BinaryDocument, match="is broken"):
        read(bomb)
    assert time.monotonic() - start < 20


def test_external_entities_are_not_fetched(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", "TOP SECRET")
    document = (
        f'<!DOCTYPE x [<!ENTITY s SYSTEM "{secret.as_uri()}">]>'
        f'<w:document xmlns:w="{made.WORD}"><w:body>{made.paragraph("&s; rest")}</w:body></w:document>'
    )
    path = made.archive(tmp_path / "a.docx", {"word/document.xml": document})
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert "TOP SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.docx", b"PK\x03\x04 and no more", "is broken: BadZipFile"),
        ("a.epub", b"PK\x05\x06" + b"\0" * 18, "has no 'META-INF/container.xml'"),
        (
            "a",
            b"PK\x03\x04 and no more",
            "if it is a .docx or .epub file, save it under that suffix",
        ),
        ("a.docx", b"plain bytes \0\0", "is not plain text"),
        ("a.eml", b"Content-Type: image/png\n\nxx", "has no text"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(BinaryDocument, match=said):
        read(write(tmp_path / name, content))


def test_an_epub_without_its_chapter_is_refused(tmp_path: Path) -> None:
    path = made.epub(tmp_path / "a.epub", {"a.xhtml": "<p>x</p>"}, ["a.xhtml"])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "OPS/a.xhtml"}
    with pytest.raises(BinaryDocument, match=r"has no 'OPS/a\.xhtml'"):
        read(made.archive(tmp_path / "b.epub", members))


@pytest.mark.parametrize("name", ["a.docx", "a.epub"])
def test_damaged_archives_raise_no_other_errors(tmp_path: Path, name: str) -> None:
    chapter = "<html><body><p>text</p></body></html>"
    whole = made.docx(tmp_path / "a.docx", made.paragraph("text"))
    if name == "a.epub":
        whole = made.epub(tmp_path / name, {"ü.xhtml": chapter}, ["ü.xhtml"])
    content, random = whole.read_bytes(), Random(0)
    for _ in range(1000):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[random.randrange(4, len(content))] = random.randrange(256)
        with suppress(DocumentError):
            read(write(whole, bytes(damaged)))


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    path = made.docx(tmp_path / "a.docx", made.paragraph("text"))
    raw = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + at] |= 1  # the flag of the local header, and of the directory
    with pytest.raises(BinaryDocument, match="is encrypted"):
        read(write(path, bytes(raw)))


def test_markup_that_never_ends_is_refused_in_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", "<p>x</p><!--" + "x" * 20_000_000)
    with pytest.raises(BinaryDocument, match="tag, comment or script of more than 8,000,000"):
        read(path)


@pytest.mark.parametrize("start", ["<a ", "<a x='", "<!--", "<![CDATA[", "</a ", "<?"])
def test_markup_that_never_ends_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    scans: list[int] = []
    for name in ("parse_starttag", "parse_endtag", "parse_html_declaration", "parse_pi"):
        scan = getattr(HTMLParser, name)
        monkeypatch.setattr(HTMLParser, name, lambda *args, s=scan: scans.append(1) or s(*args))
    text, _ = read(write(tmp_path / "a.html", "<p>x &lt; y</p>" + start * 100_000))
    assert text == "x < y\n\n"
    assert len(scans) < 9


@pytest.mark.parametrize(
    ("end", "shown"), [("&amp", "a&"), ("<", "a<"), ("<b", "a"), ("<title>b", "a"), ("&", "a&")]
)
def test_html_may_end_anywhere(tmp_path: Path, end: str, shown: str) -> None:
    assert read(write(tmp_path / "a.html", f"<p>a{end}"))[0] == f"{shown}\n\n"


def test_deep_html_is_read(tmp_path: Path) -> None:
    text, _ = read(write(tmp_path / "a.html", "<div>" * 200_000 + "deep" + "</div>" * 200_000))
    assert text.strip() == "deep"


@pytest.mark.parametrize("content", ["<html><head><title>x</title>", "<!-- -->", "<p> </p>"])
def test_a_page_without_text_is_empty(tmp_path: Path, content: str) -> None:
    with pytest.raises(EmptyDocument):
        read(write(tmp_path / "a.html", content))


MEMORY = """
import asyncio, sys
from pathlib import Path
from memagent import open_document
from memagent_bench.perf.measure import measure_resident

async def chars():
    return sum([len(piece) async for piece in open_document(Path(sys.argv[1])).pieces()])

print(asyncio.run(chars()), measure_resident())
"""


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.html", "a.md", "a.docx", "a.pdf", "many"])
def test_memory_stays_flat(tmp_path: Path, name: str) -> None:
    """For 20 MB of a format, 200 MB of text, or 10,000 files, less than 60 MiB more than for a small one."""
    peaks: list[float] = []
    for size in (1, 200):
        path = tmp_path / str(size) / name
        path.parent.mkdir()
        line = "A line of the text, which says little about the sea. "
        if name == "many":
            path.mkdir()
            for number in range(50 * size):
                write(path / f"{number}.txt", line * 20)
        elif name in ("a.txt", "a.gz"):
            text = f"{line}\n".encode() * (18_500 * size)
            write(path, text if name == "a.txt" else gzip.compress(text, 1))
        elif name == "a.pdf":
            write(path, made.pdf(["\n".join(f"{n}. {line}" for n in range(80))] * (20 * size)))
        elif name == "a.docx":
            # Not all alike, or it would be taken for a bomb.
            made.docx(
                path,
                "".join(
                    made.paragraph(f"{line * 3}{n * n}{n**3:x}{n**5}") for n in range(500 * size)
                ),
            )
        else:
            write(path, f"<p>{line}</p>\n# {line}\n" * (1000 * size))
        chars, peak = python("-c", MEMORY, str(path)).split()
        assert int(chars) > 50_000 * size
        peaks.append(float(peak))
    assert peaks[1] - peaks[0] < 60, machine()
