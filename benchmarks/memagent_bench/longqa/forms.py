"""Forms of data files: HotpotQA's, SQuAD's, and lists of titled paragraphs."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from memagent.errors import DocumentError, DocumentNotFound, EmptyDocument
from memagent.texts import describe_problem

T = TypeVar("T")


class HotpotEntry(BaseModel):
    """One question of HotpotQA's own files. The gold paragraphs' titles come under one of two names."""

    id: str = Field(default="", alias="_id")
    question: str
    answer: str
    context: list[tuple[str, list[str] | str]]
    supporting_facts: list[tuple[str, int]] = []
    gold_titles: list[str] = []
    whole: bool = False
    """Whether the gold paragraphs are present, though nothing says which they are."""

    @property
    def gold(self) -> list[str]:
        """Distinct titles of the gold paragraphs."""
        return list(
            dict.fromkeys([*self.gold_titles, *(title for title, _ in self.supporting_facts)])
        )


class ShownEntry(BaseModel):
    """One question of MemAgent's evaluation files: paragraphs as a prompt shows them, without the gold titles."""

    input: str
    answers: list[str] = Field(min_length=1)
    context: str

    def entry(self) -> HotpotEntry:
        """Converts the question to HotpotQA's form."""
        parts = [part.split("\n", 1) for part in DOCUMENT.split(self.context) if part]
        context: list[tuple[str, list[str] | str]] = [(title, text) for title, *text in parts]
        return HotpotEntry(question=self.input, answer=self.answers[0], context=context, whole=True)


class SquadAnswer(BaseModel):
    text: str


class SquadQuestion(BaseModel):
    question: str
    answers: list[SquadAnswer] = []
    is_impossible: bool = False


class SquadParagraph(BaseModel):
    context: str
    qas: list[SquadQuestion] = []


class SquadArticle(BaseModel):
    title: str
    paragraphs: list[SquadParagraph]

    @property
    def name(self) -> str:
        """Title as people write it."""
        return self.title.replace("_", " ")


class SquadFile(BaseModel):
    """SQuAD's file format, version 1.1 or 2.0."""

    data: list[SquadArticle]


class TitledParagraph(BaseModel):
    """A paragraph by itself."""

    title: str
    text: str


DOCUMENT = re.compile(r"(?:^|\n\n)Document \d+:\n")
"""Precedes each paragraph in MemAgent's evaluation files."""
HOTPOT = TypeAdapter(list[HotpotEntry | ShownEntry])
SQUAD = TypeAdapter(SquadFile)
TITLED = TypeAdapter(list[TitledParagraph])
HOTPOT_FORM = (
    "a JSON list of questions with question, answer, context ([[title, [sentence, ...]], ...]) and "
    "supporting_facts, as in HotpotQA's distractor files, or with input, answers and context (Document 1: ...), as in "
    "MemAgent's evaluation files of up to 6,400 documents"
)
SQUAD_FORM = (
    "a JSON object with data[].title, paragraphs[].context and qas[], as in SQuAD's own files"
)
TITLED_FORM = "a JSON list of paragraphs with title and text"


def content(path: Path) -> bytes:
    """Reads the bytes of a file, unpacked if gzipped, without a byte order mark.

    Raises:
        DocumentNotFound: there is no such file, or it isn't readable.
        EmptyDocument: the file is empty.
        DocumentError: the file is a damaged gzip file.
    """
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        reason = getattr(error, "strerror", None) or error
        raise DocumentNotFound(f"{str(path)!r} cannot be read: {reason}") from error
    if raw.startswith(b"\x1f\x8b"):
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DocumentError(
                f"{str(path)!r} is a truncated or damaged gzip file ({error}): fetch it again"
            ) from error
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        raise EmptyDocument(f"{str(path)!r} is empty; expected JSON (gzipped or not)")
    return raw


def label_file(path: Path, raw: bytes) -> str:
    """Returns what records call a file: its name, and the beginning of the SHA-256 of its unpacked bytes."""
    return f"{path.name}:{hashlib.sha256(raw).hexdigest()[:8]}"


def hotpot(path: Path, raw: bytes) -> list[HotpotEntry]:
    """Parses the questions of a HotpotQA file.

    Raises:
        DocumentError: the file has another form.
    """
    return _parse(path, raw, _entries, HOTPOT_FORM)


def _entries(raw: bytes) -> list[HotpotEntry]:
    entries = HOTPOT.validate_json(raw)
    return [each if isinstance(each, HotpotEntry) else each.entry() for each in entries]


def articles(path: Path, raw: bytes) -> list[SquadArticle]:
    """Parses the articles of a SQuAD file.

    Raises:
        DocumentError: the file has another form.
    """
    return _parse(path, raw, SQUAD.validate_json, SQUAD_FORM).data


def any_form(path: Path, raw: bytes) -> Iterable[tuple[str, str]]:
    """Returns titles and texts of the paragraphs of a file of any form.

    Raises:
        DocumentError: the file has none of these forms.
    """
    form = f"one of: {TITLED_FORM}; {HOTPOT_FORM}; {SQUAD_FORM}"
    if raw.lstrip().startswith(b"{"):
        squad_file = _parse(path, raw, SQUAD.validate_json, form)
        return [(a.name, part.context) for a in squad_file.data for part in a.paragraphs]
    try:
        entries = _entries(raw)
    except ValidationError:
        return [(p.title, p.text) for p in _parse(path, raw, TITLED.validate_json, form)]
    return [(title, "".join(text)) for entry in entries for title, text in entry.context]


def _parse(path: Path, raw: bytes, parse: Callable[[bytes], T], form: str) -> T:
    try:
        return parse(raw)
    except ValidationError as error:
        raise DocumentError(
            f"{str(path)!r} does not have the expected form, {form} ({describe_problem(error)})"
        ) from error
