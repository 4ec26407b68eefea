"""reread: a question that the memory doesn't settle has what it lost recalled, and a few chunks read again."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memagent import (
    ChatRequest,
    Limits,
    MemoryAgent,
    Result,
    RunStore,
    ScriptedModel,
    StopReason,
)
from memagent.cli.exits import Outcome
from memagent.cli.fact import show_fact, trace
from memagent.cli.history import History
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.errors import ConfigError, RunMismatch
from memagent.events import MemoryUpdated, Rereading
from memagent.memory import ranking
from memagent.memory.ranking import rank
from memagent.messages import Usage
from memagent.prompts import PromptSet
from memagent.terminal import Paper
from memagent_viewer.reading import Reading

NAMES = ("amber", "birch", "coral", "delta", "ember", "flint", "grove", "haven")
TEXT = "".join(
    f"The number of {name} is {1000 + place}. "
    + "".join(f"Line {place * 100 + n} says little of anything. " for n in range(40))
    for place, name in enumerate(NAMES)
)
QUESTION = "What is the number of coral?"


class Forgetful:
    """Notes the last fact of each chunk and forgets the ones before; knows if it has the one asked for."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    def __call__(self, request: ChatRequest) -> str:
        self.requests.append(request)
        memory, parts = request.parts["memory"], request.parts
        wanted = parts["question"].removeprefix("What is the number of ").rstrip("?")
        if request.kind == "answer":
            held = [s for s in memory.splitlines() if f"number of {wanted} " in s]
            return (held or [parts.get("unsettled", "unknown")])[-1]
        facts = [s.strip() for s in parts["chunk"].split(". ") if "number of" in s]
        asked = [s for s in facts if f" {wanted} " in s]
        return (
            f"{(asked or facts or ['Nothing.'])[-1]}."
            if not asked or self._again(parts)
            else "Fog."
        )

    def _again(self, parts: Any) -> bool:
        """Whether the chunk was shown before: only then is the fact noted."""
        shown = [r.parts.get("chunk") for r in self.requests[:-1] if r.kind == "update"]
        return parts["chunk"] in shown


def agent(respond: Callable[[ChatRequest], Any], store: Any = None, **settings: Any) -> MemoryAgent:
    settings = {"chunk_tokens": 900, "degenerate": "take", "reread": 4} | settings
    return MemoryAgent(ScriptedModel(respond, window=3000), store=store, **settings)


def free(result: Result) -> tuple[Any, ...]:
    return result.answer, result.memory, result.stop_reason, result.chunks, result.rereads


def test_an_unsettled_question_is_answered_after_rereading(store: RunStore) -> None:
    model = Forgetful()
    assert agent(Forgetful(), reread=0).ask(TEXT, QUESTION).answer == "unknown"
    result = agent(model, store, reread=1).ask(TEXT, QUESTION, run_id="r1")
    assert result.answer == "The number of coral is 1002."
    assert (result.rereads, result.stop_reason) == (1, StopReason.ANSWERED)
    (rereading,) = store.events("r1", kind="rereading")
    assert isinstance(rereading, Rereading)
    (chunk,) = rereading.chunks
    body = store.effect("r1", f"chunk-{chunk}")
    assert body is not None
    assert "number of coral" in body["text"]
    # Draft, one update, answer; the last prompt is that of a run without rereading.
    kinds = [(r.kind, "unsettled" in r.parts) for r in model.requests[result.chunks :]]
    assert kinds == [("answer", True), ("update", False), ("answer", False)]
    assert result.usage.calls == result.chunks + 3
    told = [e.type for e in store.events("r1")][-3:]
    assert told == ["rereading", "memory_updated", "answered"]
    # The trajectory has every conversation as it was sent.
    sent = [request.messages for request in model.requests]
    assert [c.messages[:-1] for c in result.trajectory.conversations] == sent


