"""A file of an earlier version becomes one of this version: nothing in it is lost, whatever happens meanwhile."""

import json
import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.runstore.version2 import FILES, Finished, cases, content, restored, rows

from memagent.events import event_adapter
from memagent.messages import Usage
from memagent.runstore import Begun, RunStore
from memagent.trajectory import Conversation

FINISHED = [case for case in cases() if case.status == "finished"]


def usage_of(found: list[dict[str, Any]]) -> Usage:
    return sum((Usage.model_validate_json(row["usage"] or "{}") for row in found), Usage())


def conversation_of(row: dict[str, Any]) -> Conversation:
    """A conversation of version 2, with its chunk's text."""
    fields = json.loads(row["conversation"])
    if row["hole"] is not None:
        place, at = map(int, row["hole"].split(":"))
        message = fields["messages"][place]
        message["content"] = message["content"][:at] + row["text"] + message["content"][at:]
    return Conversation.model_validate(fields)


@pytest.fixture(params=FILES)
def migrated(request: pytest.FixtureRequest, tmp_path: Path):
    """A store that was migrated, and the file as version 2 left it."""
    path = restored(request.param, tmp_path)
    before = tmp_path / "before.sqlite"
    shutil.copy(path, before)
    store = RunStore(path)
    yield store, before
    store.close()


# --- what is there afterwards


def test_runs_and_their_logs_stay_as_they_were(migrated: tuple[RunStore, Path]) -> None:
    store, before = migrated
    runs = rows(before, "SELECT * FROM runs ORDER BY created DESC, id DESC")
    assert [run.id for run in store.runs()] == [row["id"] for row in runs]
    for row in runs:
        run = store.get(row["id"])
        assert (run.created, run.updated, run.status) == (
            row["created"], row["updated"], row["status"],
        )  # fmt: skip
        for name in ("binding", "settings", "source"):
            assert getattr(run, name) == json.loads(row[name])
        log = rows(before, "SELECT body FROM events WHERE run = ? ORDER BY seq", run.id)
        assert list(store.events(run.id)) == [event_adapter.validate_json(r["body"]) for r in log]
        assert store.is_answered(run.id) is (run.status == "finished")


def test_costs_stay_as_they_were(migrated: tuple[RunStore, Path]) -> None:
    store, before = migrated
    is_first = rows(before, "PRAGMA user_version") == [{"user_version": 1}]
    for run in store.runs():
        steps = rows(before, "SELECT question, usage FROM steps WHERE run = ?", run.id)
        made = [] if is_first else rows(before, "SELECT usage FROM effects WHERE run = ?", run.id)
        assert store.usage(run.id) == usage_of(steps + made)
        for question in range(len(run.binding["questions"])):
            of_question = [row for row in steps if row["question"] == question]
            assert store.usage(run.id, question) == usage_of(of_question + made)


def test_chunks_updates_and_answers_become_effects(migrated: tuple[RunStore, Path]) -> None:
    store, before = migrated
    for row in rows(before, "SELECT * FROM chunks"):
        body = store.effect(row["run"], f"chunk-{row['chunk']}")
        assert body == {"mark": json.loads(row["mark"]), "text": row["text"]}
    steps = rows(before, "SELECT * FROM steps LEFT JOIN chunks USING (run, chunk) ORDER BY chunk")
    wrote: dict[tuple[str, int], int | None] = {}
    for row in steps:
        run, question, chunk = row["run"], row["question"], row["chunk"]
        is_answer = chunk < 0
        key = f"answer/q{question}" if is_answer else f"update-{chunk}/q{question}"
        body = store.effect(run, key)
        if row["committed"] is None:
            assert store.begin(run, key) == Begun(None, row["sent"], row["unusable"])
            continue
        assert body is not None
        whole = conversation_of(row)
        assert store.conversations(run, question)[chunk] == whole
        assert body["reply"] == {"text": whole.messages[-1].content}
        if is_answer:
            (event,) = [
                e for e in store.events(run) if e.type == "answered" and e.question == question
            ]
            for name in ("answer", "truncated", "form_found"):
                assert body[name] == getattr(event, name)
            continue
        if row["memory"] is not None:
            wrote[run, question] = chunk
        assert body["carried"] == wrote.setdefault((run, question), None)
        assert body["settled"] is bool(row["settled"])
        written = {"memory": row["memory"], "tokens": row["tokens"]}
        found = {name: body[name] for name in ("memory", "tokens") if name in body}
        assert found == ({} if row["memory"] is None else written)


