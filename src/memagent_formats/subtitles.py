"""WebVTT and SubRip: spoken text; the times are places."""

import re
from collections.abc import Generator, Iterator
from html import unescape
from io import IncrementalNewlineDecoder

from memagent.errors import BinaryDocument
from memagent_formats import Passage
from memagent_formats.lines import lines_of

_TIMES = re.compile(r"\s*((?:\d+:)?\d{1,2}:\d{1,2})[.,:]\d{1,3}\s*-->.*\s*")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^>]+)>")
_TAG = re.compile(r"</?(?:[bcisuv]|font|lang|rt|ruby)\b[^>]*>|<[\d:.]+>", re.IGNORECASE)
_STYLE = re.compile(r"\{\\[^}]*\}")


def read(pieces: Iterator[str], name: str) -> Generator[Passage]:
    """Yields the cues' text line by line, each speaker before the words. Skips headers, notes, styles and numbers.

    Raises:
        BinaryDocument: the file has text, but no cues.
    """
    time: str | None = None
    is_inside: bool | None = None  # None before the first cue
    stray, vtt, gap = False, False, True
    number = ""  # after a gap: the next cue's number if times follow, else spoken text
    for line in lines_of(map(IncrementalNewlineDecoder(None, translate=True).decode, pieces)):
        match = _TIMES.fullmatch(line)
        if number and not match and line.strip():
            yield Passage(number, time)
            time = None
        if match:
            time, is_inside, gap, number = match[1], True, False, ""
        elif not line.strip():
            # WebVTT has notes between cues, where SubRip may have more text of the last one.
            is_inside, gap = is_inside and (time is not None or not vtt), True
        elif is_inside is None and line.startswith("WEBVTT"):
            vtt = True
        else:
            stray = stray or is_inside is None
            if vtt and not is_inside:  # but SubRip may have a first cue with unreadable times
                continue
            text = _replace(_TAG, "", _replace(_VOICE, r"\1: ", line))
            text = unescape(_replace(_STYLE, "", text, end="}"))
            text = text if text.endswith("\n") else f"{text}\n"
            number = text if gap and text.strip().isdigit() else ""
            if text.strip() and not number:
                yield Passage(text, time)
                time, gap = None, False
    if number:
        yield Passage(number, time)
    if stray and is_inside is None:
        raise BinaryDocument(f"{name!r} has no cues with times such as 00:01.000 --> 00:02.000")


def _replace(tag: re.Pattern[str], text: str, line: str, end: str = ">") -> str:
    """Replaces tags up to the last `end`: after it, each search for a tag's end would go through all of the rest."""
    size = line.rfind(end) + 1
    return tag.sub(text, line[:size]) + line[size:]
