"""HTML: a page's text, block by block; headings are places."""

import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser

from memagent.documents.base import PIECE_CHARS
from memagent.errors import BinaryDocument
from memagent_formats import Passage
from memagent_formats.numbering import number_of, show_number

MAX_MARKUP = 8_000_000
"""Maximum characters of an unclosed tag, comment or script, all of which are kept in memory."""
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|"
    "footer|form|h[1-6]|header|hgroup|hr|html|legend|li|listing|main|menu|nav|ol|optgroup|option|p|pre|search|section|"
    "select|summary|table|tbody|text|textarea|tfoot|thead|tr|ul|xmp"
)
_HEADING = re.compile("h[1-6]")
_AT_ONCE = re.compile("h[1-6]|pre|table|tr")
"""Blocks whose start and end separate texts even if a table cell comes next."""
_HIDDEN = {"desc", "metadata", "noscript", "script", "style", "template", "title"}
_NEVER_HIDDEN = re.compile(
    "area|base|body|br|col|embed|hr|html|img|input|link|meta|param|source|track|wbr"
)
"""Elements without an end tag, and those that scripts show when the page is ready."""
_LEFT_OPEN = {"dd", "dt", "li", "option", "p", "td", "th", "tr"}
"""Elements that often have no end tag."""
_NOT_SHOWN = re.compile(r"(?:^|;)\s*display\s*:\s*none\b", re.IGNORECASE)
_OPEN = re.compile("<[a-zA-Z/!?]")
"""Matches the start of a tag or comment, which lasts at least until a `>`."""
_COMMENT_END = re.compile(r"--!?\s*>")
_LISTS = {"dir", "menu", "ol", "ul"}
_FORMATS: dict[str, str | None] = {
    "1": "decimal",
    "A": "upperAlpha",
    "I": "upperRoman",
    "a": "lowerAlpha",
    "i": "lowerRoman",
    "decimal": "decimal",
    "decimal-leading-zero": "decimalZero",
    "lower-alpha": "lowerAlpha",
    "lower-latin": "lowerAlpha",
    "lower-roman": "lowerRoman",
    "upper-alpha": "upperAlpha",
    "upper-latin": "upperAlpha",
    "upper-roman": "upperRoman",
    **dict.fromkeys(("circle", "disc", "none", "square")),
}
"""Number formats by an element's `type` and style; None if there are no numbers."""
_LIST_STYLE = re.compile(r"(?:^|;)\s*list-style(?:-type)?\s*:([^;]*)", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t\n\r\f]+")
RAISED = re.compile(r"\s*[-+−–\d]")
"""A superscript that would read as part of the number before it; ordinals (`1st`) wouldn't."""


@dataclass
class _List:
    tag: str
    format: str | None
    """Format of the item numbers; None if there are none."""
    next: int
    step: int


