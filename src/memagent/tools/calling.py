"""Runs a model's calls: whatever goes wrong becomes a result that the model can act on."""

import asyncio
import json
import logging
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from memagent.errors import BadArguments, ConfigError, ToolError
from memagent.messages import ToolCall, ToolSpec
from memagent.texts import clip, message, name_error, nearest, quote, repair_surrogates
from memagent.tools.base import Tool, ToolContext, ToolOutput
from memagent.tools.function import tool

logger = logging.getLogger("memagent")

GRACE = 1.0
"""Seconds that a tool gets to end after its timeout or the caller's cancellation, before it is abandoned."""

RESULT_CHARS = 2_000_000
"""Maximum characters of a result: far over any window, so a model reads it in parts. The rest is not kept."""


class Toolset(dict[str, Tool]):
    """Tools by name.

    Args:
        tools: tools, and functions, which `tool` converts.

    Raises:
        ConfigError: no tools were given, two have the same name, or one can't be a tool.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        # Checked at run time: not everybody has a type checker.
        items: Any = tools
        if isinstance(items, (str, Mapping, Tool)) or not isinstance(items, Iterable):
            raise ConfigError(f"tools={quote(tools)}: give a list of tools or functions")
        super().__init__()
        for item in cast("Iterable[Any]", items):
            entry = item if isinstance(item, Tool) else tool(cast("Callable[..., Any]", item))
            if entry.name in self:
                raise ConfigError(
                    f"two tools are named {entry.name!r}; rename one of them (`tool(function, name=...)`, or "
                    f"`prefix=` for an MCP server)"
                )
            self[entry.name] = entry
        if not self:
            raise ConfigError("no tools were given; give at least one")

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The specs of the tools for the model, in order."""
        return tuple(entry.spec for entry in self.values())

    async def run(self, call: ToolCall, context: ToolContext | None = None) -> ToolOutput:
        """Runs one call. Never raises what a tool raises: only cancellation and KeyboardInterrupt pass through.

        A tool still running after a timeout or cancellation gets `GRACE` seconds to end and is then abandoned. The
        context is for tools that take one; the default is that of a first attempt, with a random key.
        """
        try:
            text = await self._run(call, context)
            if (more := len(text) - RESULT_CHARS) > 0:
                text = (
                    f"{text[:RESULT_CHARS]}\n[the result was cut here: its last {more:,} characters were not kept; "
                    f"ask for less at a time]"
                )
            return ToolOutput(repair_surrogates(text))
        except BadArguments as error:
            problem = f"{clip(call.name, 64)}: {message(error)}"
        except ToolError as error:
            problem = f"{call.name} failed: {message(error) or 'it does not say why'}"
        except Exception as error:
            logger.debug("tool %s failed", call.name, exc_info=error)
            problem = f"{call.name} failed: {name_error(error)}"
        return ToolOutput(repair_surrogates(problem), ok=False)

    async def _run(self, call: ToolCall, context: ToolContext | None) -> str:
        callee, arguments = self._find(call.name), list[Any]([read_arguments(call.arguments)])
        if callee.takes_context:
            arguments.append(context or ToolContext(call.id, 1, secrets.token_hex(16)))
        text: Any = await _in_time(callee, *arguments)
        if not isinstance(text, str):
            raise TypeError(f"it returned {quote(text)} where a text is expected")
        return text

    def _find(self, name: str) -> Tool:
        if name in self:
            return self[name]
        close = nearest(name[:64], self)
        hint = f" Did you mean {close!r}?" if close else ""
        names = clip(", ".join(self), 1000)
        raise BadArguments(f"there is no such tool.{hint} The tools are: {names}")


def read_arguments(text: str) -> dict[str, Any]:
    """Parses the arguments of a call. An empty text means no arguments: some servers send that.

    Unescaped line ends in strings are accepted although JSON forbids them: models forget to escape them.

    Raises:
        BadArguments: they aren't a JSON object.
    """
    if not text.strip():
        return {}
    try:
        value: Any = _DECODER.decode(text)
        # Lone surrogates can be written in JSON (`\\ud800`), but nowhere else.
        json.dumps(value, ensure_ascii=False).encode()
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        fault = f"must be a JSON object, not {quote(value)}"
    except json.JSONDecodeError as error:
        excerpt = text[max(0, error.pos - 20) : error.pos + 20]
        fault = f"are not JSON: {error.msg} at character {error.pos}, near {quote(excerpt)}"
    except UnicodeEncodeError:
        fault = "contain a lone surrogate; write the character itself"
    except ValueError as error:
        fault = f"are not JSON: {clip(str(error), 300)}"
    except RecursionError:
        fault = "are nested too deeply"
    raise BadArguments(f'the arguments {fault}. Write one JSON object, such as {{"name": "value"}}')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in members if names.count(name) > 1)
        raise ValueError(f"{quote(duplicate)} is there twice")
    return members


def _finite(digits: str) -> float:
    if math.isfinite(number := float(digits)):
        return number
    raise ValueError(f"{quote(digits)} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite, strict=False
)


async def _in_time(callee: Tool, *arguments: Any) -> Any:
    """Awaits a tool's result. Raises a `ToolError` if it took longer than its timeout or someone else cancelled it."""
    fate = "it may have done a part of its work"

    async def run() -> Any:
        nonlocal fate
        try:
            return await callee.run(*arguments)
        except asyncio.CancelledError as error:
            fate = "; ".join(getattr(error, "__notes__", ())) or fate  # a tool may know better
            raise
        except (Exception, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit would end the event loop; extensions panic
            raise ToolError(name_error(error)) from error

    # A separate task: a tool may swallow its cancellation, and would then be awaited.
    task = asyncio.ensure_future(run())
    try:
        # Not every event loop's clock accepts infinity.
        timeout = None if math.isinf(callee.timeout) else callee.timeout
        in_time, _ = await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            await _end(callee.name, task)
    if not in_time:
        raise ToolError(f"it took longer than {callee.timeout:g} seconds and was given up; {fate}")
    if task.cancelled():
        raise ToolError("it was cancelled while it ran")
    error = task.exception()
    if isinstance(error, GeneratorExit):  # raised by the tool: nobody closed its coroutine
        raise ToolError(name_error(error)) from error
    return task.result()


async def _end(name: str, task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=GRACE)
    if not task.done():
        logger.warning("tool %s ignored its cancellation and was left running", name)
        _left_alone.add(task)
        task.add_done_callback(_left_alone.discard)
    # Retrieved, so that it isn't reported as never retrieved.
    task.add_done_callback(lambda future: future.cancelled() or future.exception())


_left_alone: set[asyncio.Task[Any]] = set()
"""Keeps tasks alive: the event loop itself doesn't."""
