"""Which questions a model knows the answer of: the file that `no_context.py` writes, read again."""

from __future__ import annotations

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
    """Of the questions."""
    data: str
    """Digest of the questions and references; other data do not fit the file."""
    model: str
    tries: int = Field(gt=0)
    """For each question."""
    scorer: str
    prompt: str
    """Digest of the wording."""
    seed: int


class Tried(Leaf):
    """A further line: one question."""

    index: int = Field(ge=0)
    """Place in the source's data."""
    right: int = Field(ge=0)
    """Tries that were answered right without the document."""
    tries: int = Field(gt=0)


@dataclass(frozen=True)
class TriedFile:
    """What a file says."""

    header: Header
    tried: dict[int, Tried]
    """By index."""
    size: int
    """Bytes up to the end of the last whole line; a session that was killed may leave a part of another."""


def read_tried(path: Path) -> TriedFile:
    """Reads a file of tries. Blocks.

    Raises:
        DataError: it cannot be read, or is none.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from error
    whole = raw[: raw.rfind(b"\n") + 1]
    first, *others = whole.splitlines() or [b""]
    try:
        header = Header.model_validate_json(first)
        tried = {line.index: line for line in map(Tried.model_validate_json, others)}
    except ValidationError as error:
        said = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DataError(
            f"{str(path)!r} is no file of answers without the document ({said}): make it anew"
        ) from error
    return TriedFile(header, tried, len(whole))


def drop_known(indexes: Iterable[int], path: Path, known: float, data: str) -> list[int]:
    """The questions that a model does not know.

    Args:
        indexes: of the questions in their source's data.
        path: of the file.
        known: least share of right tries of questions that are left out.
        data: the source's digest.

    Raises:
        DataError: the file is of other data, or lacks questions.
    """
    found = read_tried(path)
    if found.header.data != data:
        raise DataError(
            f"{str(path)!r} is of other data than this source has now ({found.header.source!r}, digest "
            f"{found.header.data}, now {data}): make it anew"
        )
    asked = list(indexes)
    missing = [index for index in asked if index not in found.tried]
    if missing:
        raise DataError(
            f"{str(path)!r} lacks {len(missing)} of {len(asked)} questions (the first is {missing[0]}): go on with "
            f"making it until it is complete"
        )
    return [i for i in asked if found.tried[i].right / found.tried[i].tries < known]


def line(entry: Header | Tried) -> bytes:
    """One line of the file."""
    fields: dict[str, Any] = entry.model_dump()
    return (json.dumps(fields) + "\n").encode()
