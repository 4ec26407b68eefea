"""Conversations: further messages in one context and one run, resumed between and within messages."""

import asyncio
import math
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.session.adding import PROMPTS, StrictModel

from memagent import Limits, RunStore, Session, SessionResult, ToolAgent
from memagent.errors import (
    ConfigError,
    ModelError,
    OutputInvalid,
    QuestionTooLong,
    RunBusy,
    RunMismatch,
)
from memagent.events import Event
from memagent.messages import ChatRequest, Completion, Message, ToolCall, Usage
from memagent.models.scripted import Reply, ScriptedModel
from memagent.tools import Tool, tool
from memagent.trajectory import StopReason

WINDOW = 6000
PATIENT: dict[str, Any] = {"max_steps": 1000, "max_summaries": 1000}


def long_look(item: int = 0) -> str:
    return f"item {item}. " + "A lot more about it. " * 20


LOOKS = [tool(long_look, name="look", read_only=True)]


def look(item: int = 0) -> str:
    """Looks at an item."""
    return f"item {item}"


def call(item: int = 0, name: str = "look", place: int = 0) -> ToolCall:
    return ToolCall(id=f"c{item}x{place}", name=name, arguments=f'{{"item": {item}}}')


def agent_of(
    store: RunStore,
    replies: Sequence[Reply] | Callable[[ChatRequest], Any],
    tools: Sequence[Tool | Callable[..., Any]] = (look,),
    *,
    window: int = WINDOW,
    **settings: Any,
) -> ToolAgent:
    """An agent as a new process has it."""
    model = ScriptedModel(replies, window=window)
    return ToolAgent(model, tools, prompts=PROMPTS, store=store, **settings)


def sent(agent: ToolAgent) -> list[ChatRequest]:
    return agent.model.inner.requests  # type: ignore[attr-defined]


def text_of(request: ChatRequest) -> str:
    return "\n".join(message.content for message in request.messages)


def spoken(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages[1:]]


# --- messages


def test_a_message_follows_the_answer_before_it(store: RunStore) -> None:
    agent = agent_of(store, [call(1), "One.", call(2), "Two.", "Nothing else."])
    session = agent.session("chat")
    results = [session.send(text) for text in ("First?", "And then?", "Else?")]
    assert [result.answer for result in results] == ["One.", "Two.", "Nothing else."]
    assert [(result.task, result.steps) for result in results] == [
        ("First?", 1),
        ("And then?", 1),
        ("Else?", 0),
    ]
    assert spoken(sent(agent)[-1].messages) == [
        ("user", "First?"),
        ("assistant", ""),
        ("tool", "item 1"),
        ("assistant", "One."),
        ("user", "And then?"),
        ("assistant", ""),
        ("tool", "item 2"),
        ("assistant", "Two."),
        ("user", "Else?"),
    ]
    assert session.history == [
        ("First?", "One."),
        ("And then?", "Two."),
        ("Else?", "Nothing else."),
    ]
    assert repr(session) == "<Session 'chat'>"


def test_run_is_the_first_message_of_a_session(store: RunStore) -> None:
    agent = agent_of(store, ["One.", "Two."])
    first = agent.run("First?", run_id="chat")
    session = agent.session("chat")
    assert session.send("Second?").answer == "Two."
    # Running it again means the task alone, as ever.
    again = agent.run("First?", run_id="chat")
    assert (again.answer, again.usage, len(sent(agent))) == ("One.", first.usage, 2)
    with pytest.raises(RunMismatch, match="another question or task"):
        agent.run("Second?", run_id="chat")
    # Resuming means the last message.
    assert agent.resume("chat").answer == "Two."


def test_a_session_without_a_name_has_one_of_its_own(store: RunStore) -> None:
    agent = agent_of(store, ["One.", "Two."])
    sessions = [agent.session(), agent.session()]
    assert sessions[0].run_id != sessions[1].run_id
    assert [session.history for session in sessions] == [[], []]
    assert [session.send("First?").answer for session in sessions] == ["One.", "Two."]
    assert sessions[0].history == [("First?", "One.")]
    with pytest.raises(ConfigError, match=r"run id '\.\./x'"):
        agent.session("../x")