class _Reader(HTMLParser):
    """Collects passages. Tags are counted, not nested, so depth costs nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Passage] = []
        self._hidden = ""  # the element whose text is hidden
        self._open, self._inside = Counter[str](), Counter[str]()  # elements, by name; those in it
        self._xml = False
        self._verbatim = 0
        self._heading = False
        self._raised = False  # whether a superscript begins
        self._lists: list[_List] = []
        self._listed = Counter[str]()  # tags of these lists
        self._numbers: list[tuple[int, str]] = []
        """Numbers of items whose text comes next, with the depth of their lists."""
        self._line: list[str] = []
        self._said = False  # whether the line, or its last cell, has text
        self._ended = False  # whether its block has ended, though a cell may follow
        self._begun = False  # whether its beginning was already passed on

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        block = _BLOCK.fullmatch(tag)
        if self._hidden:
            is_repeat = tag == self._hidden and tag in _LEFT_OPEN
            if not (block if self._hidden == "p" else is_repeat) and tag != "body":
                self._inside[tag] += 1
                return
            self._hidden = ""
        self._open[tag] += 1
        self._xml |= tag == "html" and "xmlns" in dict(attrs)
        if block:
            self._bound(tag)
            self._verbatim += tag == "pre"
            self._heading |= _HEADING.fullmatch(tag) is not None
        elif tag in ("td", "th"):
            self._line.append("\t" if self._line else "")
            self._said = self._ended = False
        elif tag in ("br", "tspan"):
            self._line.append("\n")
        self._raised |= tag == "sup" or (tag == "a" and _is_note(dict(attrs)))
        if tag in _LISTS:
            self._begin_list(tag, dict(attrs))
        attributes = {} if _NEVER_HIDDEN.fullmatch(tag) else dict(attrs)
        if (
            tag in _HIDDEN
            or "hidden" in attributes
            or _NOT_SHOWN.search(attributes.get("style") or "")
        ):
            self._hidden = tag
            self._inside.clear()
        elif tag == "li" and self._lists:
            self._begin_item(attributes)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            inner_count, outer_count = self._inside[tag], self._open[tag]
            self._inside[tag] -= inner_count > 0
            if inner_count or not outer_count:  # it also ends with an enclosing element
                return
            self._hidden = ""
        self._open[tag] -= self._open[tag] > 0
        self._raised &= tag != "sup" and (tag != "a" or self._open["sup"] > 0)
        if tag == "li" or tag in _LISTS:
            self._drop_numbers()
        if tag in _LISTS:
            self._end_list(tag)
        if _BLOCK.fullmatch(tag):
            self._bound(tag)
            self._verbatim = max(0, self._verbatim - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        text = data if self._verbatim else _BLANKS.sub(" ", data)
        if text.strip():
            if self._ended:
                self.end_block()
            self._said = True
            if self._raised and RAISED.match(text):
                text = f"^{text.lstrip()}"
            if self._numbers:
                numbers = "".join(number for _, number in self._numbers)
                content = text if self._verbatim else text.lstrip()
                # Pages whose style hides the numbers may have them in the text.
                text = content if content.startswith(numbers.rstrip()) else numbers + content
                self._numbers.clear()
            self._raised = False
        if self._line or self._said or self._verbatim:
            self._line.append(text)

    def parse_comment(self, i: int, report: bool = True) -> int:
        end = _COMMENT_END.search(self.rawdata, i + 2)  # `<!-->` is a comment
        return end.end() if end else -1

    def parse_html_declaration(self, i: int) -> int:
        if not self.rawdata.startswith("<![", i):
            return super().parse_html_declaration(i)
        if not (self._xml and self.rawdata.startswith("CDATA[", i + 3)):
            return self.parse_bogus_comment(i)  # as in browsers; the inherited method may fail
        if (end := self.rawdata.find("]]>", i)) < 0:
            return -1
        self.handle_data(self.rawdata[i + 9 : end])
        return end + 3

    def _begin_list(self, tag: str, attributes: dict[str, str | None]) -> None:
        start, backwards = number_of(attributes.get("start")), "reversed" in attributes
        # A reversed list begins with the number of its items, which aren't read yet.
        is_numbered = tag == "ol" and not self._open["nav"] and (start is not None or not backwards)
        kind = _format(attributes, "decimal" if is_numbered else None)
        self._lists.append(_List(tag, kind, 1 if start is None else start, -1 if backwards else 1))
        self._listed[tag] += 1

    def _end_list(self, tag: str) -> None:
        while self._listed[tag]:  # it also ends with an enclosing list
            last = self._lists.pop().tag
            self._listed[last] -= 1
            if last == tag:
                return

    def _begin_item(self, attributes: dict[str, str | None]) -> None:
        parent, value = self._lists[-1], number_of(attributes.get("value"))
        parent.next = parent.next if value is None else value
        self._drop_numbers()
        if (kind := _format(attributes, parent.format)) is not None:
            self._numbers.append((len(self._lists), f"{show_number(parent.next, kind)}. "))
        parent.next += parent.step

    def _drop_numbers(self) -> None:
        """Drops the numbers of items without text, of this list and lists inside of it."""
        while self._numbers and self._numbers[-1][0] >= len(self._lists):
            self._numbers.pop()

    def _bound(self, tag: str) -> None:
        if _AT_ONCE.fullmatch(tag):
            self.end_block()
        self._ended |= self._said

    def end_block(self) -> None:
        """Completes the current block."""
        text = self._text() if self._verbatim else self._text().rstrip(" \n")
        if text.strip() or self._said or self._begun:
            place = " ".join(text.split()) if self._heading else None
            self.found.append(Passage(f"{text}\n\n", place))
        self._line = []
        self._said = self._ended = self._begun = self._heading = False

    def pass_on(self) -> None:
        """Passes on a long block before its end, which then isn't a heading; blanks wait for the text after them."""
        if sum(map(len, self._line)) > PIECE_CHARS:
            text = self._text()
            end = len(text.rstrip(" \t\n")) or len(text)
            self.found.append(Passage(text[:end]))
            self._line, self._heading, self._begun = [text[end:]], False, self._begun or end > 0

    def _text(self) -> str:
        text = "".join(self._line)
        if not self._verbatim:
            text = re.sub(r" ?([\t\n]) ?", r"\1", re.sub(" +", " ", text))
        return text if self._verbatim or self._begun else text.lstrip(" \n")


def _format(attributes: dict[str, str | None], default: str | None) -> str | None:
    """Returns the number format of a list or item with these attributes."""
    match = _LIST_STYLE.search(attributes.get("style") or "")
    words = [attributes.get("type") or "", *(match[1].lower().split() if match else ())]
    return next((_FORMATS[word] for word in reversed(words) if word in _FORMATS), default)


def _is_note(link: dict[str, str | None]) -> bool:
    """Returns whether a link is a note's number, which books raise by their style."""
    return "noteref" in f"{link.get('epub:type')} {link.get('role')}"


def read(pieces: Iterator[str], name: str) -> Generator[Passage]:
    """Yields the visible text. Blocks are paragraphs, cells are separated by tabs, preformatted text is unchanged.

    Items of ordered lists have their numbers, except in a `nav`.

    Raises:
        BinaryDocument: a tag, comment or script doesn't end within `MAX_MARKUP` characters.
    """
    reader = _Reader()
    for piece in pieces:
        if _OPEN.match(reader.rawdata) and ">" not in piece:
            reader.rawdata += piece  # `feed` would scan all of it again
        else:
            reader.feed(piece)
            reader.pass_on()
        if len(reader.rawdata) > MAX_MARKUP:
            raise BinaryDocument(
                f"{name!r} has a tag, comment or script of more than {MAX_MARKUP:,} characters: take it out first"
            )
        yield from reader.found
        reader.found.clear()
    if reader.cdata_elem or not _OPEN.match(reader.rawdata):
        # `close` would scan an open tag, which browsers don't show, again from each `<` in it.
        reader.handle_data(unescape(reader.rawdata))
    reader.end_block()
    yield from reader.found