def test_a_settled_question_costs_nothing_more(store: RunStore) -> None:
    def settled(request: ChatRequest) -> str:
        return "It is 7." if request.kind == "answer" else request.parts["chunk"][:30]

    usual, careful = ScriptedModel(settled, window=3000), ScriptedModel(settled, window=3000)
    options: Any = {"chunk_tokens": 900, "degenerate": "take"}
    before = MemoryAgent(usual, store=None, **options).ask(TEXT, QUESTION)
    after = MemoryAgent(careful, store=store, reread=4, **options).ask(TEXT, QUESTION, run_id="r1")
    assert after.usage.calls == before.usage.calls
    assert free(after) == free(before)
    *updates, answer = [request.messages for request in usual.requests]
    *ours, draft = [request.messages for request in careful.requests]
    assert ours == updates
    note = f"\n\n{PromptSet.load('plain').unsettled_note}"
    assert draft[0].content.replace(note, "") == answer[0].content
    assert note in draft[0].content
    assert list(after.trajectory.conversations)[-1].messages[:-1] == draft
    assert store.get("r1").status == "finished"
    again = MemoryAgent(ScriptedModel([]), store=store, reread=4, window=3000, **options)
    assert again.ask(TEXT, QUESTION, run_id="r1").answer == "It is 7."


def test_what_past_memories_held_is_recalled(store: RunStore) -> None:
    def notes(request: ChatRequest) -> str:
        parts = request.parts
        if request.kind == "answer":
            held = "coral is 1002" in parts["memory"]
            return "1002" if held else parts.get("unsettled", "?")
        facts = [s.strip() for s in parts["chunk"].split(". ") if "number of" in s]
        return "\n".join(f"{fact}." for fact in facts) or parts["memory"]

    result = agent(notes, store, reread=1).ask(TEXT, QUESTION, run_id="r1")
    (rereading,) = store.events("r1", kind="rereading")
    assert isinstance(rereading, Rereading)
    assert "The number of coral is 1002." in rereading.recalled
    updated = [e for e in store.events("r1") if isinstance(e, MemoryUpdated)]
    assert rereading.recalled[0] not in updated[result.chunks - 1].memory
    # Put behind the memory: the chunk read again was shown with both.
    shown = list(result.trajectory.conversations)[-2].messages[0].content
    assert "\n".join((updated[result.chunks - 1].memory, *rereading.recalled)) in shown


def test_whoever_follows_a_runs_events_has_the_memory_that_answered(
    store: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    def notes(request: ChatRequest) -> str:
        parts, fact = request.parts, "The number of coral is 1002."
        if request.kind == "answer":
            return "1002" if fact in parts["memory"] else parts.get("unsettled", "?")
        if parts["memory"] == fact:
            return "Fog."
        return fact if fact in parts["chunk"] and not parts["memory"] else "[keep]"

    result = agent(notes, store, reread=1, gate="update").ask(TEXT, QUESTION, run_id="r1")
    assert result.memory == "Fog.\nThe number of coral is 1002."
    record = store.get("r1")
    assert Tally.of(store, record).notebooks[0].memory == result.memory
    first, second = trace(store, "r1", 0, "coral is 1002").stays
    assert first["lost"] is not None
    assert (second["chunk"], second["lost"]) == (None, None)
    outcome = Outcome(Display.PLAIN)
    show_fact(store, record, [0], "coral is 1002", outcome)
    assert "enters the memory, recalled; stays to the end" in capsys.readouterr().out
    reading, history, later = Reading([QUESTION]), list(store.events("r1")), "The end."
    more = MemoryUpdated(chunk=0, memory=f"{result.memory}\n{later}", tokens=9, usage=Usage())
    History(Paper(colour=False)).write([*history[:-1], more])
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if "coral" in line or later in line][-1] == f"  + {later}"
    for event in [*history, more.model_copy(update={"memory": result.memory})]:
        reading.add(event)
    assert "read again: memory unchanged" in reading.data()["books"][0]["answer"]["notes"][-1]


def interrupted(model: Forgetful, after: int) -> Callable[[ChatRequest], Any]:
    """Fails for good at a call, once."""
    failed = [False]

    def respond(request: ChatRequest) -> Any:
        if len(model.requests) == after and not failed[0]:
            failed[0] = True
            raise RuntimeError
        return model(request)

    return respond