async def test_the_async_version_and_the_stream(tmp_path: Path) -> None:
    store = await asyncio.to_thread(RunStore, tmp_path / "runs.sqlite")
    agent = agent_of(store, ["One.", call(2), "Two."])
    session = agent.session("chat")
    assert (await session.asend("First?")).answer == "One."
    async with session.stream("Second?") as stream:
        events = [event async for event in stream]
    assert stream.result.answer == "Two."
    assert [event.type for event in events] == [
        "message_sent",
        "acted",
        "tool_returned",
        "acted",
        "answered",
    ]
    await asyncio.to_thread(store.close)


def test_only_events_of_the_message_are_heard(store: RunStore) -> None:
    def reply(request: ChatRequest) -> Reply:
        if len(request.messages) > 5:
            raise ModelError("the server is down")
        return "One." if len(request.messages) == 2 else call(2)

    agent = agent_of(store, reply)
    agent.session("chat").send("First?")
    with pytest.raises(ModelError):
        agent.session("chat").send("Second?")
    heard: list[Event] = []
    result = agent_of(store, ["Two."]).session("chat").send("Second?", on_event=heard.append)
    assert [event.type for event in heard] == [
        "message_sent",
        "acted",
        "tool_returned",
        "acted",
        "answered",
    ]
    assert result.answer == "Two."
    every = list(store.events("chat"))
    assert [event.seq for event in every] == list(range(len(every)))
    assert heard == every[-5:]


@pytest.mark.parametrize("text", ["", "  \n", 7, None, "a \ud800 b"])
def test_what_is_no_message(store: RunStore, text: Any) -> None:
    session = agent_of(store, ["One."]).session("chat")
    session.send("First?")
    with pytest.raises(ConfigError, match=r"the message .*(non-empty|surrogate)"):
        session.send(text)
    assert session.history == [("First?", "One.")]


# --- unfinished messages


def test_the_same_text_resumes_and_another_is_refused(store: RunStore) -> None:
    agent = agent_of(store, ["One.", call(2), call(3)])
    session = agent.session("chat")
    session.send("First?")
    with pytest.raises(ModelError):  # the script is over
        session.send("Second?")
    later = agent_of(store, ["Two.", "Three."]).session("chat")
    assert later.history == [("First?", "One."), ("Second?", None)]
    with pytest.raises(RunMismatch, match="has not answered 'Second\\?' yet: send that again"):
        later.send("Third?")
    result = later.send("Second?")
    assert (result.answer, result.steps) == ("Two.", 2)
    # Answered: the same text is a new message.
    assert later.send("Second?").answer == "Three."
    assert [text for text, _ in later.history] == ["First?", "Second?", "Second?"]


def test_a_first_message_that_was_interrupted(store: RunStore) -> None:
    with pytest.raises(ModelError):
        agent_of(store, [call(1)]).session("chat").send("First?")
    agent = agent_of(store, ["One."])
    with pytest.raises(RunMismatch, match="has not answered 'First\\?' yet"):
        agent.session("chat").send("Another?")
    assert agent.session("chat").send("First?").answer == "One."
    assert len(sent(agent)) == 1


def test_resume_finishes_the_last_message(store: RunStore) -> None:
    agent = agent_of(store, ["One.", call(2)])
    agent.session("chat").send("First?")
    with pytest.raises(ModelError):
        agent.session("chat").send("Second?")
    assert store.get("chat").status == "stopped"
    result = agent_of(store, ["Two."]).resume("chat")
    assert (result.task, result.answer) == ("Second?", "Two.")
    assert store.get("chat").status == "finished"


def test_a_session_is_reopened_with_the_settings_it_has(store: RunStore) -> None:
    agent_of(store, ["One."]).session("chat").send("First?")
    other = agent_of(store, ["Two."], instructions="Be brief.")
    with pytest.raises(RunMismatch, match=r"instructions was '', is 'Be brief\.'"):
        other.session("chat").send("Second?")


def test_two_at_once(store: RunStore, tmp_path: Path) -> None:
    """Also from another process's view of the file: the message is refused, not queued or doubled."""
    rival_store = RunStore(tmp_path / "runs.sqlite")
    refused: list[str] = []

    async def reply(request: ChatRequest) -> Reply:
        if "Second?" in text_of(request) and not refused:
            for agent in (rival, agent_of(store, ["never"])):
                with pytest.raises(RunBusy) as caught:
                    await agent.session("chat").asend("Rival?")
                refused.append(str(caught.value))
        return "Answer."

    rival = agent_of(rival_store, ["never"])
    session = agent_of(store, reply).session("chat")
    session.send("First?")
    assert session.send("Second?").answer == "Answer."
    assert len(refused) == 2
    assert session.history == [("First?", "Answer."), ("Second?", "Answer.")]
    rival_store.close()


