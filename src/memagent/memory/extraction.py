"""What an extraction returns: rows and their places, read from the run store on demand."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel

from memagent.errors import ConfigError
from memagent.prompts.output import Output
from memagent.prompts.reply import UnusableReply
from memagent.replacing import replacing
from memagent.run.result import Result
from memagent.runstore import RunStore
from memagent.runstore.conversations import StoredValues
from memagent.texts import quote

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
ROW, INVALID, SEEN = "row-%d/q0", "invalid-%d/q0", "seen-%d/q0"
"""Keys of the effects that hold rows, rejected rows, and hashes of rows."""


@dataclass(frozen=True, kw_only=True)
class _RowBase:
    chunk: int
    """Index of the chunk in which it was found."""
    start: int
    """First character of that chunk in the document."""
    end: int
    """One past its last character."""
    place: str
    """Where the chunk comes from, such as `p. 3 to p. 5`, if the document's format has places."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as JSON values."""
        fields, how = vars(self), {"mode": "json", "by_alias": True}
        return fields | {k: v.model_dump(**how) for k, v in fields.items() if k == "value"}


@dataclass(frozen=True, kw_only=True)
class Row(_RowBase, Generic[M]):
    """A row that was found in a document."""

    value: M
    """The row itself."""


@dataclass(frozen=True, kw_only=True)
class InvalidRow(_RowBase):
    """What the model wrote instead of a row, and didn't correct."""

    text: str
    """First 400 characters of what the model wrote."""
    problem: str
    """What is wrong with it, a line for each field."""


def stored_rows(store: RunStore, run_id: str, key: str, make: Callable[[Any], T]) -> Sequence[T]:
    """Returns the rows in the order they were found. Blocks."""
    last = store.latest(run_id, key.replace("-%d", ""))
    return StoredValues(store, run_id, {key: 0 if last is None else last[0] + 1}, make)


@dataclass(frozen=True, repr=False, kw_only=True)
class Extraction(Result, Generic[M]):
    """The rows of a document. `answer` is the number of rows and of invalid ones in words, `memory` the newest rows."""

    rows: Sequence[Row[M]]
    """The rows, equal ones once, in the order they were found; `len` doesn't load them."""
    invalid: Sequence[InvalidRow] = ()
    """What the model wrote instead of rows and didn't correct: count and check them."""
    duplicates: int = 0
    """Rows that were dropped because all their fields equal those of an earlier one."""

    @classmethod
    def of(cls, result: Result, store: RunStore, form: Output, progress: dict[str, Any]) -> Self:
        """Makes the extraction of a run whose loop returned `result`. Blocks."""

        def make(body: dict[str, Any]) -> Row[Any]:
            row = body.pop("row")
            try:
                return Row(value=form.read(row), **body)
            except UnusableReply as error:
                problem = f"the schema took {quote(row)} and now doesn't: {error}"
                raise ConfigError(f"{problem}; give it validators that don't change") from error

        return cls(
            **vars(result),
            rows=stored_rows(store, result.run_id, ROW, make),
            invalid=stored_rows(store, result.run_id, INVALID, lambda body: InvalidRow(**body)),
            duplicates=progress.get("duplicates", 0),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as JSON values, without trajectory and source; loads the rows."""
        rows = [row.to_dict() for row in self.rows]
        invalid = [bad_row.to_dict() for bad_row in self.invalid]
        return super().to_dict() | {"rows": rows, "invalid": invalid}

    def lines(self) -> Iterator[str]:
        """Yields each row as a line of JSON (`Row.to_dict`) without a line end; holds one row in memory at a time."""
        return (json.dumps(row.to_dict(), ensure_ascii=False) for row in self.rows)

    def write(self, path: str | Path) -> None:
        """Writes `lines` to a file. An existing file is replaced once all are written."""
        with replacing(Path(path)) as new_path, new_path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in self.lines())
