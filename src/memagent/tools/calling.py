"""Running the calls of a model: whatever goes wrong is a result that the model can act upon."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, cast

from memagent.errors import BadArguments, ConfigError, ToolError
from memagent.messages import ToolCall, ToolSpec
from memagent.texts import clip, message, name_error, quote, repair_surrogates
from memagent.tools.base import Tool, ToolOutput
from memagent.tools.function import tool

logger = logging.getLogger("memagent")

GRACE = 1.0
"""Seconds that a tool has to end after its time is up, or after the caller was cancelled, before it is left alone."""

RESULT_CHARS = 2_000_000
"""Of a result: far over any window, so that a model reads it in parts. What is behind them is not kept."""


class Toolset(Mapping[str, Tool]):
    """Tools by name.

    Args:
        tools: tools, and functions that `tool` is called on.

    Raises:
        ConfigError: none, two of one name, or what can be no tool.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        # Whatever is handed in: not everybody has a type checker.
        given: Any = tools
        if isinstance(given, (str, Mapping, Tool)) or not isinstance(given, Iterable):
            raise ConfigError(f"tools={quote(tools)}: give a list of tools or functions")
        self._tools: dict[str, Tool] = {}
        for one in cast("Iterable[Any]", given):
            made = one if isinstance(one, Tool) else tool(cast("Callable[..., Any]", one))
            if made.name in self._tools:
                raise ConfigError(
                    f"two tools are named {made.name!r}; give one another name (`tool(function, name=...)`, or "
                    f"`prefix=` for an MCP server)"
                )
            self._tools[made.name] = made
        if not self._tools:
            raise ConfigError("there are no tools; give at least one")

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of the tools, in order."""
        return tuple(one.spec for one in self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    async def run(self, call: ToolCall) -> ToolOutput:
        """Runs one call. Never raises what a tool raises: cancellation and KeyboardInterrupt alone pass through.

        A tool that is not through when it is cancelled, or out of time, has `GRACE` to end and is then left alone.
        """
        try:
            one = self._find(call.name)
            text: Any = await _in_time(one, read_arguments(call.arguments))
            if not isinstance(text, str):
                raise TypeError(f"it returned {quote(text)} where a text is expected")  # noqa: TRY301 - a result
            return ToolOutput(repair_surrogates(_cut(text)))
        except BadArguments as error:
            wrong = f"{clip(call.name, 64)}: {message(error)}"
        except ToolError as error:
            wrong = f"{call.name} failed: {message(error) or 'it does not say why'}"
        except Exception as error:
            logger.debug("tool %s failed", call.name, exc_info=error)
            wrong = f"{call.name} failed: {name_error(error)}"
        return ToolOutput(repair_surrogates(wrong), ok=False)

    def _find(self, name: str) -> Tool:
        if name in self._tools:
            return self._tools[name]
        close = difflib.get_close_matches(name[:64], self._tools, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        names = clip(", ".join(self._tools), 1000)
        raise BadArguments(f"there is no such tool.{meant} The tools are: {names}")


def _cut(text: str) -> str:
    """The text, or its beginning and what is missing."""
    if (more := len(text) - RESULT_CHARS) <= 0:
        return text
    return (
        f"{text[:RESULT_CHARS]}\n[the result was cut here: its last {more:,} characters were not kept; ask for less at "
        f"a time]"
    )


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call. An empty text is no arguments: some servers send that.

    Line ends within texts are taken as they are, though JSON wants them escaped: models forget it.

    Raises:
        BadArguments: they are no JSON object.
    """
    if not text.strip():
        return {}
    try:
        value: Any = _DECODER.decode(text)
        # Half surrogate pairs can be written in JSON (`\\ud800`), and nowhere else.
        json.dumps(value, ensure_ascii=False).encode()
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        wrong = f"must be a JSON object, not {quote(value)}"
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        wrong = f"are not JSON: {error.msg} at character {error.pos}, near {quote(near)}"
    except UnicodeEncodeError:
        wrong = "hold half of a surrogate pair; write the character itself"
    except ValueError as error:
        wrong = f"are not JSON: {clip(str(error), 300)}"
    except RecursionError:
        wrong = "are nested too deeply"
    raise BadArguments(f'the arguments {wrong}. Write one JSON object, such as {{"name": "value"}}')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"{quote(twice)} is there twice")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{quote(constant)} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_number(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite, strict=False
)


async def _in_time(one: Tool, arguments: Mapping[str, Any]) -> Any:
    """What a tool returns within its time.

    Raises:
        ToolError: it took longer, or was cancelled by somebody else.
        Exception: what it raises.
    """

    async def run() -> Any:
        # A task that raises SystemExit ends the event loop.
        try:
            return await one.run(arguments)
        except SystemExit as error:
            raise ToolError(f"SystemExit: {error}") from error

    # A task of its own: a tool may swallow its cancellation, and would then be waited for.
    task = asyncio.ensure_future(run())
    try:
        # Not every event loop has a clock that infinity fits.
        timeout = None if math.isinf(one.timeout) else one.timeout
        in_time, _ = await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            await _end(one.name, task)
    if not in_time:
        raise ToolError(
            f"it took longer than {one.timeout:g} seconds and was given up; it may have done a part of its work"
        )
    if task.cancelled():
        raise ToolError("it was cancelled while it ran")
    return task.result()


async def _end(name: str, task: asyncio.Task[Any]) -> None:
    """Cancels a task and waits a little for it."""
    task.cancel()
    await asyncio.wait([task], timeout=GRACE)
    if not task.done():
        logger.warning("tool %s goes on although it was cancelled; it is left alone", name)
        _left_alone.add(task)
        task.add_done_callback(_left_alone.discard)
    # Looked at, so that nobody reports it as lost.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


_left_alone: set[asyncio.Task[Any]] = set()
"""The event loop itself keeps no task."""
