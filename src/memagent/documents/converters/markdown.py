"""Markdown: the text as it is; headings are places."""

import re
from collections.abc import Generator, Iterator

from memagent.documents.converters import Passage
from memagent.documents.converters.lines import lines_of

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*\s*")
_FENCE = re.compile(r" {0,3}(```|~~~)")


def read(pieces: Iterator[str], name: str) -> Generator[Passage]:
    """Line by line; `# Title` outside of code begins the place `Title`."""
    fence: str | None = None
    for line in lines_of(pieces):
        if (found := _FENCE.match(line)) is not None:
            fence = None if fence == found[1] else fence or found[1]
        heading = None if fence else _HEADING.fullmatch(line)
        yield Passage(line, heading[1] if heading else None)
