"""What a tool session did, in the store: each effect under a key, begun, then committed with its events."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from memagent.events import Event
from memagent.messages import Usage
from memagent.runstore import rows
from memagent.runstore.database import Database
from memagent.trajectory import Conversation

ANSWER = "answer"
"""Key of the effect that ends a session; its body holds the answer."""
SEGMENT = "segment"
"""First part of the keys of conversations that are over."""


@dataclass(frozen=True)
class Begun:
    """An effect that is about to be made, or was made already."""

    body: dict[str, Any] | None
    """What was committed, None where it is still to be made."""
    sent: int
    """How often it was begun before without an outcome: it was under way when a session ended."""
    wasted: int = 0
    """How often it was made and came to nothing."""


class StoredEffects:
    """The effects of one run. Methods block for about 0.1 ms."""

    def __init__(self, db: Database, run_id: str) -> None:
        self._db, self._run_id = db, run_id

    def begin(self, key: str) -> Begun:
        """Commits that an effect is about to be made, unless it is committed."""
        with self._db.write() as db:
            found = db.execute(
                "SELECT body, sent, COALESCE(json_extract(usage, '$.retries'), 0) FROM effects "
                "WHERE run = ? AND key = ?",
                (self._run_id, key),
            ).fetchone()
            if found is not None and found[0] is not None:
                return Begun(json.loads(found[0]), found[1], found[2])
            db.execute(
                "INSERT INTO effects (run, key, place, sent) VALUES (?, ?, "
                "(SELECT COUNT(*) FROM effects WHERE run = ?), 1) ON CONFLICT DO UPDATE SET sent = sent + 1",
                (self._run_id, key, self._run_id),
            )
            return Begun(None, 0) if found is None else Begun(None, found[1], found[2])

    def commit(
        self, key: str, body: dict[str, Any], usage: Usage, events: Sequence[Event]
    ) -> list[Event]:
        """Commits what an effect was, with its events, all or nothing; it was begun.

        Returns:
            The events with their places in the log.
        """
        with self._db.write() as db:
            usage = self._spent(key) + usage
            db.execute(
                "UPDATE effects SET committed = ?, body = ?, usage = ? WHERE run = ? AND key = ?",
                (time.time(), json.dumps(body), _usage(usage), self._run_id, key),
            )
            return rows.log(db, self._run_id, events)

    def spend(self, key: str, usage: Usage, events: Sequence[Event]) -> list[Event]:
        """Commits what an effect cost that came to nothing; it is not under way any more, and still to be made."""
        with self._db.write() as db:
            db.execute(
                "UPDATE effects SET sent = 0, usage = ? WHERE run = ? AND key = ?",
                (_usage(self._spent(key) + usage), self._run_id, key),
            )
            return rows.log(db, self._run_id, events)

    def find(self, key: str) -> dict[str, Any] | None:
        """What was committed under a key, None where nothing was."""
        found = self._db.read(
            "SELECT body FROM effects WHERE run = ? AND key = ? AND body IS NOT NULL",
            (self._run_id, key),
        )
        return json.loads(found[0][0]) if found else None

    def count(self, kind: str = "") -> int:
        """How many are committed.

        Args:
            kind: first part of their keys (`act`); empty counts all.
        """
        committed = "SELECT COUNT(*) FROM effects WHERE run = ? AND body IS NOT NULL"
        if not kind:
            return self._db.read(committed, (self._run_id,))[0][0]
        return self._db.read(f"{committed} AND key GLOB ?", (self._run_id, f"{kind}-*"))[0][0]

    def segments(self) -> Sequence[Conversation]:
        """The conversations that are over, in order, read from disk as they are indexed."""
        return _Segments(self._db, self._run_id)

    def _spent(self, key: str) -> Usage:
        (found,) = self._db.read(
            "SELECT usage FROM effects WHERE run = ? AND key = ?", (self._run_id, key)
        )
        return Usage() if found[0] is None else Usage.model_validate_json(found[0])


class _Segments(Sequence[Conversation]):
    """Conversations of one run, the working context of each as it was when it ended."""

    def __init__(self, db: Database, run_id: str) -> None:
        self._db, self._run_id = db, run_id

    def __len__(self) -> int:
        counted = f"SELECT COUNT(*) {_OF_SEGMENTS}"
        return self._db.read(counted, (self._run_id,))[0][0]

    @overload
    def __getitem__(self, index: int) -> Conversation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Conversation]: ...
    def __getitem__(self, index: int | slice) -> Conversation | list[Conversation]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self._read(place) for place in places]
        return self._read(places)

    def _read(self, place: int) -> Conversation:
        row = f"SELECT body {_OF_SEGMENTS} ORDER BY place LIMIT 1 OFFSET ?"
        return Conversation.model_validate_json(self._db.read(row, (self._run_id, place))[0][0])

    def __repr__(self) -> str:
        return f"<{len(self)} conversations of run {self._run_id!r}>"


_OF_SEGMENTS = f"FROM effects WHERE run = ? AND key GLOB '{SEGMENT}-*' AND body IS NOT NULL"


def _usage(usage: Usage) -> str:
    return usage.model_dump_json(exclude_defaults=True)
