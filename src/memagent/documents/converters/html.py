"""HTML: the text of a page, block by block; headings are places."""

import re
from collections.abc import Generator, Iterator
from html.parser import HTMLParser

from memagent.documents.converters import Passage
from memagent.errors import BinaryDocument

MAX_MARKUP = 8_000_000
"""Characters of a tag, comment or script that isn't closed: the parser looks at all of it again with each piece."""
_HIDDEN = {"head", "noscript", "script", "style", "svg", "template"}
_INLINE = re.compile(
    "a|abbr|b|bdi|bdo|cite|code|data|dfn|em|font|i|img|input|kbd|label|mark|q|ruby|s|samp|small|span|strong|sub|sup|"
    "time|tt|u|var|wbr"
)
_HEADING = re.compile(r"h[1-6]")
_BLANKS = re.compile(r"[ \t\n\r\f]+")


class _Reader(HTMLParser):
    """Collects passages. Tags are counted, not nested, so depth costs nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Passage] = []
        self._hidden = 0
        self._verbatim = 0
        self._heading: list[str] | None = None
        self._line: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag == "body":
            self._hidden = 0  # whatever the head left open
        elif tag in ("td", "th"):
            self._line.append("\t" if self._line else "")
        elif tag == "br":
            self._line.append("\n")
        elif not _INLINE.fullmatch(tag):
            self.end_block()
            self._verbatim += tag == "pre"
            if _HEADING.fullmatch(tag):
                self._heading = []

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif not _INLINE.fullmatch(tag) and tag not in ("td", "th", "br"):
            self.end_block()
            self._verbatim = max(0, self._verbatim - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        text = data if self._verbatim else _BLANKS.sub(" ", data)
        self._line.append(text)
        if self._heading is not None:
            self._heading.append(text)

    def end_block(self) -> None:
        """The block so far is complete."""
        text, self._line = "".join(self._line), []
        heading, self._heading = self._heading, None
        if not self._verbatim:
            text = re.sub(r" ?\n ?", "\n", text.strip(" "))
        if text.strip():
            place = None if heading is None else " ".join("".join(heading).split())
            self.found.append(Passage(f"{text}\n\n", place or None))


def read(pieces: Iterator[str], name: str) -> Generator[Passage]:
    """The visible text. Blocks are paragraphs, cells are separated by tabs, preformatted text stays as it is.

    Raises:
        BinaryDocument: a tag, comment or script doesn't end within `MAX_MARKUP` characters.
    """
    reader = _Reader()
    for piece in pieces:
        reader.feed(piece)
        if len(reader.rawdata) > MAX_MARKUP:
            raise BinaryDocument(
                f"{name!r} has a tag, comment or script of more than {MAX_MARKUP:,} characters: take it out first"
            )
        yield from reader.found
        reader.found.clear()
        if not piece:
            yield Passage("")
    reader.close()
    reader.end_block()
    yield from reader.found