def test_what_a_session_did_stays_under_its_keys(migrated: tuple[RunStore, Path]) -> None:
    store, before = migrated
    if rows(before, "PRAGMA user_version") == [{"user_version": 1}]:
        return
    made = rows(before, "SELECT * FROM effects ORDER BY run, place")
    cut_off = {(row["run"], f"act-{row['key'][5:]}") for row in made if row["key"][:5] == "room-"}
    for row in made:
        run, key = row["run"], row["key"]
        kind = key.split("-")[0]
        if kind not in ("act", "tool", "summary", "early"):
            continue
        body = None if row["body"] is None else json.loads(row["body"])
        if (run, key) in cut_off:
            cut = store.effect(run, key)
            assert cut is not None
            reply = cut["reply"]
            assert reply["finish_reason"] == "length"
            assert "tool_calls" not in reply
            key += "/room"
        if body is not None and kind != "tool" and "failed" not in body:
            body = {"reply": body}
        assert store.effect(run, key) == body
        assert store.begin(run, key).sent == row["sent"]
    for run in {row["run"] for row in made}:
        ended = [
            json.loads(r["body"])
            for r in made
            if r["run"] == run and r["key"] == "answer" and r["body"]
        ]
        said = [
            json.loads(r["body"])
            for r in made
            if r["run"] == run and r["key"][:8] == "segment-" and r["body"]
        ]
        wholes = [Conversation.model_validate(body) for body in said]
        if ended:
            assert list(store.conversations(run)) == wholes
            answer = store.effect(run, "answer/q0")
            assert answer is not None
            assert {name: answer[name] for name in ended[0]} == ended[0]
            assert answer["form_found"] is True
            assert answer["reply"] == {"text": wholes[-1].messages[-1].content}
        else:
            assert list(store.conversations(run)) in (wholes, wholes[:-1])
        assert store.effect(run, "room-0") is None


@pytest.mark.parametrize("case", FINISHED, ids=lambda case: f"{case.file}:{case.run}")
def test_finished_runs_are_finished(case: Finished, tmp_path: Path) -> None:
    store = RunStore(restored(case.file, tmp_path))
    bodies = [store.effect(case.run, f"answer/q{q}") for q in range(len(case.answers))]
    assert tuple(body and body["answer"] for body in bodies) == case.answers
    found = tuple(len(store.conversations(case.run, q)) for q in range(len(case.answers)))
    assert found == case.conversations
    assert (store.usage(case.run).calls, store.last_seq(case.run)) == (case.calls, case.last_seq)
    if case.agent == "tools":
        assert bodies[0] is not None
        assert (bodies[0]["steps"], bodies[0]["summaries"]) == (case.steps, case.summaries)
    for question, memory in enumerate(case.memories):
        _, last = store.latest(case.run, f"update/q{question}") or (0, {})
        written = store.effect(case.run, f"update-{last['carried']}/q{question}")
        assert written is not None
        assert written["memory"] == memory
    store.close()


@pytest.mark.parametrize(
    ("file", "run", "segments"),
    [
        ("tools-ending", "native-segment", 4),
        ("tools-ending", "native-final", 0),
        ("tools-ending", "text-answer", 2),
        ("tools-ending", "native-partial", 1),
        ("tools-ending", "native-last", 0),
        ("tools-stale", "native-roomy-stale", 1),
    ],
)
def test_a_last_conversation_waits_for_its_answer(
    tmp_path: Path, file: str, run: str, segments: int
) -> None:
    # The answer brings it along: it would stand there twice. One that a compaction ended stays.
    store = RunStore(restored(file, tmp_path))
    assert store.count(run, "segment") == segments
    assert not store.is_answered(run)
    store.close()


def test_a_text_with_a_nul_is_whole(tmp_path: Path) -> None:
    path = restored("memory-flying", tmp_path)
    db = sqlite3.connect(path)
    db.execute("UPDATE chunks SET text = 'be' || char(0) || 'hind' WHERE run = 'one' AND chunk = 0")
    db.commit()
    db.close()
    store = RunStore(path)
    assert (store.effect("one", "chunk-0") or {})["text"] == "be\0hind"
    assert "<section>be\0hind</section>" in store.conversations("one")[0].messages[1].content
    store.close()


# --- the copy


@pytest.mark.parametrize(("file", "version"), [("several", 2), ("version1", 1)])
def test_the_file_is_copied_first(tmp_path: Path, file: str, version: int) -> None:
    path = restored(file, tmp_path)
    before = content(path)
    old = os.umask(0)
    try:
        RunStore(path).close()
    finally:
        os.umask(old)
    copy = tmp_path / f"runs.sqlite.version{version}"
    assert content(copy) == before
    assert rows(copy, "PRAGMA user_version") == [{"user_version": version}]
    assert rows(copy, "PRAGMA application_id") == [{"application_id": 0x6D656D61}]
    assert rows(copy, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert rows(path, "PRAGMA user_version") == [{"user_version": 3}]
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {path.name, copy.name, "runs.sqlite.locks"}
    assert not list((tmp_path / "runs.sqlite.locks").iterdir())
    shutil.copy(copy, path)  # whoever wants to go back can, and forth again
    RunStore(path).close()
    assert content(copy) == before


def test_a_new_file_needs_no_copy(tmp_path: Path) -> None:
    for _ in range(2):
        RunStore(tmp_path / "runs.sqlite").close()
    assert [file.name for file in tmp_path.iterdir()] == ["runs.sqlite"]
