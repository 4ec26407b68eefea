"""Markdown: the text unchanged; headings are places."""

import re
from collections.abc import Generator, Iterator

from memagent_formats import Passage
from memagent_formats.lines import lines_of

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_FENCE = re.compile(r" {0,3}(`{3,}+(?!.*`)|~{3,}+)(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)\s*")
_TITLE = re.compile(r" {0,3}(?!(?:[-+*]|\d+[.)])\s|>)\S")
"""Matches a possible title: a line that isn't a list or a quotation."""


def read(pieces: Iterator[str], name: str) -> Generator[Passage]:
    """Yields line by line; outside of code, `# Title` and a one-line paragraph over `===` or `---` begin a place."""
    fence: str | None = None
    title, first = "", True  # a line that the next may underline; whether a paragraph may begin
    for line in lines_of(pieces):
        underline, fence_match = _UNDERLINE.fullmatch(line), _FENCE.match(line)
        ended = bool(title and underline)
        yield Passage(title, title.strip() if ended else None)
        title = ""
        if fence_match and fence is None:
            fence = fence_match[1]
        elif fence_match and fence_match[1].startswith(fence or "") and not fence_match[2].strip():
            fence = None
        heading = None if fence else _HEADING.match(line)
        if first and _TITLE.match(line) and not (fence or fence_match or underline or heading):
            title = line
        else:
            yield Passage(line, _CLOSING.sub("", heading[1].strip()).rstrip() if heading else None)
        first = bool(ended or heading or not line.strip())
    yield Passage(title)
