"""Branches: new runs that begin with the memory that stood before a chunk."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memagent import ChatRequest, Limits, MemoryAgent, Result, RunStore, ScriptedModel
from memagent.errors import (
    BudgetError,
    ConfigError,
    DocumentRequired,
    MemagentError,
    RunMismatch,
    RunNotFound,
)
from memagent.events import ChunkRead, Event, MemoryUpdated, RunStarted, Settled
from memagent.messages import Usage
from memagent.prompts import PromptSet

TEXT = "".join(f"Line {n} tells of the number {n * n}, and of little else.\n" for n in range(150))


def hashing(request: ChatRequest) -> str:
    shown = "".join(message.content for message in request.messages) + str(request.seed)
    return f"{request.kind} {hashlib.sha256(shown.encode()).hexdigest()[:12]}."


def agent(
    store: RunStore, reply: Callable[[ChatRequest], str] = hashing, **settings: object
) -> MemoryAgent:
    model = ScriptedModel(reply, window=2048)
    return MemoryAgent(model, store=store, **({"window": 1024} | settings))  # type: ignore[arg-type]


def ask(store: RunStore) -> Result:
    return agent(store).ask(TEXT, "Which number?", run_id="old")


def branch(store: RunStore, before: int, reading: MemoryAgent | None = None) -> Result:
    found = (reading or agent(store)).branch("old", before, document=TEXT, new_id="new")
    assert isinstance(found, Result)
    return found


def test_the_same_settings_give_the_same_run_at_the_price_of_the_rest(store: RunStore) -> None:
    old = ask(store)
    assert old.chunks > 5
    events: list[Event] = []
    new = agent(store).branch("old", 3, document=TEXT, new_id="new", on_event=events.append)
    assert isinstance(new, Result)
    assert (new.answer, new.memory, new.chunks) == (old.answer, old.memory, old.chunks)
    assert new.usage.calls == old.usage.calls - 3 == old.chunks + 1 - 3
    assert list(new.trajectory.conversations) == list(old.trajectory.conversations)
    assert events == list(store.events("new"))
    assert [event.seq for event in events] == list(range(len(events)))
    started, *rest = events
    assert isinstance(started, RunStarted)
    assert (started.run_id, started.origin, started.before) == ("new", "old", 3)

    def bare(event: Event) -> Event:
        paid = isinstance(event, MemoryUpdated) and event.chunk < 3
        return event.model_copy(update={"seq": 0} | ({"usage": Usage()} if paid else {}))

    assert list(map(bare, rest)) == list(map(bare, list(store.events("old"))[1:]))


def test_its_events_are_numbered_anew(store: RunStore) -> None:
    agent(store, limits=Limits(calls=2)).ask(TEXT, "Which number?", run_id="old")
    agent(store).resume("old", TEXT)  # which leaves an event that is not copied
    branch(store, 4)
    seqs = [event.seq for event in store.events("new")]
    assert seqs == list(range(len(seqs)))


def test_the_old_run_stays_and_may_be_removed(store: RunStore) -> None:
    before = ask(store).to_dict(), list(store.events("old"))
    branch(store, 2)
    assert (agent(store).resume("old").to_dict(), list(store.events("old"))) == before  # type: ignore[union-attr]
    store.remove("old")
    again = agent(store).resume("new")
    assert isinstance(again, Result)
    assert again.usage.calls == again.chunks - 1
    assert len(list(again.trajectory.conversations)) == again.chunks + 1


def test_a_branch_is_repeated_after_its_origin_was_removed(store: RunStore) -> None:
    ask(store)
    new = branch(store, 2)
    store.remove("old")
    assert branch(store, 2).to_dict() == new.to_dict()
    with pytest.raises(RunNotFound, match="no run 'old'"):
        agent(store).branch("old", 2, document=TEXT)


def test_a_refused_branch_leaves_no_run(store: RunStore) -> None:
    ask(store)
    with pytest.raises(RunMismatch, match="the document has changed") as refused:
        agent(store).branch("old", 2, document="x" + TEXT, new_id="new")
    assert refused.value.run_id is None
    assert store.find("new") is None


def test_another_model_wording_and_sizes_read_on_from_the_memory(store: RunStore) -> None:
    old = ask(store)
    memory = agent(store).resume("old").trajectory.conversations[2].messages[-1].content  # type: ignore[union-attr]
    seen: list[ChatRequest] = []

    def reply(request: ChatRequest) -> str:
        seen.append(request)
        return "Other."

    other = agent(store, reply, window=1536, chunk_tokens=500, seed=5)
    found = other.branch("old", 3, "How large is it?", document=TEXT)
    assert isinstance(found, Result)
    assert (found.question, found.answer) == ("How large is it?", "Other.")
    assert seen[0].parts["memory"] == memory
    assert {request.parts["question"] for request in seen} == {"How large is it?"}
    assert found.usage.calls == len(seen) < old.usage.calls - 3
    chunks = [e for e in store.events(found.run_id) if isinstance(e, ChunkRead)]
    assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
    assert chunks[-1].last
    assert chunks[-1].end == len(TEXT)


def test_after_the_last_chunk_only_the_answer_is_asked_for(store: RunStore) -> None:
    old = ask(store)
    new = agent(store).branch("old", old.chunks, "Which one then?")
    assert isinstance(new, Result)
    assert (new.memory, new.usage.calls) == (old.memory, 1)


def test_a_reading_that_stopped_early_reads_on(store: RunStore) -> None:
    early = agent(store, lambda _: "It is 9.\n[done]", gate="exit")
    assert early.ask(TEXT, "Which number?", run_id="old").chunks == 1
    new = branch(store, 1)
    assert new.chunks > 5
    assert new.stop_reason == "answered"
    assert not any(isinstance(event, Settled) for event in store.events("new"))


def test_several_questions_and_a_file(store: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(TEXT)
    old = agent(store).ask_many(path, ["Which?", "How many?"], run_id="old")
    new = agent(store).branch("old", 2)
    assert isinstance(new, list)
    assert [each.answer for each in new] == [each.answer for each in old]
    with pytest.raises(RunMismatch, match="has 2 questions with a memory each, got 1"):
        agent(store).branch("old", 2, "Which?")
    path.write_text(TEXT.replace("Line 1 ", "Line one "))
    with pytest.raises(RunMismatch, match="the document has changed"):
        agent(store).branch("old", 2, new_id="changed")


def test_a_branch_is_resumed_and_is_bound_to_its_beginning(store: RunStore) -> None:
    old = ask(store)
    stopped = branch(store, 3, agent(store, limits=Limits(calls=2)))
    assert (stopped.stop_reason, stopped.usage.calls) == ("limit", 2)
    with pytest.raises(RunMismatch, match=r"branch\.before was 3, is 2"):
        branch(store, 2)
    with pytest.raises(RunMismatch, match=r"branch\.before was None, is 2"):
        agent(store).branch("old", 2, document=TEXT, new_id="old")
    with pytest.raises(RunMismatch, match=r"branch\.before was 3, is None"):
        agent(store).ask(TEXT, "Which number?", run_id="new")
    again = agent(store).resume("new", TEXT)
    assert isinstance(again, Result)
    assert (again.answer, again.usage.calls) == (old.answer, old.usage.calls - 3)
    assert branch(store, 3).to_dict() == again.to_dict()


def test_a_summary_stays_a_summary_when_it_is_resumed_or_branched(store: RunStore) -> None:
    sizes: dict[str, Any] = {"window": 2048, "chunk_tokens": 400}
    whole = agent(store, **sizes).summarize(TEXT, run_id="whole")
    agent(store, limits=Limits(calls=3), **sizes).summarize(TEXT, run_id="old")
    agent(store, limits=Limits(calls=2), **sizes).branch("old", 2, document=TEXT, new_id="new")
    for run_id in ("old", "new"):
        again = agent(store, reread=2, **sizes).resume(run_id, TEXT)
        assert isinstance(again, Result)
        assert (again.answer, again.memory) == (whole.answer, whole.memory)
    mine = agent(store, prompts="boxed", **sizes)
    assert isinstance(again := mine.resume("old"), Result)
    assert again.answer == whole.answer
    mine.branch("old", 2, document=TEXT, new_id="mine")
    assert store.get("mine").binding["prompts"].startswith("boxed:")
    with pytest.raises(RunMismatch, match="prompts was 'boxed:"):
        agent(store, **sizes).resume("mine")


def test_a_prompt_set_that_is_called_summary_is_kept(store: RunStore, tmp_path: Path) -> None:
    (file := tmp_path / "mine.toml").write_text(
        PromptSet.load("plain").source.replace('name = "plain"', 'name = "summary"')
    )
    settings: dict[str, Any] = {"prompts": file, "reread": 2}
    old = agent(store, limits=Limits(calls=3), **settings).ask(TEXT, "Which?", run_id="old")
    again = agent(store, **settings).resume("old", TEXT)
    assert isinstance(again, Result)
    assert (old.answer, again.answer is None) == (None, False)
    branched = branch(store, 2, agent(store, **settings))
    assert branched.answer == again.answer
    assert store.get("new").binding == store.get("old").binding | {
        "branch": {"run": "old", "before": 2}
    }


def test_a_branch_that_was_killed_before_its_copy_is_made_whole(store: RunStore) -> None:
    old = ask(store)
    branch(store, 3)
    record = store.get("new")
    store.remove("new")
    store.create("new", record.binding, record.settings, record.source)
    again = agent(store).resume("new", TEXT)
    assert isinstance(again, Result)
    assert (again.answer, again.usage.calls) == (old.answer, old.usage.calls - 3)


@pytest.mark.parametrize("before", [0, -1, 99, 10**30, 1.5, "2", None, True])
def test_chunks_that_were_not_read(store: RunStore, tmp_path: Path, before: Any) -> None:
    (file := tmp_path / "text.txt").write_text(TEXT)
    agent(store).ask(file, "Which number?", run_id="old")
    for document in (TEXT, None):
        with pytest.raises(ConfigError, match=f"before={before!r}: run 'old' read"):
            agent(store).branch("old", before, document=document, new_id="new")
        assert store.find("new") is None


def test_what_stands_against_a_branch_is_said_before_it_exists(store: RunStore) -> None:
    with pytest.raises(RunNotFound, match="no run 'old'"):
        branch(store, 1)
    long = agent(store, lambda request: "A long memory. " * 6)
    long.ask(TEXT, "Which number?", run_id="old")
    failures: list[tuple[type[MemagentError], str, MemoryAgent, str | None]] = [
        (DocumentRequired, "came from no file", agent(store), None),
        (BudgetError, r"give memory_tokens=\d+", agent(store, memory_tokens=24), TEXT),
    ]
    for kind, words, reading, document in failures:
        with pytest.raises(kind, match=words):
            reading.branch("old", 1, document=document, new_id="new")
        assert store.find("new") is None
