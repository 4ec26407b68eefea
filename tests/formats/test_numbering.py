"""Items of lists have the numbers that a browser or Word shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.formats import made
from tests.growth import growth

from memagent import open_document
from memagent.documents.files import FileSource
from memagent_formats import docx, html
from memagent_formats.numbering import show_number


def read(path: Path) -> list[str]:
    """The paragraphs."""
    document = open_document(path)
    assert isinstance(document, FileSource)
    return "".join(document.read()).split("\n\n")[:-1]


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<ol><li>One.<li><p>Two.</p><p>More.</p></ol>", "1. One.|2. Two.|More."),
        ("<ol><li>One.<ol type=a><li>Half.</ol><li>Two.", "1. One.|a. Half.|2. Two."),
        ("<ol><li><ol type=i><li>Half.<li>Whole.", "1. i. Half.|ii. Whole."),
        ("<ol start=9><li>One.<li value=40>Two.<li>Three.", "9. One.|40. Two.|41. Three."),
        ("<ol type=A start=27><li>One.<li>Two.", "AA. One.|AB. Two."),
        ("<ol reversed start=2><li>One.<li>Two.", "2. One.|1. Two."),
        ("<ol reversed><li>One.</ol>", "One."),
        ("<ol><li>One.<li><li hidden>no<li>Three.", "1. One.|3. Three."),
        ("<ol><li></ol>One.", "One."),
        ("<ol><li>One.<ul><li>Half.</ul><li>Two.", "1. One.|Half.|2. Two."),
        ("<nav><ol><li>One.</ol></nav><li>Two.", "One.|Two."),
        ("<ol style='list-style: none'><li>One.", "One."),
        ("<ol style='list-style-type:lower-alpha'><li>One.<li>Two.", "a. One.|b. Two."),
        ("<ul style='list-style-type:decimal'><li>One.", "1. One."),
        ("<ol><li style='list-style:none'>One.<li type=I>Two.", "One.|II. Two."),
        ("<ol><li>1. One.<li> 2. Two.<li>3 boats", "1. One.|2. Two.|3. 3 boats"),
        ("<ol><li>One.<ol><li>Half.<ul><li>more</ol><li>Two.", "1. One.|1. Half.|more|2. Two."),
        ("<ol><li>One.</ul></ol></ul><ol><li>Two.", "1. One.|1. Two."),
        ("<ol><li><pre>  a\n  b</pre></ol>", "1.   a\n  b"),
        ("<table><tr><td><ol><li>One.</ol><td>40</table>", "1. One.\t40"),
        ("<ol start=x><li value=''>One.", "1. One."),
    ],
)
def test_html_numbers_lists(tmp_path: Path, page: str, shown: str) -> None:
    (path := tmp_path / "a.html").write_text(page)
    assert read(path) == shown.split("|")


def test_lists_in_lists_take_time_in_proportion() -> None:
    def nested(count: int, end: str) -> Callable[[], object]:
        page = "<ol><li>" * count + end * count
        return lambda: [*html.read(iter([page]), "x")]

    for end in ("", "</ol>", "</ul>"):
        assert growth(nested(2_000, end), nested(20_000, end)) < 30


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("decimal", "1 4 26 27 28 53 1999 4000 0 -3"),
        ("decimalZero", "01 04 26 27 28 53 1999 4000 00 -3"),
        ("lowerLetter", "a d z aa bb aaa"),
        ("upperAlpha", "A D Z AA AB BA BXW 4000 0 -3"),
        ("lowerRoman", "i iv xxvi xxvii xxviii liii mcmxcix 4000 0 -3"),
        ("chicago", "1 4"),
    ],
)
def test_numbers_have_formats(kind: str, shown: str) -> None:
    numbers = (1, 4, 26, 27, 28, 53, 1999, 4000, 0, -3)
    assert shown.split() == [
        show_number(n, kind) for n, _ in zip(numbers, shown.split(), strict=False)
    ]


def level(at: int, text: str, kind: str = "decimal", more: str = "") -> str:
    """One of a list."""
    return (
        f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def kind(number: int, *levels: str) -> str:
    """What counts the items of lists."""
    return f'<w:abstractNum w:abstractNumId="{number}">{"".join(levels)}</w:abstractNum>'


def of_kind(number: int, of: int, more: str = "") -> str:
    """A list."""
    return f'<w:num w:numId="{number}"><w:abstractNumId w:val="{of}"/>{more}</w:num>'


def chosen(number: int | None, at: int | None) -> str:
    """What names a list and a level."""
    values = {"ilvl": at, "numId": number}
    said = "".join(f'<w:{tag} w:val="{n}"/>' for tag, n in values.items() if n is not None)
    return f"<w:numPr>{said}</w:numPr>"


def item(text: str, number: int | None = 1, at: int | None = 0, more: str = "") -> str:
    """A paragraph of a list."""
    properties = f"<w:pPr>{chosen(number, at)}{more}</w:pPr>"
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def document(path: Path, body: str, lists: str, styles: str = "") -> Path:
    """A Word document with lists."""
    parts = {"styles": styles, "numbering": lists}
    more = {
        f"word/{name}.xml": f'<w:{name} xmlns:w="{made.WORD}">{content}</w:{name}>'
        for name, content in parts.items()
    }
    return made.docx(path / "a.docx", body, more)


CLAUSES = kind(
    7,
    level(0, "%1."),
    level(1, "%1.%2"),
    level(2, "(%3)", "lowerLetter"),
    level(3, "", "bullet"),
)


def test_a_contract_has_its_clauses_numbers(tmp_path: Path) -> None:
    body = (
        item("Rent")
        + item("It is 800.", at=1)
        + item("in cash", at=2)
        + item("or by transfer", at=2)
        + made.paragraph("Whichever is easier.")
        + item("also", at=3)
        + item("It is due on the first.", at=1)
        + item("at noon", at=2)
        + item("Term")
        + item("One year.", at=1)
        + item("Not an item.", number=0)
        + item("", at=1)  # Word counts it
        + item("Or two.", at=1)
    )
    assert read(document(tmp_path, body, CLAUSES + of_kind(1, 7))) == [
        *("1. Rent", "1.1 It is 800.", "(a) in cash", "(b) or by transfer"),
        *("Whichever is easier.", "also", "1.2 It is due on the first.", "(a) at noon"),
        *("2. Term", "2.1 One year.", "Not an item.", "2.3 Or two."),
    ]


def test_headings_are_numbered_by_their_styles(tmp_path: Path) -> None:
    def style(name: str, base: str = "", properties: str = "") -> str:
        based = f'<w:basedOn w:val="{base}"/>' if base else ""
        called = f'<w:name w:val="heading {name[1:]}"/>'
        return f'<w:style w:styleId="{name}">{called}{based}<w:pPr>{properties}</w:pPr></w:style>'

    styles = style("h1", properties=chosen(1, None)) + style("h2", "h1", chosen(None, 7))
    styles += style("h3", "h2") + style("h4", "h5") + style("h5", "h4")
    of_style = '<w:pStyle w:val="h2"/>'
    lists = kind(0, level(0, "Article %1"), level(1, "§ %1.%2", more=of_style)) + of_kind(1, 0)
    body = "".join(
        made.paragraph(text, name)
        for text, name in (("Boat", "h1"), ("Rent", "h2"), ("Oars", "h2"), ("Sea", "h1"))
    )
    body += made.paragraph("Waves", "h3") + made.paragraph("End", "h4")
    path = document(tmp_path, body, lists, styles)
    assert read(path) == [
        *("Article 1 Boat", "§ 1.1 Rent", "§ 1.2 Oars", "Article 2 Sea", "§ 2.1 Waves", "End"),
    ]
    assert [p.place for p in docx.read(path, "x")][1] == "§ 1.1 Rent"


def begins(*starts: int) -> str:
    """What has the levels of a list begin again."""
    return "".join(
        f'<w:lvlOverride w:ilvl="{at}"><w:startOverride w:val="{start}"/></w:lvlOverride>'
        for at, start in enumerate(starts)
    )


def test_a_list_may_begin_again_and_continue(tmp_path: Path) -> None:
    other = f'<w:lvlOverride w:ilvl="0">{level(0, "%1)", "upperRoman")}</w:lvlOverride>'
    lists = CLAUSES + of_kind(1, 7) + of_kind(2, 7, begins(5)) + of_kind(3, 7)
    lists += of_kind(4, 7, other)
    body = "".join(item(f"of {number}", number) for number in (1, 1, 2, 2, 3, 4))
    assert read(document(tmp_path, body, lists)) == [
        *("1. of 1", "2. of 1", "5. of 2", "6. of 2", "7. of 3", "VIII) of 4"),
    ]


@pytest.mark.parametrize(
    ("starts", "items", "shown"),
    [
        # Pandoc gives each list in a list a number of its own, which says where all levels begin.
        ({1: (1, 1), 2: (1, 1), 3: (1, 1)}, "10 21 21 10 31 10", "1. 1.1 1.2 2. 2.1 3."),
        ({2: (7,)}, "10 21 21 20 10", "1. 1.1 1.2 7. 8."),
        ({2: (1, 4)}, "10 10 21 21", "1. 2. 2.4 2.5"),
    ],
)
def test_a_level_begins_again_at_its_first_item(
    tmp_path: Path, starts: dict[int, tuple[int, ...]], items: str, shown: str
) -> None:
    """As LibreOffice 7.4 shows them."""
    numbers = {int(one[0]) for one in items.split()}
    lists = CLAUSES + "".join(of_kind(n, 7, begins(*starts.get(n, ()))) for n in numbers)
    body = "".join(item("x", int(number), int(at)) for number, at in items.split())
    assert read(document(tmp_path, body, lists)) == [f"{one} x" for one in shown.split()]


def test_levels_say_how_they_count(tmp_path: Path) -> None:
    lists = kind(
        0,
        level(0, "%1", "upperRoman"),
        level(1, "%1-%2", more='<w:isLgl/><w:lvlRestart w:val="0"/>'),
        level(2, "Note:", "none", '<w:suff w:val="space"/>'),
        level(3, "%3%4", "decimalZero", '<w:suff w:val="nothing"/>'),
    )
    body = item("a") + item("b", at=1) + item("c") + item("d", at=1) + item("e", at=2)
    body += item("f", at=3) + item("g", at=8) + item("h", at=99)
    assert read(document(tmp_path, body, lists + of_kind(1, 0))) == [
        *("I a", "1-1 b", "II c", "2-2 d", "Note: e", "01f", "g", "III h"),
    ]


def test_legal_numbers_keep_their_zeros(tmp_path: Path) -> None:
    section = level(1, "Section %1.%2", "decimalZero", "<w:isLgl/>")
    lists = kind(0, level(0, "Article %1.", "upperRoman"), section) + of_kind(1, 0)
    body = item("Rent") + item("It is 800.", at=1)
    assert read(document(tmp_path, body, lists)) == ["Article I. Rent", "Section 1.01 It is 800."]


def test_what_was_deleted_or_moved_is_not_counted(tmp_path: Path) -> None:
    marks = [f"<w:rPr><w:{change}/></w:rPr>" for change in ("del", "moveFrom")]
    before = f"<w:pPrChange><w:pPr>{chosen(1, 1)}</w:pPr></w:pPrChange>"
    body = item("One") + "".join(item("", more=mark) for mark in marks) + item("Two", more=before)
    # The end of a paragraph was deleted: it goes on in the next one.
    body += (
        item("Three, and", more=marks[0]) + item("", more=marks[0]) + item("more") + item("Four")
    )
    assert read(document(tmp_path, body, CLAUSES + of_kind(1, 7))) == [
        *("1. One", "2. Two", "3. Three, and", "more", "4. Four"),
    ]


def test_headers_have_numbers_of_their_own(tmp_path: Path) -> None:
    space = f'xmlns:w="{made.WORD}"'
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Type="x/header" Target="1.xml"/>'
        '<Relationship Type="x/header" Target="2.xml"/></Relationships>'
    )
    header = f"<w:hdr {space}>{item('Draft')}</w:hdr>"
    more = {
        "word/_rels/document.xml.rels": relations,
        **dict.fromkeys(("word/1.xml", "word/2.xml"), header),
        "word/numbering.xml": f"<w:numbering {space}>{CLAUSES + of_kind(1, 7)}</w:numbering>",
    }
    path = made.docx(tmp_path / "a.docx", item("One") + item("Two"), more)
    assert read(path) == ["1. Draft", "1. One", "2. Two"]


def test_a_column_may_hold_only_numbers(tmp_path: Path) -> None:
    rows = (
        f"<w:tr><w:tc>{item('')}</w:tc><w:tc>{made.paragraph(text)}</w:tc></w:tr>"
        for text in ("Rent", "Oars")
    )
    body = f"<w:tbl>{''.join(rows)}</w:tbl>" + made.paragraph("End")
    path = document(tmp_path, body, CLAUSES + of_kind(1, 7))
    assert read(path) == ["1.\tRent\n2.\tOars\nEnd"]


def test_a_long_number_does_not_make_a_small_file_a_large_text(tmp_path: Path) -> None:
    lists = kind(0, level(0, "x" * 100_000 + "%1")) + of_kind(1, 0)
    assert len(read(document(tmp_path, item("One"), lists))[0]) < 200


def test_a_list_may_be_defined_by_a_style(tmp_path: Path) -> None:
    link = '<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="mine"/></w:abstractNum>'
    styles = f'<w:style w:styleId="mine"><w:pPr>{chosen(1, None)}</w:pPr></w:style>'
    lists = CLAUSES + link + of_kind(1, 7) + of_kind(2, 1) + of_kind(3, 99)
    body = item("One", 2) + item("Half", 2, 1) + item("Two", 1) + item("None", 3)
    assert read(document(tmp_path, body, lists, styles)) == ["1. One", "1.1 Half", "2. Two", "None"]
