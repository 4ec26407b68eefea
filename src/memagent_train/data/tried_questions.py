"""Which questions a model can answer without the document: reads the file that `no_context.py` writes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from memagent.messages import Leaf
from memagent_train.errors import DataError


class Header(Leaf):
    """First line of the file: what all its tries have in common."""

    source: str
    """Name of the questions' source."""
    data: str
    """Digest of the questions and references; the file is only valid for the same data."""
    model: str
    tries: int = Field(gt=0)
    """Tries per question."""
    scorer: str
    prompt: str
    """Digest of the prompt and sampling settings."""
    seed: int


class TriedQuestion(Leaf):
    """Any other line: one question."""

    index: int = Field(ge=0)
    """Index in the source's data."""
    right: int = Field(ge=0)
    """Tries answered correctly without the document."""
    tries: int = Field(gt=0)


@dataclass(frozen=True)
class TriedFile:
    """The content of a file."""

    header: Header
    tried: dict[int, TriedQuestion]
    """Tried questions by index."""
    size: int
    """Bytes up to the end of the last complete line; a killed session may leave a partial one."""


def read_tried(path: Path) -> TriedFile:
    """Reads a file of tries. Blocks.

    Raises:
        DataError: it can't be read, or isn't such a file.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    content = raw[: raw.rfind(b"\n") + 1]
    first, *others = content.splitlines() or [b""]
    try:
        header = Header.model_validate_json(first)
        tried = {line.index: line for line in map(TriedQuestion.model_validate_json, others)}
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DataError(
            f"{str(path)!r} is not a file of answers without the document ({message}): create it again"
        ) from error
    return TriedFile(header, tried, len(content))


def drop_known(indexes: Iterable[int], path: Path, known: float, data: str) -> list[int]:
    """Returns the questions that a model doesn't know.

    Args:
        indexes: indexes of the questions in their source's data.
        path: the file.
        known: questions with at least this share of correct tries are left out.
        data: the source's digest.

    Raises:
        DataError: the file is for other data, or lacks questions.
    """
    tried_file = read_tried(path)
    if tried_file.header.data != data:
        raise DataError(
            f"{str(path)!r} was made for other data than this source's ({tried_file.header.source!r}, digest "
            f"{tried_file.header.data}, now {data}): create it again"
        )
    questions = list(indexes)
    missing = [index for index in questions if index not in tried_file.tried]
    if missing:
        raise DataError(
            f"{str(path)!r} lacks {len(missing)} of {len(questions)} questions (the first is {missing[0]}): continue "
            f"creating it until it is complete"
        )
    return [i for i in questions if tried_file.tried[i].right / tried_file.tried[i].tries < known]


def line(entry: Header | TriedQuestion) -> bytes:
    """Encodes one line of the file."""
    fields: dict[str, Any] = entry.model_dump()
    return (json.dumps(fields) + "\n").encode()
