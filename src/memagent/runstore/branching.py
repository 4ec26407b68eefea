"""Copying the beginning of a run into a new one (ADR 0035)."""

from collections.abc import Mapping
from typing import Any

from memagent.events import Event
from memagent.runstore.database import Database
from memagent.runstore.records import escape_body, split_key

_EFFECTS = """
INSERT INTO effects (run, kind, number, sent, committed, body)
SELECT ?, kind, number, 1, committed, json_remove(body, '$.settled') FROM effects
WHERE run = ? AND number < ? AND committed IS NOT NULL AND (kind = 'chunk' OR kind GLOB 'update/q*') ORDER BY place
"""
_EVENTS = """
WITH again (question, start) AS (
  SELECT json_extract(body, '$.question'), seq FROM events WHERE run = ?2 AND json_extract(body, '$.type') = 'rereading'
) INSERT INTO events SELECT ?1, ROW_NUMBER() OVER (ORDER BY seq),
  CASE WHEN json_type(body, '$.usage') IS NULL THEN body ELSE json_set(body, '$.usage', json('{}')) END
FROM events WHERE run = ?2 AND json_extract(body, '$.chunk') < ?3 AND json_extract(body, '$.type') != 'settled'
AND NOT EXISTS (SELECT 1 FROM again WHERE question = json_extract(events.body, '$.question') AND start < seq)
"""
"""Copies are numbered from 1: the first event of the new run is its own."""


class Branching:
    """The part of a run store that copies runs."""

    _db: Database

    def copy_before(
        self,
        run_id: str,
        origin: str,
        before: int,
        started: Event,
        bodies: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Starts a run with what the run `origin` did before a chunk, all or nothing, without its cost.

        `started` is its first event; `bodies` replace copied ones, by key.
        """
        first_event = started.model_copy(update={"seq": 0}).model_dump_json()
        parameters = (run_id, origin, before)
        with self._db.write() as db:
            db.execute("INSERT INTO events VALUES (?,0,?)", (run_id, first_event))
            db.execute(_EFFECTS, parameters)
            db.execute(_EVENTS, parameters)
            for key, body in bodies.items():
                db.execute(
                    "UPDATE effects SET body = ? WHERE run = ? AND kind = ? AND number = ?",
                    (escape_body(body), run_id, *split_key(key)),
                )
