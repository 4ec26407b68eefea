"""A source that reads a user's table: each row has a document, a question and its answers."""

from __future__ import annotations

import hashlib
import json
import logging
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from memagent.errors import ConfigError
from memagent.tokens import TokenCounter
from memagent_train.data.columns import BadRow, Record, read_row
from memagent_train.data.hub import HubRows
from memagent_train.data.jsonl import JsonlRows
from memagent_train.data.samples import TrainingSample
from memagent_train.data.settings import HubSettings, JsonlSettings, RowSettings
from memagent_train.data.sources import BareQuestion
from memagent_train.data.tried_questions import drop_known
from memagent_train.errors import DataError
from memagent_train.rewards.scored import check_references, check_scorer

logger = logging.getLogger("memagent.train.data")


class Rows(Protocol):
    """A table."""

    name: str

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[dict[str, Any] | BadRow]:
        """Yields all rows in order; for a row that can't be read, the error."""
        ...

    def row(self, place: int) -> dict[str, Any]:
        """Reads one row.

        Raises:
            BadRow: it can't be read.
        """
        ...

    def where(self, place: int) -> str:
        """Names a row, for messages."""
        ...


class RowSource:
    """The rows of a table as samples. All are checked when the source is opened, so that no step hits a bad one.

    Of duplicate rows only the first is used: otherwise one might be held out and the other trained on.

    Args:
        settings: the source's settings.
        rows: the table.
        counter: counts documents.

    Raises:
        ConfigError: there is no such score.
        DataError: a row is unusable (unless such rows are dropped), or none remains.
    """

    lengths: tuple[int, ...] = ()

    def __init__(self, settings: RowSettings, rows: Rows, counter: TokenCounter) -> None:
        check_scorer(settings.scorer)
        self.name = settings.name or rows.name
        self.scorer = settings.scorer
        self._settings, self._rows, self._counter = settings, rows, counter
        running = hashlib.sha256()
        self._left_out = {"unusable": 0, "twice": 0, "known": 0}
        places, digests = self._scan(running)
        self.data = running.hexdigest()[:16]
        """Digest of all usable rows, including known ones."""
        if settings.no_context is not None:
            unknown_places = drop_known(places, settings.no_context, settings.known, self.data)
            self._left_out["known"] = len(places) - len(unknown_places)
            by_place = dict(zip(places, digests, strict=True))
            places = array("q", unknown_places)
            digests = array("Q", map(by_place.__getitem__, places))
        self._places = places
        self.digests = np.frombuffer(digests, np.uint64)
        """See `QuestionSource`."""
        if not places:
            raise DataError(f"{rows.name!r} has no usable sample: {self._left_out}")

    @property
    def facts(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {
            "rows": len(self._rows),
            **self._left_out,
            "items": len(self),
            "columns": self._settings.columns.model_dump(),
            "scorer": self.scorer,
            "generate": self._settings.generate,
            "digest": self.data,
        }

    def __len__(self) -> int:
        """Returns the number of remaining rows."""
        return len(self._places)

    def read_question(self, item: int) -> BareQuestion:
        """See `QuestionSource`."""
        record = self._record(item)
        return BareQuestion(self._places[item], record.question, record.answers)

    def sample(self, item: int, round_: int, length: int | None = None) -> TrainingSample:
        """See `Source`. A row gives the same sample in every round, at its natural length."""
        record, generate = self._record(item), self._settings.generate
        after = f"\n\n{record.question}\n"
        tokens = self._counter.count(record.document + after) + generate
        return TrainingSample(
            task=self.name,
            index=self._places[item],
            length=tokens,
            tokens=tokens,
            context=record.document,
            question=record.question,
            outputs=record.answers,
            generate=generate,
            after=after,
            scorer=self.scorer,
            columns=record.others,
        )

    def _record(self, item: int) -> Record:
        place = self._places[item]
        try:
            return read_row(self._rows.row(place), self._settings.columns)
        except BadRow as bad:
            raise DataError(f"{self._rows.where(place)}: {bad}") from bad

    def _check_answers(self, record: Record) -> None:
        """Raises `BadRow` if the score can't use the answers: the row's rollouts would never get a reward."""
        try:
            check_references(self.scorer, record.answers)
        except ConfigError as error:
            raise BadRow(
                f"{error}; correct the answers, or give the source another scorer"
            ) from error

    def _scan(self, running: Any) -> tuple[array[int], array[int]]:
        """Returns places and digests of the usable rows, up to the maximum number; adds the digests to `running`."""
        places, digests, seen = array("q"), array("Q"), set[int]()
        for place, row in enumerate(self._rows):
            try:
                if isinstance(row, BadRow):
                    raise row
                record = read_row(row, self._settings.columns)
                self._check_answers(record)
            except BadRow as bad:
                if self._settings.unusable == "refuse":
                    raise DataError(
                        f"{self._rows.where(place)}: {bad}. (unusable = 'drop' leaves such rows out.)"
                    ) from bad
                self._left_out["unusable"] += 1
                continue
            digest = int.from_bytes(record.digest)
            if digest in seen:
                self._left_out["twice"] += 1
                continue
            seen.add(digest)
            digests.append(digest)
            running.update(record.digest + _encode(record.others))
            places.append(place)
            if len(places) == self._settings.count:
                break
        for what, why in (
            ("unusable", "lack something or have answers that the score can't use"),
            ("twice", "repeat an earlier one"),
        ):
            if number := self._left_out[what]:
                logger.warning("%s: %d rows %s and are left out", self._rows.name, number, why)
        return places, digests


def _encode(others: Mapping[str, Any]) -> bytes:
    """Encodes the other columns, the same in every process; of a value that isn't plain data, only the type."""
    return json.dumps(others, sort_keys=True, default=lambda value: type(value).__name__).encode()


def open_jsonl(settings: JsonlSettings, counter: TokenCounter) -> RowSource:
    """Opens rows of JSON lines. Raises the errors of `JsonlRows` and `RowSource`."""
    return RowSource(settings, JsonlRows(settings.files), counter)


def open_hub(settings: HubSettings, counter: TokenCounter) -> RowSource:
    """Opens rows of a data set. Raises the errors of `HubRows` and `RowSource`."""
    return RowSource(settings, HubRows(settings), counter)
