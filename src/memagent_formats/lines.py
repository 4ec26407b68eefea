"""Splits a stream of text into lines."""

from collections.abc import Generator, Iterator

MAX_LINE = 1_000_000
"""Maximum characters of a line; a longer one comes in parts."""


def lines_of(pieces: Iterator[str]) -> Generator[str]:
    """Yields the lines with their ends, LF or CRLF."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        yield from (f"{line}\n" for line in lines)
        if len(rest) > MAX_LINE:
            yield rest
            rest = ""
    if rest:
        yield rest
