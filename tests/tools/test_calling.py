import asyncio
import json
import logging
import math
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from memagent.errors import BadArguments, ConfigError, ToolError
from memagent.messages import ToolCall, ToolSpec
from memagent.tools import Tool, ToolOutput, Toolset, calling, tool
from memagent.tools.calling import read_arguments


def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


async def echo(word: str = "-") -> str:
    return word


def call(name: str, arguments: str = "", **given: Any) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments or json.dumps(given))


def custom(run: Any, **settings: Any) -> Toolset:
    return Toolset([Tool(ToolSpec(name="custom"), run, **settings)])


# --- which tools there are


def test_functions_and_tools_are_tools() -> None:
    tools = Toolset([add, tool(echo, name="say")])
    assert [spec.name for spec in tools.specs] == ["add", "say"]
    assert tools["say"].name == "say"
    assert (len(tools), list(tools), "add" in tools, "x" in tools) == (
        2,
        ["add", "say"],
        True,
        False,
    )


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([], "no tools were given; give at least one"),
        ([add, add], r"two tools are named 'add'.*name="),
        ("add", r"tools='add': give a list"),
        (add, r"give a list of tools or functions"),
        (tool(add), r"give a list of tools or functions"),
        ({"add": add}, r"give a list of tools or functions"),
        ([3], r"3 is not a function"),
        (None, r"tools=None: give a list"),
    ],
    ids=range(8),
)
def test_what_are_no_tools_is_refused(tools: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Toolset(tools)


# --- calls that are not as they should be


async def test_a_call_gives_its_result() -> None:
    assert await Toolset([add]).run(call("add", a=1)) == ToolOutput("3", ok=True)


@pytest.mark.parametrize("arguments", ["", "  \n", "{}"], ids=repr)
async def test_an_empty_text_is_no_arguments(arguments: str) -> None:
    output = await Toolset([echo]).run(ToolCall(id="1", name="echo", arguments=arguments))
    assert output == ToolOutput("-")


async def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    output = await Toolset([add, echo]).run(call("ad", a=1))
    assert output == ToolOutput(
        "ad: there is no such tool. Did you mean 'add'? The tools are: add, echo", ok=False
    )
    far = await Toolset([add, echo]).run(call("q" * 100_000))
    assert "mean" not in far.text
    assert far.text.endswith("The tools are: add, echo")
    assert len(far.text) < 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{'a': 1}", r"not JSON: Expecting property name .* at character 1, near \"\{'a': 1\}\""),
        ('{"a": 1', r"not JSON: Expecting ',' delimiter"),
        ('{"a": 1} {"a": 2}', r"not JSON: Extra data"),
        ("[1]", r"must be a JSON object, not \[1\]"),
        ("null", "must be a JSON object, not None"),
        ('"{}"', "must be a JSON object, not '{}'"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": {"b": 1, "c": 1, "b": 1}}', "'b' is there twice"),
        ('{"a": NaN}', "'NaN' is not a JSON number"),
        ('{"a": -Infinity}', "'-Infinity' is not a JSON number"),
        ('{"a": 1e999}', "'1e999' is not a JSON number"),
        ('{"a": 1' + "0" * 10_000 + "}", "not JSON: "),
        ('{"a": ' + "[" * 200_000, "nested too deeply"),
        ('{"a": "\\ud800"}', "a lone surrogate"),
        (
            '{"a": "x", "c": 1}',
            r"- a: Input should be a valid integer.*not 'x'\n- c: there is no such",
        ),
    ],
    ids=range(15),
)
async def test_malformed_arguments_are_answered_with_what_is_wrong(
    arguments: str, told: str
) -> None:
    output = await Toolset([add]).run(call("add", arguments))
    assert not output.ok
    assert output.text.startswith("add: the arguments ")
    assert "Traceback" not in output.text
    assert len(output.text) < 2500
    assert re.search(told, output.text), output.text


def test_line_ends_within_texts_are_taken() -> None:
    assert read_arguments('{"text": "one\ntwo\t"}') == {"text": "one\ntwo\t"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON), st.booleans())
def test_what_is_written_as_json_is_read(value: dict[str, Any], ascii_only: bool) -> None:
    assert read_arguments(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.text() | st.text(alphabet='{}[]":,\\u0d8 1e'))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found: object = read_arguments(text)
    except BadArguments as error:
        found = error
    assert isinstance(found, dict) or len(str(found)) < 600


# --- tools that fail


class Own(BaseModel):
    number: int


def fail(kind: str) -> str:
    match kind:
        case "value":
            raise ValueError("no such page")
        case "long":
            raise ValueError("x" * 1_000_000)
        case "empty":
            raise KeyError
        case "told":
            raise ToolError("the page is empty; take another")
        case "untold":
            raise ToolError
        case "exit":
            raise SystemExit(2)
        case "stop":
            raise StopIteration
        case "own model":
            Own.model_validate({"number": "x"})
        case "group":
            raise ExceptionGroup("several", [ValueError("a"), ValueError("b")])
    return "?"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("value", "fail failed: ValueError: no such page"),
        ("long", "fail failed: ValueError: " + "x" * 2000 + "... (998000 more characters)"),
        ("empty", "fail failed: KeyError"),
        ("told", "fail failed: the page is empty; take another"),
        ("untold", "fail failed: it does not say why"),
        ("exit", "fail failed: SystemExit: 2"),
        ("stop", "fail failed: StopIteration"),
        ("group", "fail failed: ExceptionGroup: several (2 sub-exceptions)"),
    ],
    ids=lambda value: value[:12],
)
async def test_an_exception_is_a_result(kind: str, told: str) -> None:
    assert await Toolset([fail]).run(call("fail", kind=kind)) == ToolOutput(told, ok=False)


