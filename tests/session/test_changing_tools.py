"""A session whose messages offer different tools: an application that was extended, a server with a new tool."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.session.test_session import LOOKS, PATIENT, agent_of, call, chatter, said, sent, text_of

from memagent import RunStore
from memagent.errors import ModelError, RunMismatch, WindowTooSmall
from memagent.messages import ChatRequest, ToolSpec
from memagent.models.scripted import Reply
from memagent.tools import Tool, tool


def sort(item: int = 0) -> str:
    """Sorts an item."""
    return f"sorted {item}"


def look(item: int = 0) -> str:
    """Looks at an item."""
    return f"item {item}"


def names(request: ChatRequest) -> list[str]:
    return [spec.name for spec in request.tools]


def test_a_later_message_has_the_tools_of_its_agent(store: RunStore) -> None:
    first = agent_of(store, [call(1), "One."], [look])
    first.session("chat").send("First?")
    agent = agent_of(store, [call(2, "sort"), "Two.", "Three."], [look, sort])
    session = agent.session("chat")
    assert session.send("Second?").answer == "Two."
    assert session.send("Third?").answer == "Three."
    assert [names(request)[:-1] for request in sent(agent)] == [["look", "sort"]] * 3
    contents = [message.content for message in sent(agent)[-1].messages]
    assert "item 1" in contents
    assert "sorted 2" in contents
    last = agent_of(store, ["Four."], [sort])
    assert last.session("chat").send("Fourth?").answer == "Four."
    assert names(sent(last)[0])[:-1] == ["sort"]
    assert "item 1" in text_of(sent(last)[0])  # the results of a tool that is gone stay
    changed = [e.tools for e in store.events("chat") if e.type == "message_sent"]
    assert changed == [("look", "sort"), None, ("sort",)]
    # What is answered is not asked again.
    assert first.run("First?", run_id="chat").answer == "One."
    with pytest.raises(RunMismatch, match="tools"):
        agent.run("First?", run_id="chat")


def test_an_unanswered_message_needs_the_tools_that_it_had(store: RunStore) -> None:
    agent_of(store, ["One."], [look]).session("chat").send("First?")
    with pytest.raises(ModelError):  # the script is over
        agent_of(store, [call(2, "sort")], [look, sort]).session("chat").send("Second?")
    for tools in ([look], [sort], [look, tool(sort, idempotent=True)]):
        other = agent_of(store, [], tools)
        for go_on in (lambda o=other: o.session("chat").send("Second?"), lambda o=other: o.resume("chat")):  # fmt: skip
            with pytest.raises(RunMismatch, match="other tools for its last message"):
                go_on()
        assert sent(other) == []
    again = agent_of(store, ["Two."], [look, sort])
    assert again.resume("chat").answer == "Two."
    assert agent_of(store, ["Three."], [sort]).session("chat").send("Third?").answer == "Three."


def test_the_error_names_the_tools_that_differ_and_how(store: RunStore) -> None:
    with pytest.raises(ModelError):  # the script is over
        agent_of(store, [call(1)], [look, sort]).run("First?", run_id="chat")

    def other(item: str = "a") -> str:
        """Looks."""
        return item

    final = Tool(tool(look).spec, tool(look).run, final=True)
    cases: list[tuple[list[Tool | Callable[..., str]], str]] = [
        ([look], "message: tool 'sort' was removed. Use"),
        ([look, sort, other], "message: tool 'other' was added. Use"),
        ([final, sort], "message: tool 'look': final was False, is True. Use"),
        (
            [tool(other, name="look"), sort],
            (
                "message: tool 'look': description was 'Looks at an item.', is 'Looks.'; "
                "parameters.properties.item.default was 0, is 'a'; "
                "parameters.properties.item.type was 'integer', is 'string'. Use"
            ),
        ),
        ([sort, look], "message: their order, or an empty part of a schema. Use"),
    ]
    for tools, told in cases:
        agent = agent_of(store, [], tools)
        for go_on in (partial(agent.run, "First?", run_id="chat"), partial(agent.resume, "chat")):
            with pytest.raises(RunMismatch, match=re.escape(told)):
                go_on()


def test_a_final_tool_that_is_gone_still_ended_its_message(store: RunStore) -> None:
    def submit(item: int = 0) -> str:
        return f"submitted {item}"

    made = tool(submit)
    final = Tool(made.spec, made.run, final=True)
    agent_of(store, [call(7, "submit")], [final]).session("chat").send("Submit 7.")
    agent = agent_of(store, ["Yes."], [look])
    assert agent.session("chat").send("Was it submitted?").answer == "Yes."
    assert [message.content for message in sent(agent)[0].messages][-2:] == [
        "submitted 7",
        "Was it submitted?",
    ]


def test_tools_that_leave_no_room_are_refused_and_the_session_goes_on(store: RunStore) -> None:
    agent_of(store, ["One."], [look]).session("chat").send("First?")
    spec = ToolSpec(name="wide", description="wide " * 5000, parameters={})
    wide = Tool(spec, tool(sort).run)
    with pytest.raises(WindowTooSmall, match="fewer tools"):
        agent_of(store, [], [look, wide]).session("chat").send("Second?")
    session = agent_of(store, ["Another."], [look]).session("chat")
    assert session.history == [("First?", "One.")]
    assert session.send("Another?").answer == "Another."


def test_the_text_protocol_describes_the_new_tools(store: RunStore) -> None:
    agent_of(store, ["One."], [look], protocol="text").session("chat").send("First?")
    written = '<call>{"name": "sort", "arguments": {"item": 3}}</call>'
    agent = agent_of(store, [written, "Two."], [look, sort], protocol="text")
    assert agent.session("chat").send("Second?").answer == "Two."
    assert "Sorts an item." in sent(agent)[0].messages[0].content
    assert "sorted 3" in text_of(sent(agent)[1])


def test_a_run_of_an_earlier_version_keeps_its_tools(store: RunStore, tmp_path: Path) -> None:
    """It doesn't say what its messages offered, so that they can't be replayed with other tools at hand."""
    agent_of(store, ["One."], [look]).session("chat").send("First?")
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as db, db:
        db.execute("DELETE FROM effects WHERE kind = 'said'")
    with pytest.raises(RunMismatch, match="tools"):
        agent_of(store, [], [look, sort]).session("chat").send("Second?")
    assert agent_of(store, ["Two."], [look]).session("chat").send("Second?").answer == "Two."


def changing(number: int) -> list[Tool | Callable[..., str]]:
    """Tools of a message."""
    return [*LOOKS, *[sort] * (number % 3 == 1), *[look_away] * (number % 2)]


def look_away(item: int = 0) -> str:
    """Is never called, and has a description of some length."""
    return ""


def talk(store: RunStore, run_id: str, reply: Callable[[ChatRequest], Reply], start: int) -> None:
    """Sends what is left of 12 messages, each from an agent of its own."""
    for number in range(start, 12):
        agent = agent_of(store, reply, changing(number), window=5600, **PATIENT)
        result = agent.session(run_id).send(said(number))
        assert result.answer == f"That was {number}.", result.detail


@pytest.mark.parametrize("saves", [64, 2])
def test_a_kill_at_any_call_changes_nothing(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, saves: int
) -> None:
    """Replays see the tools of each message as they were, from the beginning and from saved states."""
    monkeypatch.setattr("memagent.session.loop.SAVE_EVERY", saves)
    whole: list[str] = []

    def note(into: list[str]) -> Callable[[ChatRequest], Reply]:
        def reply(request: ChatRequest) -> Reply:
            into.append(request.model_dump_json(exclude={"seed"}))
            return chatter(request)

        return reply

    talk(store, "whole", note(whole), 0)
    summaries = [text for text in whole if '"kind":"summary"' in text]
    assert len(summaries) > 3
    for kill in range(0, len(whole), 7):
        run_id, seen = f"killed-{kill}", list[str]()
        reply = note(seen)

        with pytest.raises(Killed):
            talk(store, run_id, until(kill, seen, reply), 0)
        history = agent_of(store, []).session(run_id).history
        talk(store, run_id, reply, len([answer for _, answer in history if answer]))
        assert seen == whole


class Killed(BaseException):
    """Nothing of memagent catches it."""


def until(
    count: int, seen: list[str], reply: Callable[[ChatRequest], Reply]
) -> Callable[[ChatRequest], Reply]:
    """Replies that often."""

    def dying(request: ChatRequest) -> Reply:
        if len(seen) == count:
            raise Killed
        return reply(request)

    return dying
