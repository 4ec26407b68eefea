"""Finds the sentences of a document that share an answer's words: lexical alignment, computed without a model."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from memagent.documents import Document
from memagent.errors import RunMismatch
from memagent.texts import ITEM, LINE_END, STOPS, words

MIN_SCORE = 0.5
"""A quote must have at least half of its sentence's words, weighted by rarity."""
# A stop with white space after it ends a sentence, and so does an empty line.
_LATIN = rf"(?<![{STOPS}])[{STOPS}]++[\"'”’»)\]]*+(?=\s|\Z)"
_END = rf"{_LATIN}|[。！？]++[”’」』）】]*+|\n[ \t\r]*+\n"
_ITEM = rf"[ \t]*+(?:[-*+•–][ \t]++)?+(?:(?!\.)(?:{ITEM})\.(?=[ \t]++\S)[ \t]*+)++"
"""Item numbers and initials, which belong to the text after them."""
_SAID = rf"(?:\n{_ITEM}|(?!{_END})[\s\S])"
_SENTENCE = re.compile(rf"(?:{_ITEM}{_SAID}*+|{_SAID}++)(?:{_END})?\s*+|(?:{_END})\s*+")
_ROW_END = rf"{LINE_END}(?=[ \t]*+\S)"
_ROW = re.compile(rf"(?:(?!{_ROW_END})[\s\S])*+(?:{_ROW_END}|\Z)")
_WORD = re.compile(r"[\"'“‘«(]*[^\W\d_]+")
WRAPPED = 40, 0.8
"""Minimum length of wrapped prose's longest line, and the share of it that the others fill: letters vary in width."""
MOST_CHARS = 2000
"""Maximum characters of a sentence; a longer one is split into parts."""


@dataclass(frozen=True)
class Quote:
    """A sentence of the answer or memory, and the sentence of the document that shares most of its words."""

    sentence: str
    text: str = ""
    """The document's sentence, verbatim; empty if none shares enough words."""
    place: str = ""
    """Its place, such as `p. 12`, if the document's format has places."""
    start: int = 0
    """First character in the document's text."""
    end: int = 0
    """One past the last character."""
    score: float = 0.0
    """Share (0 to 1) of the sentence's words that are in `text`, weighted by rarity; 1 for word for word."""


async def align(document: Document, texts: Sequence[str], mark: Any = None) -> list[Quote]:
    """Finds a quote for each sentence of the texts, in order. Reads the document twice, in constant memory.

    Raises:
        DocumentError: the document can't be read.
        RunMismatch: it isn't the document of the run whose last chunk read has this `mark`.
    """
    covered, hasher = 0 if mark is None else mark["covered"], hashlib.sha256()
    sentences = [s for text in texts for s in dict.fromkeys(map(str.strip, split(text))) if s]
    word_sets = [set(words(sentence)) for sentence in sentences]
    vocabulary, frequencies, count = set[str]().union(*word_sets), Counter[str](), 0
    async for start, text in _read(document):
        hasher.update(text[: max(0, covered - start)].encode("utf-8", "surrogatepass"))
        frequencies.update(vocabulary.intersection(words(text)))
        count += 1
    if mark is not None and hasher.hexdigest() != mark["digest"]:
        raise RunMismatch("the document has changed since; give what was read (--document FILE)")
    weights = {word: math.log1p(count / (1 + frequencies[word])) for word in vocabulary}
    totals = [sum(weights[word] for word in terms) for terms in word_sets]
    phrases = [f" {' '.join(words(sentence))} " for sentence in sentences]
    quotes = list(map(Quote, sentences))
    async for start, text in _read(document):
        text_words = words(text)
        if not (common := vocabulary.intersection(text_words)):
            continue
        for number, terms in enumerate(word_sets):
            score = sum(weights[word] for word in terms & common) / totals[number] if terms else 0.0
            if (score < 1 and score <= quotes[number].score) or score < MIN_SCORE:
                continue
            # All words but in another order: just below a word-for-word match.
            score = 1.0 if phrases[number] in f" {' '.join(text_words)} " else min(score, 0.99)
            if score > quotes[number].score:
                end = start + len(text)
                places = getattr(document, "places", None)
                # The white space after a sentence may reach into the next line.
                place = places.find(start, start + len(text.rstrip())) if places else ""
                quotes[number] = Quote(sentences[number], text.strip(), place, start, end, score)
    return quotes


def split(text: str) -> list[str]:
    """Splits a text into sentences, each with the white space after it."""
    rows = (row for match in _SENTENCE.finditer(text) for row in _rows(match[0]))
    return [part[at : at + MOST_CHARS] for part in rows for at in range(0, len(part), MOST_CHARS)]


def sentences(text: str) -> list[str]:
    """Splits each line into sentences of any length, each with the white space after it."""
    return [part for line in text.splitlines(keepends=True) for part in _SENTENCE.findall(line)]


def _rows(sentence: str) -> list[str]:
    """Splits a sentence into rows, entries or items; wrapped prose stays whole, whatever its lines begin with."""
    rows = [match[0] for match in _ROW.finditer(sentence) if match[0]]
    lines = sentence.strip().splitlines()
    min_width, share = WRAPPED
    width = max(map(len, lines), default=0)
    # Of five or more lines of prose, some begin in lower case.
    if width > min_width and (len(rows) < 5 or len(rows) < len(lines)):
        full = (
            (word := _WORD.match(next_line)) and len(line) + len(word[0]) > share * width
            for line, next_line in pairwise(lines[1:])  # the first may be the end of a line
        )
        if all(full):
            return [sentence]
    return rows


async def _read(document: Document) -> AsyncGenerator[tuple[int, str]]:
    """Yields the document's sentences, each with the position of its first character."""
    at, tail = 0, ""
    async with aclosing(cast("AsyncGenerator[str, Any]", document.pieces())) as pieces:
        async for piece in pieces:
            *parts, tail = split(tail + piece) or [""]
            for sentence in parts:
                yield at, sentence
                at += len(sentence)
    if tail:
        yield at, tail
