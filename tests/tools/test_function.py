import asyncio
import functools
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from memagent import MemoryAgent, ScriptedModel
from memagent.errors import ConfigError, ToolError
from memagent.tools import Tool, tool
from memagent.tools.function import NOTHING, as_text


def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Args:
        a: the first.
    """
    return a + b


def test_a_function_becomes_a_tool() -> None:
    made = tool(add)
    assert (made.name, made.spec.description) == ("add", "Adds two numbers.")
    assert made.spec.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first."},
            "b": {"type": "integer", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (made.idempotent, made.timeout) == (False, 60.0)


def test_a_decorator_takes_what_the_function_takes() -> None:
    @tool(name="sum-up", description="Adds.", idempotent=True, timeout=math.inf)
    def add(a: int) -> int:
        return a

    assert isinstance(add, Tool)
    assert (add.name, add.spec.description, add.idempotent) == ("sum-up", "Adds.", True)
    assert add.timeout == math.inf


async def test_a_bare_decorator_and_an_async_function() -> None:
    @tool
    async def twice(word: str) -> str:
        await asyncio.sleep(0)
        return word * 2

    assert await twice.run({"word": "ab"}) == "abab"


async def test_a_function_that_only_returns_something_to_await() -> None:
    async def inner(word: str) -> str:
        return word

    @functools.wraps(inner)
    def outer(word: str) -> Any:
        return inner(word)

    # `wraps` makes it look like the async one, or not: both are right.
    del outer.__wrapped__
    assert await tool(outer).run({"word": "a"}) == "a"


async def test_a_method() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def up(self, by: int) -> int:
            self.count += by
            return self.count

    up = tool(Counter().up)
    assert [await up.run({"by": 2}), await up.run({"by": 3})] == ["2", "5"]


def yields() -> Iterator[int]:
    yield 1


async def yields_async() -> AsyncIterator[int]:
    yield 1


class Parrot:
    def __call__(self, word: str) -> str:
        return word


def füße() -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("add", r"'add' is not a function; write one around it"),
        (None, None),
        (3, r"3 is not a function"),
        (dict, r"is not a function"),
        (Parrot(), r"is not a function; write one around it"),
        (functools.partial(add, b=1), r"is not a function"),
        (tool(add), r"'add' is already a tool"),
        (yields, r"yields is a generator; a tool must return"),
        (yields_async, r"yields_async is a generator"),
        (lambda: None, r"<lambda> cannot be a tool: its name '<lambda>' .*give name="),
        (füße, r"its name 'füße' is invalid .*give name="),
    ],
    ids=range(11),
)
def test_what_is_no_function_with_a_name_is_refused(function: Any, told: str | None) -> None:
    if told is None:
        assert callable(tool(function))  # a decorator
        return
    with pytest.raises(ConfigError, match=told):
        tool(function)


async def test_a_name_that_is_no_identifier_may_be_replaced() -> None:
    assert tool(füße, name="feet").name == "feet"
    assert await tool(lambda: "x", name="x").run({}) == "x"


class Colour(StrEnum):
    RED = "red"


class Mode(str, Enum):  # noqa: UP042 - what many still write
    FAST = "fast"


class Point(BaseModel):
    x: int
    at: date


@dataclass
class Pair:
    a: Decimal
    b: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (Colour.RED, "red"),
        (Mode.FAST, "fast"),
        (None, NOTHING),
        (3, "3"),
        (True, "true"),
        (math.nan, "NaN"),
        ({"ä": [1, None]}, '{"ä":[1,null]}'),
        (Point(x=1, at=date(2026, 1, 2)), '{"x":1,"at":"2026-01-02"}'),
        (Pair(Decimal("1.50"), (1, 2)), '{"a":"1.50","b":[1,2]}'),
        ({1, 2}, "[1,2]"),
        (
            {"caf\udce9": ("caf\udce9", math.inf), 1: Path("\udce9")},
            '{"caf\ufffd":["caf\ufffd",Infinity],"1":"\ufffd"}',
        ),
    ],
    ids=range(13),
)
def test_text_is_as_it_is_and_other_values_are_json(value: Any, text: str) -> None:
    assert as_text(value) == text
    assert type(as_text(value)) is str


def circle() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize("value", [b"abc", {"a": b"\xff"}, object(), circle()], ids=range(4))
def test_what_has_no_json_form_is_told_of(value: Any) -> None:
    with pytest.raises(
        ToolError, match=rf"it ran, but returned a value of type {type(value).__name__} that"
    ) as error:
        as_text(value)
    assert len(str(error.value)) < 500
    assert ("bytes are not text" in str(error.value)) == isinstance(value, bytes | dict)


async def test_the_sync_api_may_be_used_by_a_tool() -> None:
    @tool
    def ask(question: str) -> str:
        agent = MemoryAgent(ScriptedModel(["the memory", "the answer"]), window=2048)
        return agent.ask("A text.", question).answer or "?"

    assert await ask.run({"question": "Why?"}) == "the answer"


def test_the_sync_api_may_be_used_by_a_tool_of_the_sync_api() -> None:
    from memagent.threads import run_sync

    @tool
    def inner() -> str:
        return run_sync(asyncio.sleep(0.01, "from within"))

    assert run_sync(inner.run({})) == "from within"


def test_a_process_needs_a_function_that_it_can_import() -> None:
    def inner() -> None: ...

    with pytest.raises(ConfigError, match=r"inner cannot run in a process.* top level of a module"):
        tool(inner, process=True)
    with pytest.raises(ConfigError, match="could not import it"):
        tool(lambda: None, name="x", process=True)
    with pytest.raises(ConfigError, match="could not import it"):
        tool(Parrot().__call__, name="x", process=True)


def test_an_async_function_does_not_run_in_a_process() -> None:
    async def inner() -> None: ...

    with pytest.raises(ConfigError, match=r"inner is async, so it cannot run in a process"):
        tool(inner, process=True)
