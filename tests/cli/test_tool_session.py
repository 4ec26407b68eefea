import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import QUESTION, Invoke, only_json

from memagent import ChatRequest, RunStore, ScriptedModel, ToolAgent, ToolCall, tool

TASK = "Find the year.\nLook twice."


@tool(idempotent=True)
def search(query: str) -> str:
    """Searches."""
    return f"about {query}: {'fog and snow ' * 60}\nsecond line"


def reply(request: ChatRequest) -> str | ToolCall:
    """Searches five times, then answers."""
    if request.kind == "summary":
        return "<summary>Nothing but fog.</summary>"
    made = len(asked)
    asked.append(request)
    if made == 9:
        return "1813"
    return ToolCall(id=f"c{made}", name="search", arguments=f'{{"query": "year {made}"}}')


asked: list[ChatRequest] = []


@pytest.fixture
def agent() -> Iterator[ToolAgent]:
    asked.clear()
    with ToolAgent(ScriptedModel(reply, window=8000), [search], max_steps=20) as made:
        yield made


@pytest.fixture
def finished(agent: ToolAgent) -> str:
    """A finished session in the default store, with at least one summary."""
    result = agent.run(TASK, run_id="found")
    assert (result.answer, result.steps) == ("1813", 9)
    assert result.summaries > 0
    return "found"


@pytest.fixture
def stopped() -> str:
    """A session that ran out of steps."""
    asked.clear()
    with ToolAgent(ScriptedModel(reply, window=8000), [search], max_steps=2) as agent:
        assert agent.run(TASK, run_id="short").answer is None
    return "short"


def test_the_list_has_both_kinds(invoke: Invoke, made: str, finished: str, stopped: str) -> None:
    rows = only_json(invoke("runs", "--display", "json").stdout)
    assert [(row["id"], row["kind"]) for row in rows] == [
        *((stopped, "tools"), (finished, "tools"), (made, "document"))
    ]
    assert (rows[1]["task"], rows[1]["tools"], rows[1]["steps"]) == (TASK, ["search"], 9)
    assert (rows[0]["status"], rows[0]["steps"]) == ("stopped", 2)
    lines = invoke("runs").stdout.splitlines()
    assert lines[1].split()[3:5] == ["finished", "9"]
    assert "Find the year. Look twice.  tools: search  scripted" in lines[1]
    assert QUESTION in lines[2]
    assert invoke("runs", "prune", "--finished", "--yes").exit_code == 0
    assert invoke("runs", "rm", stopped).stdout == "removed short\n"
    assert only_json(invoke("runs", "--display", "json").stdout) == []


def test_show(invoke: Invoke, finished: str) -> None:
    done = invoke("show", finished)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "run         found, finished"
    assert lines[2:4] == ["task        Find the year.", "            Look twice."]
    assert "budget      working context 8,000, at most 20 steps, 7 summaries" in lines
    assert any(line.startswith("made        9 steps, ") for line in lines)
    assert '  search(query="year 0")' in lines
    assert any(line.startswith("compacted before step ") for line in lines)
    assert "    Nothing but fog." in lines
    assert lines[-1] == "answer: 1813"
    assert all(len(line) <= 100 for line in lines)
    assert invoke("show", finished, "--display", "none").stdout == "1813\n"
    assert invoke("show", finished, "--question", "1").exit_code == 2


def test_show_as_json_has_every_event(invoke: Invoke, finished: str) -> None:
    said = only_json(invoke("show", finished, "--display", "json").stdout)
    (result,) = said["results"]
    assert (result["task"], result["answer"], result["steps"]) == (TASK, "1813", 9)
    assert [event["seq"] for event in said["events"]] == list(range(len(said["events"])))
    kinds = {event["type"] for event in said["events"]}
    assert kinds >= {"session_started", "acted", "tool_returned", "compacted", "answered"}


def test_one_step_is_shown_in_full(invoke: Invoke, finished: str, made: str) -> None:
    done = invoke("show", finished, "--step", "0")
    assert done.stdout.startswith("step 0  prompt ")
    assert done.stdout.endswith("    second line\n")
    said = only_json(invoke("show", finished, "--step", "0", "--display", "json").stdout)
    assert [event["type"] for event in said["events"]] == ["acted", "tool_returned"]
    for wrong, what in (
        (("show", finished, "--step", "10"), "has made 9 steps"),
        (("show", finished, "--chunk", "0"), "--step N"),
        (("show", finished, "--quotes"), "needs a run of a document"),
        (("show", made, "--step", "0"), "--chunk N"),
    ):
        refused = invoke(*wrong)
        assert refused.exit_code == 2
        assert what in refused.stderr


def test_a_finished_session_is_shown_again(invoke: Invoke, finished: str) -> None:
    done = invoke("resume", finished)
    assert done.exit_code == 0
    assert done.stdout.startswith("answer: 1813\n\nrun found · 9 steps · ")
    assert invoke("resume", finished, "--display", "none").stdout == "1813\n"
    said = only_json(invoke("resume", finished, "--display", "json").stdout)
    assert (said["answer"], said["steps"], said["task"]) == ("1813", 9, TASK)
    assert said["stop_reason"] == "answered"
    assert len(asked) == 10  # nothing was sent


def test_resume_says_where_the_tools_are(invoke: Invoke, stopped: str) -> None:
    done = invoke("resume", stopped)
    assert done.exit_code == 2
    assert "ToolAgent(model, tools).resume('short')" in done.stderr
    said = only_json(invoke("resume", stopped, "--display", "json").stdout)
    assert said["error"]["type"] == "ConfigError"
    store = RunStore.default_path()
    assert f"store={str(store)!r}" in invoke("resume", stopped, "--store", store).stderr


def test_a_reading_does_not_take_the_session_over(invoke: Invoke, stopped: str, book: Path) -> None:
    done = invoke("ask", book, QUESTION, "--model", "extractive", "--run-id", stopped)
    assert done.exit_code == 5
    assert "resume with" not in done.stderr


def test_a_conversation_is_shown_message_by_message(invoke: Invoke, agent: ToolAgent) -> None:
    session = agent.session("chat")
    session.send(TASK)
    asked.clear()
    session.send("And the year after?")
    shown = invoke("show", "chat").stdout.splitlines()
    assert shown.index("answer: 1813") < shown.index("And the year after?")
    assert [line for line in shown if line.startswith("made")] == [
        "made        18 steps, 4 summaries"
    ]
    headings = [line for line in shown if re.match(r"step \d+  prompt", line)]
    assert [int(line.split()[1]) for line in headings] == [*range(9), *range(10, 19)]
    # What left the context is named by its step: the answer was turn 9, the message turn 10.
    rows = [line.strip() for line in shown if "summarised" in line]
    assert [row for row in rows if row.startswith("message")] == []
    assert invoke("show", "chat", "--display", "none").stdout == "1813\n"
    found = only_json(invoke("show", "chat", "--display", "json").stdout)
    assert [each["type"] for each in found["events"]].count("message_sent") == 1
    (result,) = found["results"]
    assert (result["task"], result["answer"], result["steps"]) == (
        "And the year after?",
        "1813",
        18,
    )
