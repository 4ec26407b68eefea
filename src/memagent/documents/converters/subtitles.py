"""WebVTT and SubRip: what is said; the times are places."""

import re
from collections.abc import Generator, Iterator

from memagent.documents.converters import Passage
from memagent.documents.converters.lines import lines_of

_TIMES = re.compile(r"\s*((?:\d+:)?\d{1,2}:\d{2})[.,]\d{3}\s*-->.*\s*")
_VOICE = re.compile(r"<v(?:\.[^ >]*)?\s+([^>]+)>")
_TAG = re.compile(r"</?[a-z][^>]*>|<[\d:.]+>|\{\\[^}]*\}", re.IGNORECASE)


def read(pieces: Iterator[str], name: str) -> Generator[Passage]:
    """The cues' text, a line each, speakers before what they say. Headers, notes, styles and numbers are left out."""
    time: str | None = None
    inside = False
    for line in lines_of(pieces):
        if (found := _TIMES.fullmatch(line)) is not None:
            time, inside = found[1], True
        elif not line.strip():
            inside = False
            yield Passage("")
        elif inside:
            said = _TAG.sub("", _VOICE.sub(r"\1: ", line))
            if said.strip():
                yield Passage(said if said.endswith("\n") else f"{said}\n", time)
                time = None
