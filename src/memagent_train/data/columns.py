"""Reads a document, a question and its answers from a row of a user's table."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

from memagent_train.data.settings import ColumnSettings

JOINT = "\n\n"
"""Separator between the texts of a document that is a list."""
SHOWN = 12
"""Maximum columns listed in an error."""


class BadRow(Exception):
    """Raised if a row lacks something; the message says what, and how to fix it."""


@dataclass(frozen=True)
class Record:
    """The content of a row."""

    document: str
    question: str
    answers: tuple[str, ...]
    """At least one, none blank."""
    others: Mapping[str, Any]
    """All other columns."""

    @property
    def digest(self) -> bytes:
        """8 bytes, equal for rows with equal document, question and answers, whatever their other columns."""
        running = hashlib.blake2b(digest_size=8)
        for text in (self.document, self.question, *self.answers):
            raw = text.encode()
            running.update(len(raw).to_bytes(8))
            running.update(raw)
        return running.digest()


def read_row(row: Mapping[str, Any], columns: ColumnSettings) -> Record:
    """Reads one row.

    Raises:
        BadRow: a column is missing, empty, or has the wrong type.
    """
    named = {"document": columns.document, "question": columns.question, "answers": columns.answers}
    cells = {what: _cell(row, name, what) for what, name in named.items()}
    record_columns = {name if name in row else name.partition(".")[0] for name in named.values()}
    return Record(
        document=_document(cells["document"], columns.document),
        question=_text(cells["question"], columns.question),
        answers=_answers(cells["answers"], columns.answers),
        others={name: value for name, value in row.items() if name not in record_columns},
    )


def _cell(row: Mapping[str, Any], name: str, what: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, Sequence) and not isinstance(value, str):
            items = cast("Sequence[Any]", value)  # of a list of objects, take the part of each
            value = [_part(item, part, name, row, what) for item in items]
        else:
            value = _part(value, part, name, row, what)
    return value


def _part(value: Any, part: str, name: str, row: Mapping[str, Any], what: str) -> Any:
    if isinstance(value, Mapping) and part in value:
        return cast("Mapping[str, Any]", value)[part]
    names = ", ".join(map(repr, list(row)[:SHOWN])) or "none"
    more = f" and {len(row) - SHOWN} more" if len(row) > SHOWN else ""
    raise BadRow(
        f"there is no column {name!r} (the columns are {names}{more}): set columns.{what} of the source to the "
        f"name of the column"
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"column {name!r} must be a text, got {_describe(value)}")
    if not value.strip():
        raise BadRow(f"column {name!r} is blank")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRow(
            f"column {name!r} has a lone surrogate at character {error.start}: write the character itself"
        ) from error
    return value


def _document(value: Any, name: str) -> str:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        texts = [_text(item, name) for item in cast("Sequence[Any]", value)]
        value = JOINT.join(texts)
    return _text(value, name)


def _answers(value: Any, name: str) -> tuple[str, ...]:
    single = isinstance(value, str | bytes) or not isinstance(value, Sequence)
    answers = tuple(_answer(item, name) for item in ([value] if single else value))
    if not answers:
        raise BadRow(f"column {name!r} has no answer")
    return tuple(dict.fromkeys(answers))


def _answer(value: Any, name: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf:
        return str(value).removesuffix(".0")  # a table may hold whole numbers as floats
    if not isinstance(value, str):
        hint = "; kind = 'jsonl' keeps it as it is written" if isinstance(value, date) else ""
        raise BadRow(
            f"column {name!r} has {_describe(value)}: an answer must be a text or a finite number{hint}"
        )
    return _text(value, name)


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