class Panic(BaseException):
    """As extensions in Rust raise it."""


async def test_an_exception_of_an_async_tool_is_a_result() -> None:
    async def leave(how: str) -> str:
        if how == "exit":
            raise SystemExit(2)
        if how == "panic":
            raise Panic("out of bounds")
        if how == "closed":
            raise GeneratorExit("by a library")
        task = asyncio.create_task(asyncio.sleep(10))
        task.cancel()
        await task
        return "?"

    tools = Toolset([leave])
    assert (await tools.run(call("leave", how="exit"))).text == "leave failed: SystemExit: 2"
    panicked = await tools.run(call("leave", how="panic"))
    assert panicked.text == "leave failed: Panic: out of bounds"
    closed = await tools.run(call("leave", how="closed"))
    assert closed.text == "leave failed: GeneratorExit: by a library"
    inner = await tools.run(call("leave", how="cancelled inside"))
    assert inner == ToolOutput("leave failed: it was cancelled while it ran", ok=False)


async def test_a_tools_own_validation_is_not_taken_for_wrong_arguments() -> None:
    output = await Toolset([fail]).run(call("fail", kind="own model"))
    assert output.text.startswith("fail failed: ValidationError: 1 validation error for Own")


async def test_a_run_of_ones_own_may_be_wrong_too() -> None:
    async def number(arguments: Mapping[str, Any]) -> Any:
        return 3

    def not_async(arguments: Mapping[str, Any]) -> Any:
        return "x"

    told = (await custom(number).run(call("custom"))).text
    assert told == "custom failed: TypeError: it returned 3 where a text is expected"
    assert not (await custom(not_async).run(call("custom"))).ok


async def test_a_result_can_be_encoded() -> None:
    async def halves(arguments: Mapping[str, Any]) -> str:
        return "a\ud800"

    assert await custom(halves).run(call("custom")) == ToolOutput("a\ufffd")

    async def failing(arguments: Mapping[str, Any]) -> str:
        raise ValueError("\udfff")

    assert (await custom(failing).run(call("custom"))).text == "custom failed: ValueError: \ufffd"


# --- time


async def test_a_tool_that_takes_too_long_is_given_up() -> None:
    ended = asyncio.Event()

    @tool(timeout=0.05)
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "?"

    output = await Toolset([wait]).run(call("wait"))
    assert output == ToolOutput(
        "wait failed: it took longer than 0.05 seconds and was given up; it may have done a part of its work",
        ok=False,
    )
    assert ended.is_set()


async def test_a_thread_that_takes_too_long_is_left_alone() -> None:
    go_on = threading.Event()

    @tool(timeout=0.05)
    def wait() -> None:
        go_on.wait(30)

    started = time.perf_counter()
    assert "0.05 seconds" in (await Toolset([wait]).run(call("wait"))).text
    assert time.perf_counter() - started < 10
    go_on.set()


async def test_no_limit_is_none() -> None:
    assert (await Toolset([tool(echo, timeout=math.inf)]).run(call("echo", word="x"))).text == "x"


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "GRACE", 0.05)


class Stubborn:
    """A tool that swallows its cancellation."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.through = asyncio.Event()

    async def __call__(self, arguments: Mapping[str, Any]) -> str:
        while not self.go_on.is_set():
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                continue
        self.through.set()
        raise ValueError("nobody hears of it")


@pytest.mark.usefixtures("short_grace")
async def test_a_tool_that_ignores_its_cancellation_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = Stubborn()
    with caplog.at_level(logging.WARNING, "memagent"):
        output = await asyncio.wait_for(custom(stubborn, timeout=0.05).run(call("custom")), 10)
    assert "0.05 seconds" in output.text
    assert "ignored its cancellation" in caplog.text
    stubborn.go_on.set()
    await asyncio.wait_for(stubborn.through.wait(), 10)


@pytest.mark.usefixtures("short_grace")
async def test_cancelling_passes_through_even_if_the_tool_ignores_it() -> None:
    stubborn = Stubborn()
    task = asyncio.create_task(custom(stubborn).run(call("custom")))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    stubborn.go_on.set()
    await asyncio.wait_for(stubborn.through.wait(), 10)


async def test_cancelling_waits_until_the_tool_has_cleaned_up() -> None:
    steps: list[str] = []

    async def run(arguments: Mapping[str, Any]) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            steps.append("clean")
        return "?"

    task = asyncio.create_task(custom(run).run(call("custom")))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["clean"]


def test_keyboard_interrupt_passes_through() -> None:
    async def run(arguments: Mapping[str, Any]) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(custom(run).run(call("custom")))


# --- several at once


async def test_twenty_calls_at_once_of_each_kind() -> None:
    # Six is all that `asyncio.to_thread` would run at once on two cores.
    in_threads, on_the_loop = threading.Barrier(20), asyncio.Barrier(20)

    def in_thread(number: int) -> int:
        in_threads.wait(30)
        return number

    async def on_loop(number: int) -> int:
        await asyncio.wait_for(on_the_loop.wait(), 30)
        return number

    tools = Toolset([in_thread, on_loop])
    names = ["in_thread"] * 20 + ["on_loop"] * 20
    outputs = await asyncio.gather(*(tools.run(call(n, number=i)) for i, n in enumerate(names)))
    assert [output.text for output in outputs] == [str(i) for i in range(40)]
