import sqlite3
from pathlib import Path

import pytest

from memagent.events import Answered
from memagent.messages import Message, Usage
from memagent.runstore import RunStore
from memagent.runstore.effects import ANSWER, StoredEffects
from memagent.trajectory import Conversation

BINDING = {"agent": "tools", "questions": ["task"]}
SPENT = Usage(calls=1, prompt_tokens=10, completion_tokens=2)
ANSWERED = Answered(answer="42", form_found=True, truncated=False, usage=SPENT)


@pytest.fixture
def store(tmp_path: Path):
    store = RunStore(tmp_path / "runs.sqlite")
    store.create("r1", BINDING, {}, {})
    yield store
    store.close()


@pytest.fixture
def effects(store: RunStore) -> StoredEffects:
    return store.effects("r1")


def test_an_effect_is_made_once(store: RunStore, effects: StoredEffects) -> None:
    begun = effects.begin("act-0")
    assert (begun.body, begun.sent) == (None, 0)
    assert effects.find("act-0") is None
    assert effects.count() == 0
    (event,) = effects.commit("act-0", {"text": "hi"}, SPENT, [ANSWERED])
    assert event.seq == 0
    again = RunStore(store.path).effects("r1").begin("act-0")
    assert again.body == {"text": "hi"}
    assert list(store.events("r1")) == [event]
    assert store.usage("r1") == store.usage("r1", 0) == SPENT
    assert effects.count() == 1


def test_what_was_under_way_is_known(effects: StoredEffects) -> None:
    assert [effects.begin("tool-0-0").sent for _ in range(3)] == [0, 1, 2]
    assert effects.begin("tool-0-0").wasted == 0
    effects.spend("tool-0-0", Usage(retries=2), [])
    begun = effects.begin("tool-0-0")
    assert (begun.sent, begun.wasted) == (0, 2)
    effects.spend("tool-0-0", Usage(repeated=1), [])
    assert effects.begin("tool-0-0").wasted == 2


def test_costs_of_what_came_to_nothing_are_kept(store: RunStore, effects: StoredEffects) -> None:
    effects.begin("act-0")
    effects.spend("act-0", Usage(retries=2), [])
    effects.begin("act-0")
    effects.commit("act-0", {}, SPENT, [])
    assert store.usage("r1") == SPENT + Usage(retries=2)
    assert store.usage("r1", 1) == Usage()


def test_an_answer_ends_a_run(store: RunStore, effects: StoredEffects) -> None:
    assert not store.is_answered("r1")
    effects.begin(ANSWER)
    effects.commit(ANSWER, {"answer": "42"}, Usage(), [ANSWERED])
    assert store.is_answered("r1")
    assert store.state("r1", 1)[0].answer == "42"
    store.set_status("r1", at_work=False)
    assert store.get("r1").status == "finished"


def test_segments_are_read_in_order(effects: StoredEffects) -> None:
    segments = effects.segments()
    assert len(segments) == 0
    whole = [
        Conversation(messages=(Message(role="user", content=f"part {n}"),), kind="act")
        for n in range(12)
    ]
    for number, conversation in enumerate(whole):
        key = f"segment-{number}"
        effects.begin(f"act-{number}")
        effects.begin(key)
        effects.commit(key, conversation.model_dump(mode="json"), Usage(), [])
    effects.begin("segment-99")  # not over yet
    assert list(segments) == whole
    assert segments[-1] == whole[-1]
    assert segments[2:4] == whole[2:4]
    with pytest.raises(IndexError):
        segments[12]


def test_a_run_that_did_nothing_is_dropped(store: RunStore, effects: StoredEffects) -> None:
    effects.begin("act-0")
    assert not store.drop_unread("r1")
    store.remove("r1")
    assert effects.count() == 0
    store.create("r2", BINDING, {}, {})
    assert store.drop_unread("r2")


def test_a_store_of_version_1_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    store = RunStore(path)
    store.create("r1", BINDING, {}, {})
    store.close()
    db = sqlite3.connect(path)
    db.executescript("DROP TABLE effects; PRAGMA user_version = 1;")
    db.close()
    store = RunStore(path)
    assert [run.id for run in store.runs()] == ["r1"]
    store.effects("r1").begin("act-0")
    store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()
