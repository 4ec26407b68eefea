"""The tables of a run store, and the migration from earlier versions: a copy first, then one transaction."""

import json
import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from memagent.errors import RunBusy, StoreError
from memagent.runstore.lock import remove_lock, run_lock
from memagent.runstore.records import split_key

APPLICATION_ID = 0x6D656D61
"""`mema` in ASCII: marks the SQLite file as a run store."""
VERSION = 3
"""Version 2 had tables of chunks and steps, and effects only for tool sessions; version 1 had no effects."""
EFFECTS = """
CREATE TABLE IF NOT EXISTS effects (
  place INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, kind TEXT NOT NULL,
  number INTEGER NOT NULL, sent INTEGER NOT NULL, wasted INTEGER NOT NULL DEFAULT 0, committed REAL, usage TEXT,
  body TEXT,
  UNIQUE (run, kind, number)
) STRICT
"""
"""What runs got from outside. `place` is the order in which they were begun."""
SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS runs (
      id TEXT PRIMARY KEY, created REAL NOT NULL, updated REAL NOT NULL, status TEXT NOT NULL,
      binding TEXT NOT NULL, settings TEXT NOT NULL, source TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS events (
      run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, seq INTEGER NOT NULL, body TEXT NOT NULL,
      PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID
    """,
    EFFECTS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
"""Another process may just have created the same tables."""
_BOOLEAN = "json(CASE WHEN {} THEN 'true' ELSE 'false' END)"
_CUT_OFF = json.dumps(
    {"text": "", "reasoning": "(not kept)", "finish_reason": "length", "usage": {"calls": 0}}
)
"""Stands for a cut-off reply, of which version 2 stored only the fact: as `act-N`."""
_LAST_SEGMENT = (
    "(SELECT {} FROM effects2 AS segment WHERE segment.run = effects2.run AND key GLOB 'segment-*' "
    "ORDER BY place DESC LIMIT 1)"
)
_REWRITE = (
    # Version 1 had no effects.
    """
    CREATE TABLE IF NOT EXISTS effects
      (run TEXT, key TEXT, place INTEGER, sent INTEGER, committed REAL, body TEXT, usage TEXT)
    """,
    "ALTER TABLE effects RENAME TO effects2",
    EFFECTS,
    # Chunks. Tables are dropped as early as possible, to make room for what follows.
    """
    INSERT INTO effects (run, kind, number, sent, committed, body)
    SELECT run, 'chunk', chunk, 1, runs.created, json_object('mark', json(mark), 'text', text)
    FROM chunks JOIN runs ON runs.id = run ORDER BY run, chunk
    """,
    "DROP TABLE chunks",
    # Updates; `wrote` is the number of the one that wrote the memory.
    f"""
    INSERT INTO effects (run, kind, number, sent, wasted, committed, usage, body)
    SELECT run, 'update/q' || question, chunk, sent, unusable, committed, usage, CASE
      WHEN committed IS NULL THEN NULL
      WHEN memory IS NULL THEN json_remove(body, '$.memory', '$.tokens')
      ELSE body END
    FROM (
      SELECT steps.*, steps.rowid AS place, json_object(
        'conversation', json(conversation), 'hole', hole, 'reply', json(reply_of(conversation)), 'memory', memory,
        'tokens', tokens, 'carried', wrote, 'settled', {_BOOLEAN.format("settled")}
      ) AS body
      FROM steps LEFT JOIN (
        SELECT rowid AS step, MAX(CASE WHEN memory IS NOT NULL THEN chunk END)
          OVER (PARTITION BY run, question ORDER BY chunk) AS wrote
        FROM steps WHERE chunk >= 0
      ) ON step = steps.rowid
      WHERE chunk >= 0
    )
    ORDER BY place
    """,
    # Answers; how they were parsed is in the events.
    f"""
    INSERT INTO effects (run, kind, number, sent, wasted, committed, usage, body)
    SELECT steps.run, 'answer/q' || steps.question, 0, sent, unusable, committed, usage,
      CASE WHEN committed IS NOT NULL THEN json_object(
        'answer', answer, 'truncated', {_BOOLEAN.format("truncated")},
        'form_found', {_BOOLEAN.format("form_found")}, 'conversation', json(conversation), 'hole', hole,
        'reply', json(reply_of(conversation))
      ) END
    FROM steps LEFT JOIN (
      SELECT run, json_extract(body, '$.question') AS question, json_extract(body, '$.truncated') AS truncated,
        json_extract(body, '$.form_found') AS form_found
      FROM events WHERE json_extract(body, '$.type') = 'answered'
    ) AS answered ON answered.run = steps.run AND answered.question = steps.question
    WHERE chunk = -1 ORDER BY steps.rowid
    """,
    "DROP TABLE steps",
    # A cut-off reply was paid for but not stored, only marked by `room-N`: it becomes `act-N`, and what
    # came after it `act-N/room`.
    """
    UPDATE effects2 SET key = 'act' || substr(key, 5) || '/room', (sent, committed, body, usage) = (
      SELECT sent, committed, body, usage FROM effects2 AS act
      WHERE act.run = effects2.run AND act.key = 'act' || substr(effects2.key, 5)
    ) WHERE key GLOB 'room-*'
    """,
    f"""
    UPDATE effects2
    SET sent = 1, committed = (SELECT created FROM runs WHERE id = run), usage = NULL, body = '{_CUT_OFF}'
    WHERE EXISTS (
      SELECT 1 FROM effects2 AS room WHERE room.run = effects2.run AND room.key = effects2.key || '/room'
    )
    """,
    # The last conversation of a session belongs to its answer. Without an answer, the compaction's event
    # distinguishes it from one that a compaction ended.
    f"""
    UPDATE effects2 SET body = json_set(
      body, '$.truncated', {_BOOLEAN.format("json_extract(body, '$.truncated')")}, '$.form_found', json('true'),
      '$.conversation', json({_LAST_SEGMENT.format("body")}), '$.hole', NULL,
      '$.reply', json(reply_of({_LAST_SEGMENT.format("body")}))
    ) WHERE key = 'answer' AND body IS NOT NULL
    """,
    f"""
    DELETE FROM effects2 WHERE key GLOB 'segment-*' AND place = {_LAST_SEGMENT.format("place")} AND (
      EXISTS (
        SELECT 1 FROM effects2 AS answer
        WHERE answer.run = effects2.run AND answer.key = 'answer' AND answer.body IS NOT NULL
      )
      OR json_extract(body, '$.kind') = 'act'
      AND place = (SELECT MAX(place) FROM effects2 AS e WHERE e.run = effects2.run AND e.key != 'answer')
      AND 'compacted' != (
        SELECT json_extract(events.body, '$.type') AS type FROM events
        WHERE events.run = effects2.run AND type IN ('compacted', 'acted', 'tool_returned') ORDER BY seq DESC LIMIT 1
      )
    )
    """,
    """
    INSERT INTO effects (run, kind, number, sent, wasted, committed, usage, body)
    SELECT run, key_part(key, 0), key_part(key, 1), sent,
      MAX(0, COALESCE(json_extract(usage, '$.retries'), 0) - (key GLOB '*/room')), committed, usage,
      CASE
        WHEN key GLOB 'segment-*' AND body IS NOT NULL THEN json_object('conversation', json(body))
        WHEN (key GLOB 'act-*' OR key GLOB 'summary-*' OR key GLOB 'early-*') AND json_type(body, '$.failed') IS NULL
          AND body IS NOT NULL THEN json_object('reply', json(body))
        ELSE body
      END
    FROM effects2 ORDER BY run, place
    """,
    "DROP TABLE effects2",
    f"PRAGMA user_version = {VERSION}",
)


def migrate(db: sqlite3.Connection, path: Path, held: ExitStack) -> None:
    """Migrates the store to this version, unless another process was faster.

    The caller commits the transaction, then releases the locks that `held` takes. A copy of the file is
    left next to it, with `.version` and the version appended to its name. Raises a `RunBusy` if a run is in use.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version >= VERSION:
        return
    for run_id, status in db.execute("SELECT id, status FROM runs").fetchall():
        with ExitStack() as lock:
            try:
                lock.enter_context(run_lock(path, run_id))
            except RunBusy as error:
                raise RunBusy(
                    f"the run store {str(path)!r} must be migrated to this version of memagent, but its run {run_id!r} "
                    f"is in use: finish or stop it first"
                ) from error
            lock.callback(remove_lock, path, run_id)
            # There may be thousands of finished runs, more than a process's limit on open files.
            if status != "finished":
                held.enter_context(lock.pop_all())
    _back_up(path, path.with_name(f"{path.name}.version{version}"))
    db.create_function("key_part", 2, _key_part, deterministic=True)
    db.create_function("reply_of", 1, _reply_of, deterministic=True)
    for statement in _REWRITE:
        db.execute(statement)


def make_file(path: Path) -> None:
    """Creates the file with mode 0600 before SQLite would create it with the umask's (WAL files inherit it)."""
    if path.name == ":memory:":
        raise StoreError("':memory:' would name a file; None is a temporary store")
    if path.exists() and not path.is_file():
        raise OSError("it is a directory or a device")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Only if it's missing: closing a file drops all locks that this process has on it, and another process would then
    # delete the log that our connections still use.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _back_up(path: Path, copy: Path) -> None:
    """Copies a whole store; an existing copy is replaced once the new one is complete."""
    part = copy.with_name(f"{copy.name}.part")
    make_file(part)
    try:
        # With a separate connection: SQLite can't copy within a transaction.
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one plain file
        part.replace(copy)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _key_part(key: str, place: int) -> str | int:
    """Kind or number of a version 2 key."""
    return split_key("answer/q0" if key == "answer" else key)[place]


def _reply_of(conversation: str | None) -> str | None:
    """What remains of the reply that a conversation ends with."""
    # Not with json_extract, which ends a text at its first NUL.
    if conversation is None:
        return None
    return json.dumps({"text": json.loads(conversation)["messages"][-1]["content"]})
