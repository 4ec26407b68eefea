import json
import sqlite3
from pathlib import Path

import pytest

from memagent.errors import RunBusy, RunMismatch, RunNotFound
from memagent.events import ChunkRead, Event, MemoryUpdated
from memagent.messages import Message, Usage
from memagent.runstore import RunStore, Step
from memagent.runstore.records import Pending
from memagent.trajectory import Conversation

BINDING = {"questions": ["Why?", "Who?"]}
SOURCE = {"name": "a.txt", "path": "/books/a.txt"}


@pytest.fixture(params=["file", "temporary"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    store = RunStore(tmp_path / "runs.sqlite" if request.param == "file" else None)
    store.create("r1", BINDING, {"model": "m"}, SOURCE)
    yield store
    store.close()


def read(chunk: int) -> ChunkRead:
    return ChunkRead(chunk=chunk, start=chunk * 10, end=chunk * 10 + 10, tokens=5, last=False)


def step(chunk: int | None, question: int = 0, **fields: object) -> Step:
    messages = (
        Message(role="user", content=f"show {chunk}"),
        Message(role="assistant", content="ok"),
    )
    return Step(
        question=question,
        chunk=chunk,
        conversation=Conversation(messages=messages, chunk=chunk),
        usage=Usage(calls=1, prompt_tokens=7, completion_tokens=2),
        **fields,  # type: ignore[arg-type]
    )


def updated(chunk: int, memory: str) -> MemoryUpdated:
    return MemoryUpdated(chunk=chunk, memory=memory, tokens=3, usage=Usage(calls=1))


def test_steps_come_back_as_they_were_committed(store: RunStore) -> None:
    begun, pending = store.begin("r1", 0, [0, 1], mark={"chunk": 0, "end": 10}, events=[read(0)])
    assert pending == [Pending(0, 0), Pending(0, 0)]
    committed = store.commit("r1", step(0, memory="M0", tokens=3), [updated(0, "M0")])
    assert [event.seq for event in [*begun, *committed]] == [0, 1]
    assert list(store.events("r1")) == [*begun, *committed]
    assert list(store.events("r1", after=0)) == committed
    first, second = store.state("r1", 2)
    assert (first.next_chunk, first.memory, first.answer) == (1, "M0", None)
    assert (second.next_chunk, second.memory) == (0, "")
    assert store.mark("r1", 0) == store.last_mark("r1") == {"chunk": 0, "end": 10}
    assert store.mark("r1", 1) is None


def test_a_kept_memory_is_the_last_one_written(store: RunStore) -> None:
    for chunk, memory in enumerate(["M0", None, None]):
        store.begin("r1", chunk, [0])
        store.commit("r1", step(chunk, memory=memory), [])
    store.begin("r1", 3, [0])
    store.commit("r1", step(3, settled=True), [])
    state = store.state("r1", 1)[0]
    assert (state.next_chunk, state.memory, state.settled) == (4, "M0", True)


def test_a_call_without_an_outcome_is_counted(store: RunStore) -> None:
    store.begin("r1", 0, [0, 1])
    store.commit("r1", step(0, question=1), [])
    assert store.begin("r1", 0, [0])[1] == [Pending(sent=1, unusable=0)]
    assert store.begin("r1", 0, [0])[1] == [Pending(sent=2, unusable=0)]
    store.spend(
        "r1", 0, 0, Usage(retries=3, retry_tokens=30), [], unusable=3
    )  # an outcome, if a poor one
    assert store.begin("r1", 0, [0])[1] == [Pending(sent=0, unusable=3)]
    assert store.usage("r1", 0) == Usage(retries=3, retry_tokens=30)


def test_usage_is_that_of_committed_steps(store: RunStore) -> None:
    for question in (0, 1):
        store.begin("r1", 0, [question])
        store.commit("r1", step(0, question=question), [])
    store.begin("r1", 1, [0])  # in flight: not counted
    assert store.usage("r1", 0) == Usage(calls=1, prompt_tokens=7, completion_tokens=2)
    assert store.usage("r1") == Usage(calls=2, prompt_tokens=14, completion_tokens=4)
    assert store.usage("nobody") == Usage()


def test_conversations_are_read_as_they_are_indexed(store: RunStore) -> None:
    for chunk in (0, 1, None):
        store.begin("r1", chunk, [0])
        store.commit("r1", step(chunk, answer="A" if chunk is None else None), [])
    conversations = store.conversations("r1", 0)
    assert [conversation.chunk for conversation in conversations] == [0, 1, None]
    assert conversations[-1].messages[0].content == "show None"
    assert [conversation.chunk for conversation in conversations[1:]] == [1, None]
    assert len(store.conversations("r1", 1)) == 0
    with pytest.raises(IndexError):
        conversations[3]


def test_a_failed_commit_leaves_nothing_behind(store: RunStore) -> None:
    store.begin("r1", 0, [0], events=[read(0)])
    bad: list[Event] = [updated(0, "M"), object()]  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        store.commit("r1", step(0, memory="M"), bad)
    assert len(list(store.events("r1"))) == 1
    assert store.state("r1", 1)[0].next_chunk == 0


def test_runs_are_listed_newest_first_and_removed_whole(store: RunStore) -> None:
    store.create("r2", BINDING, {}, SOURCE)
    store.begin("r2", 0, [0], mark={"chunk": 0}, events=[read(0)])
    for question in (0, 1):
        store.set_status("r1", at_work=False)
        assert store.get("r1").status == "stopped"
        store.begin("r1", None, [question])
        store.commit("r1", step(None, question=question, answer="A"), [])
    store.set_status("r1", at_work=False)
    assert [(run.id, run.status) for run in store.runs()] == [("r2", "running"), ("r1", "finished")]
    assert store.get("r1").source == SOURCE
    store.remove("r2")
    assert store.find("r2") is None
    assert list(store.events("r2")) == []
    assert store.last_mark("r2") is None
    with pytest.raises(RunNotFound, match=r"'r2'.*memagent runs"):
        store.remove("r2")
    with pytest.raises(RunMismatch, match=r"'r1' is taken"):
        store.create("r1", BINDING, {}, SOURCE)


def test_a_run_at_work_is_not_removed(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    store.create("r1", BINDING, {}, SOURCE)
    with store.hold("r1"), pytest.raises(RunBusy):
        store.remove("r1")
    store.remove("r1")
    assert not list((tmp_path / "runs.sqlite.locks").iterdir())
    store.close()


def test_two_connections_share_one_file(tmp_path: Path) -> None:
    one, two = RunStore(tmp_path / "runs.sqlite"), RunStore(tmp_path / "runs.sqlite")
    one.create("r1", BINDING, {}, SOURCE)
    two.create("r2", BINDING, {}, SOURCE)
    assert {run.id for run in one.runs()} == {run.id for run in two.runs()} == {"r1", "r2"}
    one.close()
    two.close()


def test_the_schema_on_disk_is_what_version_2_promises(tmp_path: Path) -> None:
    RunStore(tmp_path / "runs.sqlite").close()
    db = sqlite3.connect(tmp_path / "runs.sqlite")
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"runs", "chunks", "steps", "events", "effects"}
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert json.dumps(BINDING)
    db.close()


@pytest.mark.parametrize("number", [0, 1, 2, 300])
def test_the_last_place_in_the_log(store: RunStore, number: int) -> None:
    store.log("r1", [read(chunk) for chunk in range(number)])
    assert store.last_seq("r1") == number - 1
    assert store.last_seq("nobody") == -1
    assert [event.seq for event in store.events("r1")] == list(range(number))


def test_a_run_that_read_nothing_is_dropped(store: RunStore) -> None:
    store.create("r2", BINDING, {}, SOURCE)
    store.begin("r2", 0, [0], mark={"chunk": 0}, events=[read(0)])
    assert store.drop_unread("r1")
    assert not store.drop_unread("r2")
    assert [run.id for run in store.runs()] == ["r2"]


def test_what_a_useless_call_cost_is_kept(store: RunStore) -> None:
    store.begin("r1", 0, [0])
    store.spend("r1", 0, 0, Usage(retries=3, retry_tokens=30), [])
    assert store.usage("r1") == Usage(retries=3, retry_tokens=30)
    assert store.state("r1", 1)[0].next_chunk == 0
    store.commit("r1", step(0, memory="M"), [])
    assert store.usage("r1").calls == 1
    assert store.usage("r1").retries == 3