@pytest.mark.parametrize("limited", [False, True])
def test_a_run_resumes_after_every_call(store: RunStore, *, limited: bool) -> None:
    whole = RunStore(None)
    reference = agent(Forgetful(), whole, reread=3).ask(TEXT, QUESTION, run_id="r")
    expected = [e.model_dump() for e in whole.events("r")][1:]
    for calls in range(1, reference.usage.calls):
        model, run = Forgetful(), f"r{calls}"
        limits = Limits(calls=calls)
        stopped = agent(model, store, reread=3, limits=limits).ask(TEXT, QUESTION, run_id=run)
        assert stopped.stop_reason is StopReason.LIMIT
        assert stopped.usage.calls == calls
        if limited:  # a call at a time, each in a session of its own
            for most in range(calls + 1, reference.usage.calls):
                more = agent(model, store, reread=3, limits=Limits(calls=most))
                assert more.ask(TEXT, QUESTION, run_id=run).usage.calls == most
        result = agent(model, store, reread=3).ask(TEXT, QUESTION, run_id=run)
        assert free(result) == free(reference)
        assert result.usage == reference.usage
        assert len(model.requests) == reference.usage.calls
        events = [e.model_dump() for e in store.events(run) if e.type != "stopped"][1:]
        assert [e | {"seq": 0} for e in events] == [e | {"seq": 0} for e in expected]


def test_a_partial_answer_is_from_the_memory_as_it_is(store: RunStore) -> None:
    reference = agent(Forgetful(), reread=2).ask(TEXT, QUESTION)
    seen: list[str] = []
    for most in range(reference.chunks, reference.usage.calls):
        limits = Limits(calls=most, answer=True)
        model = Forgetful()
        result = agent(model, store, reread=2, limits=limits).ask(TEXT, QUESTION, run_id=f"r{most}")
        assert result.partial
        assert "unsettled" not in model.requests[-1].parts
        assert model.requests[-1].parts["memory"] == result.memory
        seen.append(result.memory)
    assert len(set(seen)) > 1


@pytest.mark.parametrize("reread", [1, 4, 99])
@pytest.mark.parametrize("questions", [[QUESTION], [QUESTION, "What is the number of flint?"]])
def test_the_estimate_is_an_upper_bound(reread: int, questions: list[str]) -> None:
    reading = agent(Forgetful(), reread=reread)
    estimate = reading.estimate(TEXT, questions)
    unsettled = [s for s in questions if s]
    results = reading.ask_many(TEXT, unsettled)
    calls = sum(result.usage.calls for result in results)
    chunks = min(reread, estimate.chunks)
    assert estimate.calls_min == len(questions) * (estimate.chunks + 1)
    assert estimate.calls_max == len(questions) * (estimate.chunks + chunks + 2)
    assert estimate.calls_min < calls <= estimate.calls_max
    assert sum(r.usage.prompt_tokens for r in results) <= estimate.prompt_tokens
    assert sum(r.usage.completion_tokens for r in results) <= estimate.completion_tokens
    assert all(0 < result.rereads <= chunks for result in results)


def test_each_question_has_its_own_rereads(store: RunStore) -> None:
    questions = ["What is the number of haven?", QUESTION, "What is the number of birch?"]
    results = agent(Forgetful(), store, reread=1).ask_many(TEXT, questions, run_id="r1")
    assert [r.answer for r in results] == [
        f"The number of {name} is {1000 + NAMES.index(name)}."
        for name in ("haven", "coral", "birch")
    ]
    chunks = {e.question: e.chunks for e in store.events("r1") if isinstance(e, Rereading)}
    assert len(set(chunks.values())) == len(chunks)


@pytest.mark.parametrize("question", ["???", "!!! …"])
def test_a_question_without_words_rereads_nothing(question: str) -> None:
    def never(request: ChatRequest) -> str:
        return request.parts.get("unsettled", "no") if request.kind == "answer" else "Noted."

    result = agent(never).ask(TEXT, question)
    assert (result.answer, result.rereads) == ("no", 0)
    assert result.usage.calls == result.chunks + 2


def test_an_iterator_is_reread_from_the_store() -> None:
    model = Forgetful()
    result = agent(model, reread=1).ask(
        (TEXT[i : i + 99] for i in range(0, len(TEXT), 99)), QUESTION
    )
    assert result.answer == "The number of coral is 1002."


