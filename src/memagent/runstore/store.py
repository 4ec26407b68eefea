"""The run store: runs, effects and events as rows, each step one transaction."""

import json
import shlex
import sqlite3
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, ValidationError, to_json

from memagent.errors import RunMismatch, RunNotFound, StoreCorrupt, StoreError
from memagent.events import Event, event_adapter
from memagent.messages import Usage
from memagent.runstore.branching import Branching
from memagent.runstore.conversations import find_conversations
from memagent.runstore.database import Database
from memagent.runstore.lock import WAIT, busy, remove_lock, run_lock
from memagent.runstore.records import Begun, RunRecord, escape_body, split_key
from memagent.runstore.spending import Spending
from memagent.trajectory import Conversation

_NOTHING = Usage()
_ANSWERED = (
    "json_array_length(binding, '$.questions') + (SELECT COUNT(*) FROM effects "
    "WHERE run = runs.id AND kind = 'said' AND number > 0) <= (SELECT COUNT(*) FROM effects "
    "WHERE run = runs.id AND kind GLOB 'answer/q*' AND committed IS NOT NULL)"
)
"""Whether a run has all its answers: in a session, for its task and each further message (`said-N`)."""
_AT = "FROM effects WHERE run = ? AND kind = ? AND number = ?"
_DONE = "FROM effects WHERE run = ? AND kind = ? AND committed IS NOT NULL"
_LAST = "SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = ?"