def test_a_new_message_is_refused_while_another_reads_the_session(store: RunStore) -> None:
    agent = agent_of(store, ["One.", "never"])
    session = agent.session("chat")
    session.send("First?")
    with store.hold("chat"):
        with pytest.raises(RunBusy, match="'chat' is in use"):
            session.send("Second?")
        assert agent.run("First?", run_id="chat").answer == "One."
    assert session.history == [("First?", "One.")]


def test_an_agent_of_another_process_goes_on_where_the_first_left_off(store: RunStore) -> None:
    """Objects of one session take turns: each starts from the store, not from what it remembers."""
    agents = [agent_of(store, ["1", "3"]), agent_of(store, ["2", "4"])]
    sessions = [agent.session("chat") for agent in agents]
    answers = [sessions[turn % 2].send(f"Message {turn}").answer for turn in range(4)]
    assert answers == ["1", "2", "3", "4"]
    assert spoken(sent(agents[1])[-1].messages)[::2] == [
        ("user", f"Message {turn}") for turn in range(4)
    ]


# --- limits and costs


def test_steps_and_summaries_count_for_each_message(store: RunStore) -> None:
    replies = [call(1), call(2), "One.", call(3), call(4), "Two.", call(5), call(6), call(7)]
    agent = agent_of(store, replies, max_steps=3)
    session = agent.session("chat")
    assert [session.send(text).steps for text in ("First?", "Second?")] == [2, 2]
    stopped = session.send("Third?")
    assert (stopped.stop_reason, stopped.steps) == (StopReason.OUT_OF_STEPS, 3)
    assert stopped.answer is None
    with pytest.raises(ConfigError, match="max_steps=2 is too low: run 'chat' has already used 3"):
        agent_of(store, [], max_steps=2).session("chat").send("Third?")
    patient = agent_of(store, [call(8), "Three."], max_steps=5).session("chat")
    assert patient.send("Third?").steps == 4
    # Earlier messages took more steps than this agent allows, but they are over.
    last = agent_of(store, ["Five."], max_steps=1).session("chat").send("Fourth?")
    assert last.answer == "Five."


def test_usage_is_that_of_the_message_and_limits_that_of_the_run(store: RunStore) -> None:
    agent = agent_of(store, [call(1), "One.", "Two.", "never"], limits=Limits(calls=3))
    session = agent.session("chat")
    results = [session.send(text) for text in ("First?", "Second?", "Third?")]
    assert [result.usage.calls for result in results] == [2, 1, 0]
    assert results[2].stop_reason is StopReason.LIMIT
    assert sum((r.usage for r in results), Usage()) == store.usage("chat")
    # A result that is read again is the same.
    assert agent.run("First?", run_id="chat").usage == results[0].usage


def test_the_trajectory_has_each_context_once(store: RunStore) -> None:
    agent = agent_of(store, [call(1), "One.", "Two.", call(3)])
    session = agent.session("chat")
    session.send("First?")
    second = session.send("Second?")
    (conversation,) = second.trajectory.conversations
    assert spoken(conversation.messages)[-3:] == [
        ("assistant", "One."),
        ("user", "Second?"),
        ("assistant", "Two."),
    ]
    with pytest.raises(ModelError):
        session.send("Third?")
    stopped = agent_of(store, [], limits=Limits(calls=4)).session("chat").send("Third?")
    assert stopped.stop_reason is StopReason.LIMIT
    (conversation,) = stopped.trajectory.conversations
    assert spoken(conversation.messages)[-3:] == [
        ("assistant", "Two."),
        ("user", "Third?"),
        ("assistant", ""),
    ]


# --- what the server needs back


def test_other_fields_of_an_answer_are_kept_and_sent_back(store: RunStore) -> None:
    extra: dict[str, Any] = {"reasoning_content": "It must be one."}
    agent = agent_of(store, [Completion(text="One.", extra=extra), "Two."])
    session = agent.session("chat")
    first = session.send("First?")
    assert first.trajectory.conversations[0].messages[-1].extra == extra
    session.send("Second?")
    assert sent(agent)[-1].messages[-2].extra == extra