def test_a_branch_leaves_the_rereads_behind(store: RunStore) -> None:
    first = agent(Forgetful(), store, reread=2).ask(TEXT, QUESTION, run_id="r1")
    model = Forgetful()
    smaller = agent(model, store, reread=2, chunk_tokens=500)
    branched = smaller.branch("r1", first.chunks - 1, document=TEXT, new_id="r2")
    assert isinstance(branched, Result)
    assert branched.rereads == 2
    before = [e.type for e in store.events("r2")]
    assert before.count("rereading") == 1
    assert max(r.prompt_tokens or 0 for r in model.requests) < 3000
    sent = [request.messages for request in model.requests]
    kept = [c.messages[:-1] for c in branched.trajectory.conversations]
    assert kept[first.chunks - 1 :] == sent


def test_a_run_is_bound_to_it(store: RunStore) -> None:
    agent(Forgetful(), store, limits=Limits(calls=1)).ask(TEXT, QUESTION, run_id="r1")
    with pytest.raises(RunMismatch, match="reread was 4, is 2"):
        agent(Forgetful(), store, reread=2).ask(TEXT, QUESTION, run_id="r1")


@pytest.mark.parametrize("reread", [-1, 1.5, "4"])
def test_what_is_no_number_of_chunks_is_refused(reread: Any) -> None:
    with pytest.raises(ConfigError, match="reread"):
        agent(Forgetful(), reread=reread)


def test_without_fts5_it_is_refused_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor:
        def __init__(self, _: str) -> None: ...

        def execute(self, _: str) -> None:
            raise sqlite3.OperationalError("no such module: fts5")

        def close(self) -> None: ...

    poor = SimpleNamespace(connect=Poor, OperationalError=sqlite3.OperationalError)
    monkeypatch.setattr(ranking, "sqlite3", poor)
    model = Forgetful()
    with pytest.raises(ConfigError, match=r"no FTS5.*--reread"):
        agent(model).ask(TEXT, QUESTION)
    assert model.requests == []


def test_a_wording_of_its_own_asks_for_its_phrase(tmp_path: Path) -> None:
    plain = PromptSet.load("plain")
    source = plain.source.replace(
        'answer_form = "plain"',
        'answer_form = "plain"\nunsettled = "I do not know"\nunsettled_note = ""',
    )
    (path := tmp_path / "own.toml").write_text(source)
    drafts: list[ChatRequest] = []

    def ignorant(request: ChatRequest) -> str:
        if request.kind == "answer":
            drafts.append(request)
            return "I do not know"
        return "Noted."

    result = agent(ignorant, prompts=path, reread=2).ask(TEXT, QUESTION)
    assert result.rereads == 2
    assert drafts[0].messages[0].content.count("I do not know") == 0


def test_texts_are_ranked_by_their_words() -> None:
    texts = ["a cat sat", "the dog ran", "dogs and cats", ""]
    assert rank(texts, "Which dog?", 4) == [1, 2]
    assert rank(texts, "Which dog?", 1) == [1]
    assert rank(texts, "", 4) == []
    assert rank(texts, 'NEAR("cat" AND *', 4) in ([0, 2], [2, 0])
    assert rank(texts, " ".join(f"word{n}" for n in range(3000)) + " cat", 1) == [0]


@pytest.mark.parametrize(
    ("question", "best"),
    [("天安门在哪里?", 1), ("東京の人口は？", 2), ("서울의 인구는?", 3), ("ประชากร", 4)],
)
def test_scripts_without_spaces_are_ranked_by_pairs(question: str, best: int) -> None:
    texts = [
        "今天天气很好。安静的门口。",
        "北京的天安门广场很大。",
        "東京の人口は千四百万人です。",
        "서울의 인구는 약 천만 명이다.",
        "กรุงเทพมีประชากรมาก",
    ]
    assert rank(texts, question, 5)[0] == best


def test_an_interrupted_rereading_ends_alike(store: RunStore) -> None:
    """An interruption in the middle of rereading: nothing committed is sent again."""
    reference = agent(Forgetful(), reread=3).ask(TEXT, QUESTION)
    for after in range(reference.chunks, reference.usage.calls):
        model, run = Forgetful(), f"i{after}"
        reading = agent(interrupted(model, after), store, reread=3)
        with pytest.raises(RuntimeError):
            reading.ask(TEXT, QUESTION, run_id=run)
        result = agent(model, store, reread=3).ask(TEXT, QUESTION, run_id=run)
        assert free(result) == free(reference)
        assert len(model.requests) == reference.usage.calls