class RunStore(Branching, Spending):
    """A file of runs. Thread-safe; several processes may share a file. Methods block for about 0.1 ms.

    A run consists of effects: what its loop gets from outside, each under a key (`split_key`). An effect is begun, then
    committed together with its events; methods that commit events return them with their positions in the log.

    Args:
        path: the SQLite file, created with mode 0600 if missing; None is a temporary store that
            disappears with this object (SQLite keeps it on disk beyond a small cache, so memory stays flat).
        durable: True survives a power cut without losing the last steps (synchronous=FULL); False survives
            kill -9, and a power cut without corruption.

    Raises:
        StoreError: the file can't be opened as a run store (see its subclasses).
    """

    def __init__(self, path: str | Path | None, *, durable: bool = False) -> None:
        try:  # resolved: a lock beside a link to the file would be another one
            self.path = None if path is None else Path(path).expanduser().resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise StoreError(f"bad path {str(path)!r} ({error}): name another --store") from error
        self._db = Database(self.path, durable=durable)
        self._held: set[str] = set()

    @staticmethod
    def default_path() -> Path:
        """Returns `runs.sqlite` in the user's state folder."""
        import platformdirs

        return platformdirs.user_state_path("memagent") / "runs.sqlite"

    @property
    def option(self) -> str:
        """` --store PATH`, for commands about this store; empty if it is the default one, or temporary."""
        is_default = self.path in (None, self.default_path().resolve())
        return "" if is_default else f" --store {shlex.quote(str(self.path))}"

    def close(self) -> None:
        """Closes the file; deletes a temporary store."""
        self._db.close()

    # --- runs

    def create(
        self, run_id: str, binding: dict[str, Any], settings: dict[str, Any], source: dict[str, Any]
    ) -> None:
        """Creates a run. Raises a `RunMismatch` if the id is taken."""
        now = time.time()
        row = (run_id, now, now, "running", *map(json.dumps, (binding, settings, source)))
        with self._db.write() as db:
            try:
                db.execute("INSERT INTO runs VALUES (?,?,?,?,?,?,?)", row)
            except sqlite3.IntegrityError as error:
                raise RunMismatch(f"run id {run_id!r} is taken; choose another --run-id") from error

    def find(self, run_id: str) -> RunRecord | None:
        """Returns the run with that id, or None."""
        safe_id = str(run_id).encode(errors="replace").decode()  # no id contains a lone surrogate
        rows = self._db.read("SELECT * FROM runs WHERE id = ?", (safe_id,))
        return _record(rows[0]) if rows else None

    def get(self, run_id: str, branch: str | None = None) -> RunRecord:
        """Returns the run with that id, else its branch, named `branch`. Raises a `RunNotFound` if there is none."""
        record = self.find(run_id) or (self.find(branch) if branch else None)
        if record is None:
            listing = f"{self.path}; `memagent runs{self.option}` lists them"
            place = listing if self.path else "this temporary store, whose runs end with it"
            raise RunNotFound(f"no run {run_id!r} in {place}")
        return record

    def runs(self, *, limit: int | None = None, status: str | None = None) -> list[RunRecord]:
        """Returns the runs, newest first.

        Args:
            limit: maximum number of runs; None lists all.
            status: only runs with this status (`RunRecord.status`).
        """
        rows = self._db.read(
            "SELECT * FROM runs WHERE ?1 IS NULL OR status = ?1 ORDER BY created DESC, id DESC LIMIT ?2",
            (status, -1 if limit is None else limit),
        )
        return list(map(_record, rows))

    def set_status(self, run_id: str, *, at_work: bool) -> None:
        """Marks a run as `running` or, without a worker, as `finished` or `stopped`."""
        rest_status = f"CASE WHEN {_ANSWERED} THEN 'finished' ELSE 'stopped' END"
        status = "'running'" if at_work else rest_status
        update = f"UPDATE runs SET status = {status}, updated = ? WHERE id = ?"
        with self._db.write() as db:
            db.execute(update, (time.time(), run_id))

    def set_source(self, run_id: str, source: dict[str, Any]) -> None:
        """Replaces what is stored about a run's document."""
        with self._db.write() as db:
            db.execute("UPDATE runs SET source = ? WHERE id = ?", (json.dumps(source), run_id))

    def is_answered(self, run_id: str) -> bool:
        """Returns whether every question of the run has an answer."""
        return bool(self._db.read(f"SELECT 1 FROM runs WHERE id = ? AND {_ANSWERED}", (run_id,)))

    def remove(self, run_id: str) -> None:
        """Deletes a run and all its steps. Raises a `RunNotFound` if there is none, a `RunBusy` if it is in use."""
        self.get(run_id)
        with self.hold(run_id):
            with self._db.write() as db:
                db.execute("DELETE FROM runs WHERE id = ?", (run_id,))
            remove_lock(self.path, run_id)

    def drop_unread(self, run_id: str, *, unanswered: bool = False) -> bool:
        """Deletes a run without effects of its own (or replies), and returns whether it did; the caller holds it."""
        # Effects that a branch copied are committed without a usage.
        sql = "AND (usage IS NOT NULL OR committed IS NULL)"
        sql += " AND kind NOT IN ('chunk', 'said') AND committed IS NOT NULL" if unanswered else ""
        with self._db.write() as db:
            count = db.execute(
                f"DELETE FROM runs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM effects WHERE run = id {sql})",
                (run_id,),
            ).rowcount
        if count:
            remove_lock(self.path, run_id)
        return count > 0

    @contextmanager
    def hold(self, run_id: str, wait: float = WAIT) -> Generator[None]:
        """Holds a run for one worker. Raises a `RunBusy` if another holds it for longer than `wait` seconds."""
        if self.path is not None:
            with run_lock(self.path, run_id, wait):
                yield
            return
        # A temporary store has no file to lock, and no rivals except those that share this object.
        if run_id in self._held:
            raise busy(run_id)
        self._held.add(run_id)
        try:
            yield
        finally:
            self._held.discard(run_id)

    # --- effects and events

    def begin(self, run_id: str, key: str) -> Begun:
        """Commits that an effect is about to be made, unless it is committed already; returns its state before."""
        place = (run_id, *split_key(key))
        with self._db.write() as db:
            row = db.execute(f"SELECT body, sent, wasted {_AT}", place).fetchone()
            body, sent, wasted = row or (None, 0, 0)
            if body is not None:
                return Begun(json.loads(body), sent, wasted)
            db.execute(
                "INSERT INTO effects (run, kind, number, sent) VALUES (?,?,?,1) "
                "ON CONFLICT DO UPDATE SET sent = sent + 1",
                place,
            )
            return Begun(None, sent, wasted)

    def commit(
        self,
        run_id: str,
        key: str,
        body: dict[str, Any],
        usage: Usage = _NOTHING,
        events: Sequence[Event] = (),
        also: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Event]:
        """Commits an effect with its events, all or nothing; does nothing if it is already committed.

        Args:
            run_id: the run.
            key: the effect's key.
            body: JSON values.
            usage: its cost, apart from what was spent on it before.
            events: events to log with it.
            also: bodies of further effects, by key.
        """
        place, extras = (run_id, *split_key(key)), also or {}
        bodies = (body, *extras.values())
        try:  # most scripts aren't ASCII, and an escape takes six bytes
            texts = map(bytes.decode, list(map(to_json, bodies)))
        except PydanticSerializationError:  # lone surrogates, which SQLite rejects unescaped
            texts = map(escape_body, bodies)
        with self._db.write() as db:
            if self.effect(run_id, key) is not None:
                return []
            spent = {key: _add_usage(db, place, usage)}
            for effect_key, text in zip((key, *extras), texts, strict=True):
                # It may have been begun, but what is committed is never overwritten.
                cursor = db.execute(
                    "INSERT INTO effects (run, kind, number, sent, committed, usage, body) VALUES (?,?,?,1,?,?,?) ON "
                    "CONFLICT DO UPDATE SET committed = excluded.committed, usage = COALESCE(excluded.usage, usage), "
                    "body = excluded.body WHERE committed IS NULL",
                    (run_id, *split_key(effect_key), time.time(), spent.get(effect_key), text),
                )
                if not cursor.rowcount:
                    raise sqlite3.IntegrityError(f"the effect {effect_key!r} is committed already")
            return _log(db, run_id, events)

    def spend(
        self,
        run_id: str,
        key: str,
        usage: Usage,
        events: Sequence[Event] = (),
        *,
        wasted: int = 0,
        again: bool = False,
    ) -> list[Event]:
        """Commits the cost of failed attempts at an effect, with events; the effect is still pending.

        Args:
            run_id: the run.
            key: the effect's key.
            usage: its cost since the last commit.
            events: events to log with it.
            wasted: how many replies were unusable since then.
            again: whether it is about to be retried; False means that it is no longer in flight.
        """
        with self._db.write() as db:
            place = (run_id, *split_key(key))
            db.execute(
                "INSERT INTO effects (run, kind, number, sent, wasted, usage) VALUES (?,?,?,?,?,?) "
                "ON CONFLICT DO UPDATE SET sent = excluded.sent, wasted = wasted + excluded.wasted, "
                "usage = excluded.usage",
                (*place, int(again), wasted, _add_usage(db, place, usage)),
            )
            return _log(db, run_id, events)

    def log(self, run_id: str, events: Sequence[Event]) -> list[Event]:
        """Commits events that belong to no effect."""
        with self._db.write() as db:
            return _log(db, run_id, events)

    # --- reading back

    def effect(self, run_id: str, key: str) -> dict[str, Any] | None:
        """Returns the body committed under a key; None if there is none."""
        place = (run_id, *split_key(key))
        rows = self._db.read(f"SELECT body {_AT} AND body IS NOT NULL", place)
        return json.loads(rows[0][0]) if rows else None

    def latest(self, run_id: str, kind: str) -> tuple[int, dict[str, Any]] | None:
        """Returns number and body of the committed effect of a kind with the highest number, or None."""
        query = f"SELECT number, body {_DONE} ORDER BY number DESC LIMIT 1"
        rows = self._db.read(query, (run_id, kind))
        return (rows[0][0], json.loads(rows[0][1])) if rows else None

    def count(self, run_id: str, kind: str) -> int:
        """Returns how many effects of a kind are committed."""
        return self._db.read(f"SELECT COUNT(*) {_DONE}", (run_id, kind))[0][0]

    def events(self, run_id: str, after: int = -1, kind: str | None = None) -> Iterator[Event]:
        """Yields the run's events with `seq > after`, all or those of one type, in order, read as they are consumed."""
        page = (
            "SELECT seq, body FROM events WHERE run = ? AND seq > ? AND "
            "(?3 IS NULL OR json_extract(body, '$.type') = ?3) ORDER BY seq LIMIT 256"
        )
        while rows := self._db.read(page, (run_id, after, kind)):
            for after, body in rows:
                # Events that a branch copied have the origin's seq in their body.
                try:
                    event = event_adapter.validate_json(body)
                except ValidationError as error:
                    remedy = f"remove it with `memagent runs rm {run_id}{self.option}`"
                    problem = f"run {run_id!r} is damaged, or a newer memagent wrote it"
                    raise StoreCorrupt(f"{problem}: upgrade memagent, or {remedy}") from error
                yield event.model_copy(update={"seq": after})

    def last_seq(self, run_id: str) -> int:
        """Returns the `seq` of the run's last event; -1 if there is none."""
        return self._db.read(_LAST, (run_id,))[0][0]

    def conversations(self, run_id: str, question: int = 0) -> Sequence[Conversation]:
        """Returns a question's conversations in order, read from disk when indexed; chunk i's has index i."""
        return find_conversations(self, run_id, question)


def _record(row: tuple[Any, ...]) -> RunRecord:
    run_id, created, updated, status, *parts = row
    return RunRecord(run_id, created, updated, status, *map(json.loads, parts))


def _log(db: sqlite3.Connection, run_id: str, events: Sequence[Event]) -> list[Event]:
    """Appends events to the run's log; returns them with their positions in it."""
    (seq,) = db.execute(_LAST, (run_id,)).fetchone()
    numbered_events: list[Event] = []
    for place, event in enumerate(events, start=seq + 1):
        numbered_events.append(event.model_copy(update={"seq": place}))
        body = numbered_events[-1].model_dump_json()
        db.execute("INSERT INTO events VALUES (?,?,?)", (run_id, place, body))
    return numbered_events


def _add_usage(db: sqlite3.Connection, place: tuple[str, str, int], usage: Usage) -> str:
    """Returns a usage as JSON, plus what was spent before on the effect at `place`: run, kind and number."""
    row = db.execute(f"SELECT usage {_AT} AND usage IS NOT NULL", place).fetchone()
    if row is not None:
        usage += Usage.model_validate_json(row[0])
    return usage.model_dump_json(exclude_defaults=True)