def test_a_final_tool_ends_one_message_and_the_next_sees_its_result(store: RunStore) -> None:
    def submit(item: int) -> str:
        return f"submitted {item}"

    final = tool(submit)
    final = Tool(final.spec, final.run, final=True)
    agent = agent_of(store, [call(7, "submit"), "Done already.", "Yes."], [final])
    session = agent.session("chat")
    assert session.send("Submit 7.").answer == "submitted 7"
    assert session.send("And?").answer == "Done already."
    assert spoken(sent(agent)[-1].messages)[-2:] == [("tool", "submitted 7"), ("user", "And?")]


# --- many messages and summaries


def chatter(request: ChatRequest) -> Reply:
    """Looks twice at the number of the last message, then answers with it; a summary says nothing of messages."""
    if request.kind == "summary":
        return "<summary>Some items were looked at.</summary>"
    number = int(re.findall(r"message (\d+)!", text_of(request))[-1])
    behind = text_of(request).rpartition(f"message {number}!")[2]
    done = [m for m in request.messages if m.role == "assistant" and m.tool_calls]
    taken = sum(f"c{number}x" in c.id for m in done for c in m.tool_calls)
    noted = len(set(re.findall(rf"look\({{\"item\": {number}\d}}\)", behind)))
    if (made := max(taken, noted)) < 2:
        return (
            ToolCall(id=f"c{number}x{made}", name="look", arguments=f'{{"item": {number}{made}}}'),
        )
    return f"That was {number}."


def said(number: int) -> str:
    return f"Odd text <{number * 7919 % 9973}> — message {number}!"


@pytest.mark.parametrize("early", [None, 0.7])
def test_recent_messages_stay_word_for_word_through_many_summaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: float | None
) -> None:
    store = RunStore(tmp_path / "runs.sqlite")

    model = StrictModel(chatter, window=WINDOW)
    kept: list[tuple[str, str]] = []
    complete = model.complete

    async def watched(request: ChatRequest) -> Completion:
        if request.kind == "act":
            kept.append((session.current, text_of(request)))
        return await complete(request)

    monkeypatch.setattr(model, "complete", watched)

    class Sending(Session):
        current = ""

    agent = ToolAgent(
        model,
        LOOKS,
        prompts=PROMPTS,
        store=store,
        early=early,
        **PATIENT,
    )
    session = Sending(agent, "chat")
    summaries = 0
    for number in range(50):
        session.current = said(number)
        result = session.send(session.current)
        assert result.answer == f"That was {number}."
        summaries += result.summaries
    assert summaries > 20
    # The task and the message in work stand in each prompt, and so do the messages just before it.
    for current, text in kept:
        number = int(re.findall(r"message (\d+)!", current)[0])
        for exact in (said(0), *(said(n) for n in range(max(0, number - 4), number + 1))):
            assert text.count(exact) == 1, (number, exact)
    # Older ones are one line, and the archive has them.
    last = kept[-1][1]
    (handle,) = re.findall(r"\[0-\d+ in (t\w+)!\]", last)
    archived = ""
    while handle:
        body = store.effect("chat", f"archive/{handle}")
        assert body is not None
        archived = body["text"] + archived
        handle = next(iter(re.findall(r"\A\[0-\d+ in (t\w+)!\]", body["text"])), "")
    shown = [n for n in range(50) if said(n) in last]
    assert [n for n in range(1, 50) if said(n) in archived] == list(range(1, min(shown[1:])))
    store.close()


def test_a_message_that_would_not_stay_whole_is_refused(store: RunStore) -> None:
    agent = agent_of(store, ["One.", "Two."])
    session = agent.session("chat")
    session.send("First?")
    with pytest.raises(
        QuestionTooLong, match="takes 3000 tokens, but with a working context of 6000"
    ):
        session.send("x" * 3000)
    # Nothing was stored, so another message may be sent.
    assert session.history == [("First?", "One.")]
    assert store.is_answered("chat")
    assert session.send("x" * 500).answer == "Two."


