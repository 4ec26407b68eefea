"""The faces of the agent: sync, async, streams, runs that are taken up, settings that are wrong."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.session.adding import PROMPTS, TASK, adder, adding_tools, answer_of

from memagent import Limits, MemoryAgent, RunStore, ScriptedModel, ToolAgent
from memagent.errors import (
    ConfigError,
    ConnectionFailed,
    NoModel,
    PromptSetError,
    RunMismatch,
    RunNotFound,
    WindowTooSmall,
    WindowUnknown,
)
from memagent.messages import ChatRequest, Sampling, ToolCall
from memagent.tools import Tool, tool
from memagent.trajectory import StopReason

ITEMS = 12
WINDOW = 6000
SETTINGS: dict[str, Any] = {"prompts": PROMPTS, "max_summaries": 100}
ANSWER = answer_of(ITEMS)


def model(*, window: int | None = WINDOW, name: str = "scripted") -> ScriptedModel:
    return ScriptedModel(adder(ITEMS), window=window, name=name)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ToolAgent]:
    agent = ToolAgent(model(), adding_tools(), store=tmp_path / "runs.sqlite", **SETTINGS)
    yield agent
    agent.close()


def sent(agent: ToolAgent) -> list[ChatRequest]:
    model = agent.model
    while not isinstance(model, ScriptedModel):
        model = model.inner  # type: ignore[attr-defined]
    return model.requests


# --- running


def test_sync_and_async_give_the_same(agent: ToolAgent) -> None:
    sync = agent.run(TASK)
    later = asyncio.run(agent.arun(TASK))
    assert sync.answer == later.answer == ANSWER
    assert (sync.steps, sync.usage) == (later.steps, later.usage)
    assert sync.run_id != later.run_id
    assert (sync.task, sync.stop_reason, sync.detail) == (TASK, StopReason.ANSWERED, "")


async def test_the_sync_api_works_where_a_loop_runs(agent: ToolAgent) -> None:
    assert agent.run(TASK).answer == ANSWER


async def test_a_stream_has_the_events_and_the_result(agent: ToolAgent) -> None:
    stream = agent.stream(TASK, run_id="r1")
    with pytest.raises(ConfigError, match="has not ended"):
        _ = stream.result
    events = [event async for event in stream]
    assert [event.seq for event in events] == list(range(len(events)))
    first, last = events[0], events[-1]
    assert first.type == "session_started"
    assert (first.task, first.tools, first.working_context) == (
        TASK,
        ("look", "note", "noted"),
        WINDOW,
    )
    assert last.type == "answered"
    assert (last.answer, stream.result.answer) == (ANSWER, ANSWER)
    assert stream.result.steps == sum(event.type == "acted" for event in events) - 1


# --- runs that are taken up


def test_a_finished_run_is_returned_and_nobody_is_asked(agent: ToolAgent, tmp_path: Path) -> None:
    first = agent.run(TASK, run_id="r1")
    asked, events = len(sent(agent)), list(agent.store.events("r1"))
    again = agent.run(TASK, run_id="r1")
    for same in (again, agent.resume("r1"), asyncio.run(agent.aresume("r1"))):
        assert (same.answer, same.steps, same.summaries) == (ANSWER, first.steps, first.summaries)
        assert same.usage == first.usage
        assert list(same.trajectory.conversations) == list(first.trajectory.conversations)
    assert len(sent(agent)) == asked
    assert list(agent.store.events("r1")) == events
    # Whatever else the limits are now.
    fewer: dict[str, Any] = {"max_steps": 1, "max_summaries": 0, "limits": Limits(calls=0)}
    path = tmp_path / "runs.sqlite"
    less = ToolAgent(model(), adding_tools(), store=path, prompts=PROMPTS, **fewer)
    result = less.resume("r1")
    assert (result.answer, result.stop_reason) == (ANSWER, StopReason.ANSWERED)
    assert list(less.store.events("r1")) == events
    less.close()


async def test_a_run_with_early_summaries_is_resumed_after_any_event(tmp_path: Path) -> None:
    store = await asyncio.to_thread(RunStore, tmp_path / "runs.sqlite")
    settings: dict[str, Any] = {**SETTINGS, "early": 0.7, "store": store}
    seen: list[str] = []
    for place in range(0, 60, 2):
        one = ToolAgent(model(), adding_tools(), **settings)
        async with one.stream(TASK, run_id="r1") as stream:
            count = 0
            async for event in stream:
                json = event.model_dump_json()
                assert event.seq == count
                # Verbatim what was handed out before.
                assert seen[count : count + 1] in ([], [json])
                seen[count : count + 1] = [json]
                count += 1
                if count > place:
                    break
    one = ToolAgent(model(), adding_tools(), **settings)
    result = await one.arun(TASK, run_id="r1")
    assert result.answer == ANSWER
    await asyncio.to_thread(store.close)


def test_a_run_belongs_to_its_task_tools_and_settings(agent: ToolAgent, tmp_path: Path) -> None:
    agent.run(TASK, run_id="r1")
    with pytest.raises(RunMismatch, match="another question or task"):
        agent.run("Another task.", run_id="r1")
    path = tmp_path / "runs.sqlite"
    others: list[tuple[str, dict[str, Any]]] = [
        ("early", {"early": 0.5}),
        ("reply_tokens", {"reply_tokens": 500}),
        ("instructions", {"instructions": "Be brief."}),
        ("protocol", {"protocol": "text"}),
        ("sampling", {"sampling": Sampling(temperature=0)}),
        ("window", {"working_context": WINDOW - 1}),
    ]
    for difference, settings in others:
        other = ToolAgent(model(), adding_tools(), store=path, **{**SETTINGS, **settings})
        with pytest.raises(RunMismatch, match=difference) as error:
            other.resume("r1")
        assert error.value.run_id == "r1"
        assert sent(other) == []
        other.close()
    for name, one in (
        ("tools", ToolAgent(model(), adding_tools(idempotent=False), store=path, **SETTINGS)),
        ("model", ToolAgent(model(name="m2"), adding_tools(), store=path, **SETTINGS)),
    ):
        with pytest.raises(RunMismatch, match=name):
            one.resume("r1")
        one.close()


def test_a_run_is_resumed_with_its_own_window(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    first = ToolAgent(model(), adding_tools(), max_steps=3, store=store, prompts=PROMPTS)
    assert first.run(TASK, run_id="r1").stop_reason is StopReason.OUT_OF_STEPS
    grown = ToolAgent(model(window=7000), adding_tools(), store=store, **SETTINGS)
    assert grown.resume("r1").answer == ANSWER
    store.close()


def test_the_run_of_a_document_is_not_for_this_agent(agent: ToolAgent, tmp_path: Path) -> None:
    reader = MemoryAgent(
        ScriptedModel(lambda _: "noted.", window=2048), store=tmp_path / "runs.sqlite"
    )
    reader.ask("The prince left. " * 100, "Who?", run_id="doc")
    for take_up in (lambda: agent.resume("doc"), lambda: agent.run(TASK, run_id="doc")):
        with pytest.raises(RunMismatch):
            take_up()
    with pytest.raises(RunMismatch, match="MemoryAgent"):
        asyncio.run(agent.aresume("doc"))
    agent.run(TASK, run_id="tools")
    with pytest.raises(RunMismatch):
        reader.resume("tools")
    with pytest.raises(RunMismatch):
        reader.ask("The prince left.", TASK, run_id="tools")
    reader.close()


def test_a_run_that_is_not_there(agent: ToolAgent) -> None:
    with pytest.raises(RunNotFound):
        agent.resume("r9")


# --- what cannot be


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "max_steps must be greater than 0, got 0"),
        ({"max_summaries": -1}, "max_summaries must be greater than or equal to 0, got -1"),
        ({"working_context": 0}, "working_context must be greater than 0, got 0"),
        ({"summary_tokens": 0}, "summary_tokens must be greater than 0, got 0"),
        ({"reply_tokens": 0}, "reply_tokens must be greater than 0, got 0"),
        ({"protocol": "xml"}, "protocol must be 'native' or 'text', got 'xml'"),
        ({"early": 1.0}, "early must be less than 1, got 1.0"),
        ({"limits": 3}, "limits must be a memagent.Limits, got 3"),
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1, got 0"),
        ({"tools": []}, "at least one"),
        ({"tools": None}, "tools=None"),
        ({"tools": "look"}, "tools='look'"),
        ({"tools": [3]}, "3 is not a function"),
        ({"tools": adding_tools() * 2}, "two tools are named 'look'"),
        ({"sampling": {"temperature": -1}}, "-1"),
    ],
)
def test_wrong_settings_fail_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ToolAgent(model(), **{"tools": adding_tools(), "store": None, **settings})
    assert message in str(error.value)


def test_what_is_needed_and_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoModel):
        ToolAgent(None, adding_tools())
    with pytest.raises(PromptSetError):
        ToolAgent(model(), adding_tools(), prompts=tmp_path / "none.toml")


def test_the_name_of_our_own_tool_is_taken(tmp_path: Path) -> None:
    def read_archived(handle: str) -> str:
        return handle

    with pytest.raises(ConfigError, match=r"'read_archived' is reserved.* prefix= for an MCP"):
        ToolAgent(model(), [read_archived], store=tmp_path / "runs.sqlite")


def test_an_agent_in_a_sync_tool_stops_at_the_tools_timeout() -> None:
    calls, stopped = list[ChatRequest](), threading.Event()

    async def reply(request: ChatRequest) -> str:
        calls.append(request)
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()
        return "late"

    @tool(timeout=0.5)
    def ask(question: str) -> str | None:
        inner = ToolAgent(ScriptedModel(reply, window=16_384), adding_tools(), store=None)
        return inner.run(question).answer

    asking = ToolCall(id="1", name="ask", arguments='{"question": "Why?"}')
    outer = ToolAgent(ScriptedModel([asking, "No answer."], window=16_384), [ask], store=None)
    assert outer.run("Ask.").answer == "No answer."
    assert stopped.wait(5)
    assert len(calls) == 1


@pytest.mark.parametrize("task", [None, "", 3], ids=repr)
def test_what_is_no_task_is_named(agent: ToolAgent, task: Any) -> None:
    with pytest.raises(ConfigError, match=f"the task must be a non-empty text, got {task!r}"):
        agent.run(task)


def test_one_step_is_not_called_steps(tmp_path: Path) -> None:
    settings = {**SETTINGS, "max_steps": 1}
    result = ToolAgent(model(), adding_tools(), store=tmp_path / "runs.sqlite", **settings).run(
        TASK
    )
    assert result.detail == "no answer after 1 step; resume the run with a larger max_steps="


def test_windows_that_cannot_be(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    with pytest.raises(WindowUnknown, match="working_context="):
        ToolAgent(model(window=None), adding_tools(), store=store).run(TASK)
    with pytest.raises(
        ConfigError, match=f"working_context={WINDOW + 1} exceeds the {WINDOW} tokens"
    ):
        ToolAgent(model(), adding_tools(), working_context=WINDOW + 1, store=store).run(TASK)
    small = ToolAgent(model(), adding_tools(), working_context=1000, store=store)
    with pytest.raises(WindowTooSmall, match="larger working_context") as error:
        small.run(TASK)
    assert error.value.run_id is None
    assert store.runs() == []  # there is nothing to resume
    store.close()


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    class Away(ScriptedModel):
        async def window(self) -> int | None:
            raise ConnectionFailed("nobody at http://localhost:1")

    with ToolAgent(Away([]), adding_tools(), store=tmp_path / "runs.sqlite") as one:
        with pytest.raises(ConnectionFailed) as error:
            one.run(TASK)
        assert error.value.run_id is None
        assert one.store.runs() == []


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_run_and_says_how_it_goes_on(tmp_path: Path) -> None:
    interrupt = [True]

    async def hang(item: int) -> str:
        if interrupt.pop() if interrupt else False:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(60)
        return f"item {item} is {item * item % 97}"

    tools: list[Tool] = [tool(hang, name="look", idempotent=True), *adding_tools()[1:]]
    one = ToolAgent(model(), tools, store=tmp_path / "runs.sqlite", **SETTINGS)
    with pytest.raises(KeyboardInterrupt) as error:
        one.run(TASK, run_id="r1")
    assert error.value.__notes__ == ["Resume the run with agent.resume('r1')."]
    assert one.store.get("r1").status == "stopped"
    assert one.resume("r1").answer == ANSWER
    one.close()


def test_a_tool_that_uses_the_sync_api_is_told(agent: ToolAgent) -> None:
    async def ask() -> str:
        """Asks another agent."""
        return str(agent.run(TASK).answer)

    calls = [(ToolCall(id="a", name="ask", arguments="{}"),), "done"]
    outer = ToolAgent(ScriptedModel(calls, window=WINDOW), [ask], store=None, prompts=PROMPTS)  # type: ignore[arg-type]
    assert outer.run(TASK).answer == "done"
    assert "await its async version" in sent(outer)[1].messages[-1].content
    outer.close()


def test_an_agent_shows_its_model_and_tools(agent: ToolAgent) -> None:
    assert repr(agent) == "ToolAgent('scripted', tools=['look', 'note', 'noted'])"
