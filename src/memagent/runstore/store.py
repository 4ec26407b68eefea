"""The run store: runs, chunks, steps and events as rows, every step one transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memagent.errors import RunMismatch, RunNotFound
from memagent.events import Event, event_adapter
from memagent.messages import Usage
from memagent.runstore import rows
from memagent.runstore.conversations import StoredConversations, pack
from memagent.runstore.database import Database
from memagent.runstore.effects import ANSWER, StoredEffects
from memagent.runstore.lock import busy, remove_lock, run_lock
from memagent.runstore.records import ANSWER_STEP, Pending, QuestionState, RunRecord, Step
from memagent.trajectory import Conversation


class RunStore:
    """A file of runs. Thread-safe; several processes may use one file. Methods block for about 0.1 ms.

    Args:
        path: the SQLite file, made with mode 0600 where it is missing; None is a temporary store that
            disappears with this object (SQLite keeps it on disk beyond a small cache, so memory stays flat).
        durable: True survives a power cut without losing the last steps (synchronous=FULL); False survives
            kill -9, and a power cut without damage.

    Raises:
        StoreError: the file cannot be opened as a run store (see its subclasses).
    """

    def __init__(self, path: str | Path | None, *, durable: bool = False) -> None:
        self.path = None if path is None else Path(path).expanduser().absolute()
        self._db = Database(self.path, durable=durable)
        self._held: set[str] = set()

    @staticmethod
    def default_path() -> Path:
        """`runs.sqlite` in the user's state folder."""
        import platformdirs

        return platformdirs.user_state_path("memagent") / "runs.sqlite"

    def close(self) -> None:
        """Closes the file; a temporary store is gone."""
        self._db.close()

    # --- runs

    def create(
        self, run_id: str, binding: dict[str, Any], settings: dict[str, Any], source: dict[str, Any]
    ) -> None:
        """Makes a run.

        Raises:
            RunMismatch: the id is taken.
        """
        now = time.time()
        row = (
            run_id,
            now,
            now,
            "running",
            *(json.dumps(part) for part in (binding, settings, source)),
        )
        with self._db.write() as db:
            try:
                db.execute("INSERT INTO runs VALUES (?,?,?,?,?,?,?)", row)
            except sqlite3.IntegrityError as error:
                raise RunMismatch(f"run id {run_id!r} is taken; choose another --run-id") from error

    def find(self, run_id: str) -> RunRecord | None:
        """The run of that id, or None."""
        found = self._db.read("SELECT * FROM runs WHERE id = ?", (run_id,))
        return rows.record(found[0]) if found else None

    def get(self, run_id: str) -> RunRecord:
        """The run of that id.

        Raises:
            RunNotFound: there is none.
        """
        record = self.find(run_id)
        if record is None:
            where = "a temporary store" if self.path is None else str(self.path)
            raise RunNotFound(f"no run {run_id!r} in {where}; `memagent runs` lists what there is")
        return record

    def runs(self) -> list[RunRecord]:
        """All runs, newest first."""
        return [
            rows.record(row)
            for row in self._db.read("SELECT * FROM runs ORDER BY created DESC, id DESC")
        ]

    def set_status(self, run_id: str, *, at_work: bool) -> None:
        """Marks a run `running`, or as what it is without a worker: `finished` or `stopped`."""
        status = "running" if at_work else "stopped"
        if not at_work and self.is_answered(run_id):
            status = "finished"
        with self._db.write() as db:
            db.execute(
                "UPDATE runs SET status = ?, updated = ? WHERE id = ?",
                (status, time.time(), run_id),
            )

    def is_answered(self, run_id: str) -> bool:
        """Whether every question of the run has its answer."""
        record = self.find(run_id)
        if record is None:
            return False
        states = self.state(run_id, len(record.binding["questions"]))
        return all(state.answer is not None for state in states)

    def remove(self, run_id: str) -> None:
        """Forgets a run and all its steps.

        Raises:
            RunNotFound: there is none.
            RunBusy: somebody is working on it.
        """
        self.get(run_id)
        with self.hold(run_id):
            with self._db.write() as db:
                db.execute("DELETE FROM runs WHERE id = ?", (run_id,))
            remove_lock(self.path, run_id)

    def drop_unread(self, run_id: str) -> bool:
        """Forgets a run of which no chunk was read, or no call made; its caller holds the run.

        Returns:
            Whether there was nothing to keep.
        """
        with self._db.write() as db:
            gone = db.execute(
                "DELETE FROM runs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM chunks WHERE run = id) "
                "AND NOT EXISTS (SELECT 1 FROM effects WHERE run = id)",
                (run_id,),
            ).rowcount
        if gone:
            remove_lock(self.path, run_id)
        return gone > 0

    @contextmanager
    def hold(self, run_id: str) -> Generator[None]:
        """Holds a run for one worker alone.

        Raises:
            RunBusy: somebody else holds it: a process, a thread or a task.
        """
        if self.path is not None:
            with run_lock(self.path, run_id):
                yield
            return
        # A temporary store has no file to lock, and no rivals but those who share this object.
        if run_id in self._held:
            raise busy(run_id)
        self._held.add(run_id)
        try:
            yield
        finally:
            self._held.discard(run_id)

    # --- steps

    def begin(
        self,
        run_id: str,
        chunk: int | None,
        questions: Iterable[int],
        *,
        mark: dict[str, Any] | None = None,
        text: str = "",
        events: Sequence[Event] = (),
    ) -> tuple[list[Event], list[Pending]]:
        """Commits that calls are about to be sent for a chunk (or, with None, for the answers).

        Args:
            run_id: the run.
            chunk: index of the chunk, None for the answers.
            questions: whose calls they are.
            mark: where the chunk lies, on its first reading.
            text: the chunk as it is shown, on its first reading: kept once, whatever the number of questions.
            events: what to log with it.

        Returns:
            The events with their places in the log, and for each question what became of its call before.
        """
        place = ANSWER_STEP if chunk is None else chunk
        with self._db.write() as db:
            if mark is not None:
                db.execute(
                    "INSERT INTO chunks VALUES (?,?,?,?)", (run_id, place, json.dumps(mark), text)
                )
            pending = [
                Pending(
                    *db.execute(
                        "INSERT INTO steps (run, question, chunk, sent) VALUES (?,?,?,1) "
                        "ON CONFLICT DO UPDATE SET sent = sent + 1 RETURNING sent - 1, unusable",
                        (run_id, question, place),
                    ).fetchone()
                )
                for question in questions
            ]
            return rows.log(db, run_id, events), pending

    def commit(self, run_id: str, step: Step, events: Sequence[Event]) -> list[Event]:
        """Commits one call's outcome with its events, all or nothing."""
        place = ANSWER_STEP if step.chunk is None else step.chunk
        with self._db.write() as db:
            conversation, hole = pack(step.conversation, rows.text(db, run_id, place))
            usage = rows.spent(db, run_id, step.question, place) + step.usage
            db.execute(
                "UPDATE steps SET committed = ?, memory = ?, tokens = ?, settled = ?, answer = ?, usage = ?, "
                "conversation = ?, hole = ? WHERE run = ? AND question = ? AND chunk = ?",
                (
                    time.time(),
                    step.memory,
                    step.tokens,
                    int(step.settled),
                    step.answer,
                    usage.model_dump_json(exclude_defaults=True),
                    conversation,
                    hole,
                    run_id,
                    step.question,
                    place,
                ),
            )
            return rows.log(db, run_id, events)

    def spend(
        self,
        run_id: str,
        question: int,
        chunk: int | None,
        usage: Usage,
        events: Sequence[Event],
        *,
        unusable: int = 0,
    ) -> list[Event]:
        """Commits what a call cost that led to nothing, with its events; the call stays to be made.

        Args:
            run_id: the run.
            question: whose call it was.
            chunk: index of the chunk, None for the answer.
            usage: what it cost in this session.
            events: what to log with it.
            unusable: how many of its replies were unusable, earlier sessions included.
        """
        place = ANSWER_STEP if chunk is None else chunk
        with self._db.write() as db:
            usage = rows.spent(db, run_id, question, place) + usage
            db.execute(
                "UPDATE steps SET sent = 0, unusable = ?, usage = ? WHERE run = ? AND question = ? AND chunk = ?",
                (
                    unusable,
                    usage.model_dump_json(exclude_defaults=True),
                    run_id,
                    question,
                    place,
                ),
            )
            return rows.log(db, run_id, events)

    def log(self, run_id: str, events: Sequence[Event]) -> list[Event]:
        """Commits events that belong to no call."""
        with self._db.write() as db:
            return rows.log(db, run_id, events)

    # --- reading back

    def state(self, run_id: str, questions: int) -> list[QuestionState]:
        """How far each question has come."""
        states = [QuestionState(question) for question in range(questions)]
        last = (
            "SELECT question, MAX(chunk), MAX(settled) FROM steps "
            "WHERE run = ? AND committed IS NOT NULL AND chunk >= 0 GROUP BY question"
        )
        for question, chunk, settled in self._db.read(last, (run_id,)):
            states[question].next_chunk = chunk + 1
            states[question].settled = bool(settled)
            memory = self._db.read(
                "SELECT memory FROM steps WHERE run = ? AND question = ? AND chunk >= 0 AND memory IS NOT NULL "
                "ORDER BY chunk DESC LIMIT 1",
                (run_id, question),
            )
            states[question].memory = memory[0][0] if memory else ""
        answers = "SELECT question, answer FROM steps WHERE run = ? AND chunk = ? AND committed IS NOT NULL"
        for question, answer in self._db.read(answers, (run_id, ANSWER_STEP)):
            states[question].answer = answer
        if states and (ended := self.effects(run_id).find(ANSWER)) is not None:
            states[0].answer = ended["answer"]
        return states

    def mark(self, run_id: str, chunk: int) -> dict[str, Any] | None:
        """Where a chunk lies, as it was committed, or None if it was never read."""
        found = self._db.read(
            "SELECT mark FROM chunks WHERE run = ? AND chunk = ?", (run_id, chunk)
        )
        return json.loads(found[0][0]) if found else None

    def last_mark(self, run_id: str) -> dict[str, Any] | None:
        """Where the furthest chunk lies, None before the first."""
        found = self._db.read(
            "SELECT mark FROM chunks WHERE run = ? ORDER BY chunk DESC LIMIT 1", (run_id,)
        )
        return json.loads(found[0][0]) if found else None

    def usage(self, run_id: str, question: int | None = None) -> Usage:
        """What the run's calls cost, for one question or all."""
        columns = ", ".join(rows.SUMS)
        spent, values = "SELECT usage FROM steps WHERE run = ?", [run_id]
        if question is not None:
            spent, values = f"{spent} AND question = ?", [run_id, question]
        if not question:  # a tool session is one question
            spent, values = (
                f"{spent} UNION ALL SELECT usage FROM effects WHERE run = ?",
                [*values, run_id],
            )
        row = self._db.read(f"SELECT {columns} FROM ({spent})", values)[0]
        return Usage(**dict(zip(Usage.model_fields, row, strict=True)))

    def events(self, run_id: str, after: int = -1) -> Iterator[Event]:
        """The run's events with `seq > after`, in order, read as they are consumed."""
        page = "SELECT seq, body FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT 256"
        while found := self._db.read(page, (run_id, after)):
            for _, body in found:
                yield event_adapter.validate_json(body)
            after = found[-1][0]

    def last_seq(self, run_id: str) -> int:
        """The `seq` of the run's last event, -1 where there is none."""
        seq = self._db.read("SELECT MAX(seq) FROM events WHERE run = ?", (run_id,))[0][0]
        return -1 if seq is None else seq

    def conversations(self, run_id: str, question: int = 0) -> Sequence[Conversation]:
        """The question's conversations in order, read from disk as they are indexed."""
        return StoredConversations(self._db, run_id, question)

    def effects(self, run_id: str) -> StoredEffects:
        """What a tool session did."""
        return StoredEffects(self._db, run_id)