def test_a_session_that_leaves_no_room_for_a_second_message_says_so_at_the_first(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(["One.", "Two."], window=16_384)
    agent = ToolAgent(model, [look], working_context=6000, store=store)
    assert agent.run("Alone?").answer == "One."
    assert "only one message" not in caplog.text
    session = agent.session("small")
    assert session.send("First?").answer == "Two."
    assert "session small takes only one message" in caplog.text
    with pytest.raises(QuestionTooLong, match="at most 0 stay word for word"):
        session.send("Second?")


def test_a_message_that_is_too_long_with_its_schema_is_told_so(store: RunStore) -> None:
    session = agent_of(store, ["One."]).session("chat")
    session.send("First?")

    class Long(BaseModel):
        value: int = Field(description="x" * 3000)

    with pytest.raises(QuestionTooLong, match="the schema of output_type is a part of it"):
        session.send("Why?", Long)


# --- saved states


def test_a_long_session_starts_from_its_last_saved_state(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    effect = store.effect

    def count(run_id: str, key: str) -> Any:
        read.append(key)
        return effect(run_id, key)

    def reply(request: ChatRequest) -> Reply:
        if request.kind == "summary":
            return "<summary>Looked.</summary>"
        number = len(ran)
        return "Done." if number % 100 == 99 else call(number)

    ran: list[int] = []

    def look(item: int = 0) -> str:
        ran.append(item)
        return f"item {item} is here. " * 5

    agent = agent_of(store, reply, [look], **PATIENT)
    session = agent.session("chat")
    session.send("First?")
    ran.append(-1)
    second = session.send("Second?")
    assert second.summaries > 5
    states = [n for n in range(300) if effect("chat", f"state-{n}")]
    assert len(states) >= 2
    assert all(later - earlier < 80 for earlier, later in pairwise(states))
    begun: list[str] = []
    begin = store.begin
    monkeypatch.setattr(store, "begin", lambda run, key: begun.append(key) or begin(run, key))
    ran.append(-1)
    session.send("Third?")
    replayed = [key for key in begun if key.startswith("act-") and int(key[4:]) < 200]
    assert len(replayed) < 80
    assert "act-0" not in begun


def test_a_state_of_another_format_is_ignored(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def look(item: int = 0) -> str:
        looked.append(item)
        return f"item {item}"

    def reply(request: ChatRequest) -> Reply:
        if request.kind == "summary":
            return "<summary>Looked.</summary>"
        return call(len(looked)) if len(looked) < 70 else ModelError("the server is down")

    with pytest.raises(ModelError):
        agent_of(store, reply, [look], **PATIENT).session("chat").send("First?")
    assert store.latest("chat", "state") is not None
    monkeypatch.setattr("memagent.session.loop.FORMAT", 99)
    agent = agent_of(store, ["One."], [look], **PATIENT)
    assert agent.session("chat").send("First?").answer == "One."
    assert (len(sent(agent)), len(looked)) == (1, 70)


def test_a_run_of_an_earlier_version_takes_further_messages(
    store: RunStore, tmp_path: Path
) -> None:
    """It has neither the task's `said-0` nor states or archived texts: it is replayed."""
    agent_of(store, chatter, LOOKS, **PATIENT).session("chat").send(said(0))
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as db, db:
        db.execute("DELETE FROM effects WHERE kind = 'said' OR kind = 'state'")
        db.execute("DELETE FROM effects WHERE kind GLOB 'archive/*'")
    agent = agent_of(store, chatter, LOOKS, **PATIENT)
    session = agent.session("chat")
    assert session.history == [(said(0), "That was 0.")]
    assert agent.run(said(0), run_id="chat").answer == "That was 0."
    assert sent(agent) == []
    result = session.send(said(1))
    assert (result.answer, result.steps) == ("That was 1.", 2)
    assert all(request.kind == "summary" or said(1) in text_of(request) for request in sent(agent))


# --- answers of a given form


class Ship(BaseModel):
    """A ship."""

    name: str
    year: int = Field(ge=1800)


def test_an_answer_of_a_given_form(store: RunStore) -> None:
    agent = agent_of(store, [call(1), '{"name": "Aurora", "year": 1912}', "Gladly."])
    session = agent.session("chat")
    result = session.send("Which ship sank?", Ship)
    assert result.output == Ship(name="Aurora", year=1912)
    assert result.to_dict()["output"] == {"name": "Aurora", "year": 1912}
    asked = sent(agent)[0].messages[-1].content
    assert asked.startswith("Which ship sank?\n\nAnswer this message with one JSON value")
    assert '"minimum": 1800' in asked
    # The next one has no form; the stored one is read back the same.
    assert (session.send("Thanks.").answer, session.history[0]) == (
        "Gladly.",
        ("Which ship sank?", '{"name": "Aurora", "year": 1912}'),
    )
    assert agent.resume("chat").output is None


def test_an_answer_as_json_follows_the_schema_that_the_model_was_shown(store: RunStore) -> None:
    class Vessel(BaseModel):
        kind: str = Field(alias="class")

    result = agent_of(store, ['{"class": "brig"}']).session().send("Which?", Vessel)
    assert result.to_dict()["output"] == {"class": "brig"}


@pytest.mark.parametrize(
    "text", ['```json\n{"name": "A", "year": 1900}\n```', '  {"name": "A", "year": "1900"}\n']
)
def test_forms_that_models_write(store: RunStore, text: str) -> None:
    result = agent_of(store, [text]).session().send("Which?", output_type=Ship)
    assert result.output == Ship(name="A", year=1900)
    assert result.usage.retries == 0


def test_a_wrong_answer_is_shown_to_the_model_and_asked_for_again(store: RunStore) -> None:
    replies = [
        call(1),
        "The Aurora.",
        '{"name": "Aurora", "year": 12}',
        '{"name": "A", "year": 1912}',
    ]
    agent = agent_of(store, [*replies, "Gladly."])
    session = agent.session("chat")
    result = session.send("Which?", Ship)
    assert result.output == Ship(name="A", year=1912)
    assert (result.usage.calls, result.usage.retries) == (2, 2)
    marks = [request.parts.get("again") for request in sent(agent)]
    assert marks == [None, None, "yes", "yes"]
    tries = [request.messages for request in sent(agent)[2:4]]
    assert [messages[-2].content for messages in tries] == [
        "The Aurora.",
        '{"name": "Aurora", "year": 12}',
    ]
    assert "Invalid JSON" in tries[0][-1].content
    assert "year: Input should be greater than or equal to 1800" in tries[1][-1].content
    reasons = [event.reason for event in store.events("chat") if event.type == "retried"]
    assert len(reasons) == 2
    # Neither is in the context of the next message, or in the trajectory.
    session.send("Thanks.")
    assert "The Aurora." not in text_of(sent(agent)[-1])
    assert "The Aurora." not in str(list(result.trajectory.conversations))


def test_three_wrong_answers_are_an_error_and_resuming_asks_again(store: RunStore) -> None:
    session = agent_of(store, [call(1), "a", "b", "c"]).session("chat")
    with pytest.raises(OutputInvalid, match=r"(?s)3 .* not of.*type; send.*Invalid JSON") as caught:
        session.send("Which?", Ship)
    assert caught.value.run_id == "chat"
    assert session.history == [("Which?", None)]
    agent = agent_of(store, ["d", '{"name": "A", "year": 1900}'])
    result = agent.session("chat").send("Which?", Ship)
    assert (result.output, result.steps) == (Ship(name="A", year=1900), 1)
    assert (result.usage.calls, result.usage.retries) == (2, 4)


def test_a_wrong_answer_is_shown_to_the_model_after_a_kill_as_well(store: RunStore) -> None:
    away = agent_of(store, ["The Aurora.", ModelError("away", attempts=1)])
    with pytest.raises(ModelError, match="away"):
        away.session("chat").send("Which?", Ship)
    agent = agent_of(store, ['{"name": "A", "year": 1912}', "Gladly."])
    session = agent.session("chat")
    result = session.send("Which?", Ship)
    assert (result.output, result.usage.retries) == (Ship(name="A", year=1912), 2)
    assert sent(agent)[0] == sent(away)[1]
    assert "Invalid JSON" in sent(agent)[0].messages[-1].content
    assert session.send("Thanks.").answer == "Gladly."


def test_a_long_wrong_answer_leaves_room_for_the_right_one(store: RunStore) -> None:
    agent = agent_of(store, ["so much to say " * 300, '{"name": "A", "year": 1900}'])
    result = agent.session("chat").send("Which?", Ship)
    assert (result.output, result.usage.retries) == (Ship(name="A", year=1900), 1)
    assert "more characters)" in sent(agent)[1].messages[-2].content


def test_a_message_belongs_to_its_output_type(store: RunStore) -> None:
    class Boat(BaseModel):
        name: str

    with pytest.raises(ModelError):
        agent_of(store, [call(1)]).session("chat").send("Which?", Ship)
    agent = agent_of(store, ['{"name": "A", "year": 1900}'])
    session = agent.session("chat")
    for other in (None, Boat):
        with pytest.raises(RunMismatch, match="output type"):
            session.send("Which?", other)
    with pytest.raises(RunMismatch, match="output type"):
        agent.resume("chat")
    assert session.send("Which?", Ship).output == Ship(name="A", year=1900)


def test_a_typed_message_that_was_interrupted_is_sent_again(store: RunStore) -> None:
    class Far(BaseModel):
        miles: float = math.inf

    def stop(event: Event) -> None:
        if event.type == "tool_returned":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as error:
        agent_of(store, [call(1)]).session("chat").send("How far?", Far, on_event=stop)
    assert error.value.__notes__ == ["Resume the run with the same call of send."]
    again = agent_of(store, ["{}"]).session("chat").send("How far?", Far)
    assert again.output == Far()


@pytest.mark.parametrize(
    "wrong", [dict, "Ship", Ship(name="A", year=1900), list[Ship], 3, BaseModel]
)
def test_what_is_no_output_type(store: RunStore, wrong: Any) -> None:
    agent = agent_of(store, ["One."])
    with pytest.raises(ConfigError, match="output_type must be a pydantic model"):
        agent.session("chat").send("First?", wrong)
    assert store.find("chat") is None


def test_an_output_type_without_a_schema(store: RunStore) -> None:
    class Odd(BaseModel):
        run: Callable[[], int]

    with pytest.raises(ConfigError, match="'Odd' has no JSON schema"):
        agent_of(store, []).session("chat").send("First?", Odd)


def test_a_final_tool_whose_result_has_not_the_form_does_not_end_the_message(
    store: RunStore,
) -> None:
    def submit(item: int) -> str:
        return f'{{"name": "A", "year": {item}}}'

    made = tool(submit)
    final = Tool(made.spec, made.run, final=True)
    agent = agent_of(store, [call(7, "submit"), call(1907, "submit"), "Gladly."], [final])
    session = agent.session("chat")
    result = session.send("Which?", Ship)
    assert (result.output, result.steps) == (Ship(name="A", year=1907), 2)
    assert session.send("Thanks.").answer == "Gladly."
    assert "greater than or equal to 1800" in sent(agent)[1].messages[-1].content
    assert [m.role for m in sent(agent)[-1].messages[-5:]] == [
        "assistant", "tool", "assistant", "tool", "user",
    ]  # fmt: skip


def test_three_wrong_results_of_a_final_tool_are_an_error(store: RunStore) -> None:
    final = replace(tool(look), final=True)
    with pytest.raises(OutputInvalid, match=r"final tool.*send the message again"):
        agent_of(store, [call(n) for n in range(9)], [final]).session("chat").send("Which?", Ship)
    agent = agent_of(store, [call(3), '{"name": "A", "year": 1900}'], [final])
    result = agent.session("chat").send("Which?", Ship)
    assert (result.output, result.steps) == (Ship(name="A", year=1900), 4)
    assert text_of(sent(agent)[-1]).count("Invalid JSON") == 4


def test_the_form_survives_summaries(store: RunStore) -> None:
    asked: list[bool] = []
    looked: list[int] = []

    def look(item: int = 0) -> str:
        looked.append(item)
        return f"item {item}: " + "more of it, " * 40

    def reply(request: ChatRequest) -> Reply:
        if request.kind == "summary":
            return "<summary>Looked.</summary>"
        asked.append('"minimum": 1800' in text_of(request))
        if "Second" not in text_of(request):
            return "One."
        return call(len(looked)) if len(looked) < 25 else '{"name": "A", "year": 1900}'

    session = agent_of(store, reply, [look], **PATIENT).session("chat")
    session.send("First?")
    result = session.send("Second?", Ship)
    assert result.summaries > 1
    assert result.output == Ship(name="A", year=1900)
    assert all(asked[1:])


def test_the_text_protocol(store: RunStore) -> None:
    written = '<call>{"name": "look", "arguments": {"item": 3}}</call>'
    agent = agent_of(store, [written, "Three.", written, "Again."], protocol="text")
    session = agent.session("chat")
    assert [session.send(text).answer for text in ("First?", "Second?")] == ["Three.", "Again."]
    roles = [message.role for message in sent(agent)[-1].messages]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]


def test_results_can_be_pickled(store: RunStore) -> None:
    import pickle

    result = agent_of(store, ["One."]).session("chat").send("First?")
    copy: SessionResult = pickle.loads(pickle.dumps(result))
    assert (copy.answer, copy.output) == ("One.", None)
