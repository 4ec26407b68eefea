"""What every run store does: a file, one that survives power cuts, and a temporary one."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memagent.errors import RunBusy, RunMismatch, RunNotFound, StoreError
from memagent.events import Answered, ChunkRead, Event
from memagent.messages import Message, Usage
from memagent.runstore import Begun, RunStore, split_key
from memagent.runstore.conversations import without_text
from memagent.trajectory import Conversation

BINDING = {"agent": "memory", "questions": ["Why?", "Who?"]}
SOURCE = {"name": "a.txt", "path": "/books/a.txt"}
SPENT = Usage(calls=1, prompt_tokens=7, completion_tokens=2)


@pytest.fixture(params=["file", "durable", "temporary"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    path = None if request.param == "temporary" else tmp_path / "runs.sqlite"
    store = RunStore(path, durable=request.param == "durable")
    store.create("r1", BINDING, {"model": "m"}, SOURCE)
    yield store
    store.close()


def read(chunk: int) -> ChunkRead:
    return ChunkRead(chunk=chunk, start=chunk * 10, end=chunk * 10 + 10, tokens=5, last=False)


def answered(question: int = 0) -> Answered:
    return Answered(question=question, answer="42", form_found=True, truncated=False, usage=SPENT)


def conversation(*contents: str, chunk: int | None = None) -> Conversation:
    return Conversation(
        messages=tuple(Message(role="user", content=content) for content in contents), chunk=chunk
    )


def dumped(whole: Conversation, **fields: Any) -> dict[str, Any]:
    return {"conversation": whole.model_dump(mode="json"), **fields}


# --- keys


@pytest.mark.parametrize(
    ("key", "kind", "number"),
    [
        ("chunk-12", "chunk", 12),
        ("update-12/q0", "update/q0", 12),
        ("update-3/q11", "update/q11", 3),
        ("answer/q0", "answer/q0", 0),
        ("act-3", "act", 3),
        ("act-3/room", "act/room", 3),
        ("tool-3-0", "tool-0", 3),
        ("summary-1", "summary", 1),
    ],
)
def test_a_key_is_a_kind_with_a_number_in_it(key: str, kind: str, number: int) -> None:
    assert split_key(key) == (kind, number)


@pytest.mark.parametrize("key", ["", "-1", "3-act", "/q0"])
def test_what_is_no_key_is_refused(store: RunStore, key: str) -> None:
    with pytest.raises(ValueError, match="effect key"):
        store.begin("r1", key)


# --- effects


def test_an_effect_is_made_once(store: RunStore) -> None:
    assert store.begin("r1", "act-0") == Begun(None, sent=0, wasted=0)
    assert store.effect("r1", "act-0") is None
    (event,) = store.commit("r1", "act-0", {"text": "hi", "new": [1]}, SPENT, [answered()])
    assert event.seq == 0
    assert store.begin("r1", "act-0").body == {"text": "hi", "new": [1]}
    assert store.effect("r1", "act-0") == {"text": "hi", "new": [1]}
    assert list(store.events("r1")) == [event]


def test_what_was_in_flight_is_known(store: RunStore) -> None:
    assert [store.begin("r1", "tool-0-0").sent for _ in range(3)] == [0, 1, 2]
    store.spend("r1", "tool-0-0", Usage(retries=2))
    assert store.begin("r1", "tool-0-0") == Begun(None, sent=0, wasted=0)
    assert store.begin("r1", "tool-0-1").sent == 0


def test_useless_replies_add_up(store: RunStore) -> None:
    store.begin("r1", "act-0")
    store.spend("r1", "act-0", Usage(retries=1), wasted=1, again=True)
    assert store.begin("r1", "act-0") == Begun(None, sent=1, wasted=1)
    (event,) = store.spend("r1", "act-0", Usage(retries=2), [answered()], wasted=2)
    assert event.seq == 0
    assert store.begin("r1", "act-0") == Begun(None, sent=0, wasted=3)
    assert store.usage("r1") == Usage(retries=3)
    assert store.effect("r1", "act-0") is None


def test_what_was_spent_before_counts_with_what_is_committed(store: RunStore) -> None:
    store.begin("r1", "update-0/q0")
    store.spend("r1", "update-0/q0", Usage(retries=3, retry_tokens=30))
    store.begin("r1", "update-0/q0")
    store.commit("r1", "update-0/q0", {}, SPENT)
    assert store.usage("r1") == SPENT + Usage(retries=3, retry_tokens=30)


def test_what_follows_from_others_is_recorded_once(store: RunStore) -> None:
    (event,) = store.commit("r1", "chunk-0", {"text": "one"}, events=[read(0)])
    assert store.commit("r1", "chunk-0", {"text": "two"}, events=[read(0)]) == []
    assert store.effect("r1", "chunk-0") == {"text": "one"}
    store.begin("r1", "answer/q0")
    assert [e.seq for e in store.commit("r1", "answer/q0", {}, events=[answered()])] == [
        event.seq + 1
    ]
    assert store.count("r1", "answer/q0") == 1


def test_further_effects_may_be_begun_but_not_committed_before(store: RunStore) -> None:
    store.begin("r1", "answer/q0")
    store.commit("r1", "draft/q0", {}, also={"answer/q0": {"answer": "42"}})
    with pytest.raises(StoreError, match="'answer/q0' is committed already"):
        store.commit("r1", "draft/q1", {}, also={"answer/q0": {"answer": "43"}})
    assert store.effect("r1", "answer/q0") == {"answer": "42"}
    assert store.effect("r1", "draft/q1") is None


def test_a_failed_commit_leaves_nothing_behind(store: RunStore) -> None:
    store.begin("r1", "act-0")
    bad: list[Event] = [answered(), object()]  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        store.commit("r1", "act-0", {}, SPENT, bad)
    with pytest.raises(AttributeError):
        store.commit("r1", "act-1", {}, events=bad)
    assert list(store.events("r1")) == []
    assert store.count("r1", "act") == 0
    assert store.usage("r1") == Usage()
    assert store.begin("r1", "act-0").sent == 1


def test_the_latest_of_a_kind(store: RunStore) -> None:
    assert store.latest("r1", "update/q1") is None
    for number in (*range(10), 11, 10):
        store.commit("r1", f"update-{number}/q1", {"memory": number})
    store.begin("r1", "update-12/q1")
    store.commit("r1", "update-99/q11", {})
    assert store.latest("r1", "update/q1") == (11, {"memory": 11})
    assert store.count("r1", "update/q1") == 12
    assert store.count("r1", "update") == 0


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "слово 🙂", '"\\u0000'])
def test_any_text_comes_back(store: RunStore, text: str) -> None:
    store.commit("r1", "chunk-0", {"text": text})
    whole = conversation(f"<{text}>", chunk=0)
    store.commit("r1", "update-0/q0", without_text(dumped(whole, memory=text), text))
    assert store.latest("r1", "chunk") == (0, {"text": text})
    assert store.conversations("r1")[0] == whole
    assert text not in store.effect("r1", "update-0/q0")["conversation"]["messages"][0]["content"]  # type: ignore[index]


# --- costs


def test_costs_are_those_of_a_question_or_of_all(store: RunStore) -> None:
    for question in (0, 1, 11):
        store.begin("r1", f"update-0/q{question}")
        store.commit("r1", f"update-0/q{question}", {}, SPENT)
        store.commit("r1", f"answer/q{question}", {}, Usage(calls=question))
    store.begin("r1", "update-1/q0")  # in flight: not counted
    store.commit("r1", "chunk-0", {})
    assert store.usage("r1", 0) == SPENT
    assert store.usage("r1", 1) == SPENT + Usage(calls=1)
    assert store.usage("r1", 2) == Usage()
    assert store.usage("r1") == SPENT + SPENT + SPENT + Usage(calls=12)
    assert store.usage("nobody") == Usage()


@pytest.mark.parametrize("absurd", [10**19, 2**62, 10**400])
def test_absurd_figures_can_be_added_up(store: RunStore, absurd: int) -> None:
    for number in range(3):
        store.commit("r1", f"update-{number}/q0", {}, Usage(calls=1, prompt_tokens=absurd))
    assert store.usage("r1").calls == 3
    assert store.usage("r1").prompt_tokens == 2**63 - 1  # SQLite's largest
    assert store.payments("r1")[0][1].prompt_tokens == absurd


def test_a_session_is_one_question(store: RunStore) -> None:
    for key in ("act-0", "act-0/room", "tool-0-0", "summary-0", "early-0", "answer/q0"):
        store.commit("r1", key, {}, SPENT)
    assert store.usage("r1", 0).calls == 6
    assert store.usage("r1", 1) == Usage()


# --- conversations


def test_conversations_are_in_order_and_whole(store: RunStore) -> None:
    wholes = [conversation(f"<chunk>text {chunk}</chunk>", chunk=chunk) for chunk in range(12)]
    for chunk, whole in enumerate(wholes):
        store.commit("r1", f"chunk-{chunk}", {"text": f"text {chunk}"})
        for question in (0, 1):
            store.begin("r1", f"update-{chunk}/q{question}")
            store.commit("r1", f"update-{chunk}/q{question}", dumped(whole))
    wholes.append(conversation("the answer"))
    store.begin("r1", "update-12/q0")
    store.commit("r1", "answer/q0", dumped(wholes[-1]))
    found = store.conversations("r1")
    assert list(found) == wholes
    assert [found[index] for index in (0, 11, 12, -1)] == [wholes[i] for i in (0, 11, 12, 12)]
    assert found[-2:] == wholes[-2:]
    assert found[2:8:3] == wholes[2:8:3]
    assert len(store.conversations("r1", 1)) == 12
    assert len(store.conversations("r1", 2)) == 0
    for index in (13, -14):
        with pytest.raises(IndexError):
            found[index]


def test_the_parts_of_a_session_are_in_order(store: RunStore) -> None:
    wholes = [conversation(f"part {number}") for number in range(12)]
    for number, whole in enumerate(wholes[:-1]):
        store.begin("r1", f"act-{number}")
        store.commit("r1", f"segment-{number}", dumped(whole))
    store.commit("r1", "answer/q0", dumped(wholes[-1], answer="42"))
    assert list(store.conversations("r1")) == wholes
    assert list(store.conversations("r1", 1)) == []


def test_the_text_of_a_chunk_is_kept_once(store: RunStore) -> None:
    text = "a long section of the document " * 20
    store.commit("r1", "chunk-3", {"mark": {"digest": "d"}, "text": text})
    whole = conversation("Read.", f"<section>{text}</section>", text, chunk=3)
    body = dumped(whole, memory="M")
    store.commit("r1", "update-3/q0", without_text(body, text))
    kept = store.effect("r1", "update-3/q0")
    assert kept is not None
    assert kept["hole"] == "1:9"
    assert [m["content"] for m in kept["conversation"]["messages"]] == [
        "Read.", "<section></section>", text,
    ]  # fmt: skip
    assert kept["memory"] == "M"
    assert "hole" not in body, "the caller's body was changed"
    assert store.conversations("r1")[3] == whole


# --- runs


def test_runs_are_listed_newest_first(store: RunStore) -> None:
    for name in ("r2", "r3"):
        store.create(name, BINDING, {}, SOURCE)
    for question in (0, 1):
        store.set_status("r1", at_work=False)
        assert store.get("r1").status == "stopped"
        assert not store.is_answered("r1")
        store.begin("r1", f"answer/q{question}")
        assert not store.is_answered("r1")
        store.commit("r1", f"answer/q{question}", {"answer": "42"})
    store.set_status("r1", at_work=False)
    assert store.is_answered("r1")
    assert not store.is_answered("nobody")
    listed = [(run.id, run.status) for run in store.runs()]
    assert listed == [("r3", "running"), ("r2", "running"), ("r1", "finished")]
    assert [run.id for run in store.runs(limit=2)] == ["r3", "r2"]
    assert [run.id for run in store.runs(status="finished")] == ["r1"]
    assert [run.id for run in store.runs(limit=1, status="running")] == ["r3"]
    assert store.runs(status="stopped") == store.runs(limit=0) == []
    assert store.get("r1").source == SOURCE
    assert store.get("r1").binding == BINDING


def test_a_run_is_removed_whole(store: RunStore) -> None:
    store.create("r2", BINDING, {}, SOURCE)
    store.commit("r2", "chunk-0", {"text": "t"}, events=[read(0)])
    store.remove("r2")
    assert store.find("r2") is None
    assert list(store.events("r2")) == []
    assert store.effect("r2", "chunk-0") is None
    hint = f"memagent runs --store {store.path}` lists them" if store.path else "runs end with it"
    with pytest.raises(RunNotFound, match=rf"'r2'.*{re.escape(hint)}"):
        store.remove("r2")
    number: Any = 5
    with pytest.raises(RunNotFound, match="no run 5 in"):
        store.get(number)
    with pytest.raises(RunMismatch, match=r"'r1' is taken"):
        store.create("r1", BINDING, {}, SOURCE)


def test_a_run_without_effects_is_dropped(store: RunStore) -> None:
    store.create("r2", BINDING, {}, SOURCE)
    store.log("r2", [read(0)])
    assert store.drop_unread("r2")
    store.begin("r1", "act-0")
    assert not store.drop_unread("r1")
    store.commit("r1", "chunk-0", {})
    assert store.drop_unread("r1", unanswered=True)
    store.create("r1", BINDING, {}, SOURCE)
    store.commit("r1", "act-0", {})
    assert not store.drop_unread("r1", unanswered=True)
    assert [run.id for run in store.runs()] == ["r1"]


def test_a_run_at_work_is_not_removed(store: RunStore) -> None:
    with store.hold("r1"), pytest.raises(RunBusy, match="'r1'"):
        store.remove("r1")
    with store.hold("r1"), store.hold("r2"):
        pass
    store.remove("r1")
    assert store.runs() == []


# --- the log


@pytest.mark.parametrize("number", [0, 1, 2, 300])
def test_events_are_numbered(store: RunStore, number: int) -> None:
    logged = store.log("r1", [read(chunk) for chunk in range(number)])
    assert [event.seq for event in store.events("r1")] == list(range(number))
    assert list(store.events("r1")) == logged
    assert list(store.events("r1", after=0)) == logged[1:]
    assert store.last_seq("r1") == number - 1
    assert store.last_seq("nobody") == -1


def test_threads_share_a_store(store: RunStore) -> None:
    def work(question: int) -> None:
        for number in range(20):
            store.begin("r1", f"update-{number}/q{question}")
            store.commit("r1", f"update-{number}/q{question}", {}, SPENT, [read(number)])

    threads = [threading.Thread(target=work, args=(question,)) for question in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.seq for event in store.events("r1")] == list(range(80))
    assert store.usage("r1").calls == 80
