"""A connection to an MCP server."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, cast

from memagent.errors import ConfigError, MemagentError, ToolError
from memagent.texts import clip, message, name_error, name_extra

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as ServedTool

logger = logging.getLogger("memagent")

SAID_LINES = 20
"""Lines of a server's error output shown if it fails."""
LAST_WORDS = 0.2
"""Seconds to read the remaining error output of a server that has ended."""
PAGES = 100
"""Maximum pages of a server's list of tools, in case it never ends."""


class Log:
    """A server's error output: the last lines are kept, and all are logged at level DEBUG."""

    def __init__(self, who: str) -> None:
        self._lines: deque[str] = deque(maxlen=SAID_LINES)
        read, write = os.pipe()
        self.output = os.fdopen(write, "w", encoding="utf-8")
        """Where the server writes: closed on our side when the connection ends, but read until the server ends."""
        self._thread = threading.Thread(target=self._follow, args=(who, read), daemon=True)
        self._thread.start()

    def read_last_words(self) -> str:
        """Returns the last output of an ended server, as the end of a sentence. Blocks for up to `LAST_WORDS`."""
        self._thread.join(LAST_WORDS)
        last = clip("\n".join(self._lines))
        return f"; its error output ends with:\n{last}" if last else ""

    def _follow(self, server: str, pipe: int) -> None:
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(clip(line.rstrip(), 500))
                logger.debug("%s: %s", server, line.rstrip())


Connect = Callable[[Log], AbstractAsyncContextManager["Client"]]
"""Opens a connection to a server; its output goes to the log."""


class Connection:
    """One connection, held by a task: await its methods on the background loop.

    The client's cancel scopes must be left by the task that entered them, and its streams belong to one event
    loop. `who` names the server in errors; `timeout` is the seconds for connecting.
    """

    def __init__(self, who: str, connect: Connect, timeout: float) -> None:
        self._who, self._connect, self._timeout = who, connect, timeout
        self._client: Client | None = None
        self._ending = asyncio.Event()
        self._holding: asyncio.Task[BaseException | None] | None = None
        self._mending: asyncio.Task[MemagentError | None] | None = None
        self._doubted = False
        """Whether a call failed, so the connection may be broken."""

    async def open(self) -> list[ServedTool]:
        """Connects, and lists the server's tools.

        Raises:
            ConfigError: the server can't be started.
            ToolError: connecting failed; the message says why.
        """
        log = Log(self._who)
        listing: asyncio.Future[list[ServedTool]] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(log, listing))
        await asyncio.wait([self._holding, listing], return_when=asyncio.FIRST_COMPLETED)
        if listing.done():
            return listing.result()
        error = _leaf(self._holding.result() or asyncio.CancelledError())
        raise self._translate(error, await asyncio.to_thread(log.read_last_words)) from error

    async def close(self) -> None:
        """Ends the connection. Returns once everything has ended, including the server's process."""
        self._ending.set()
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.wait([self._mending])
        if self._holding is not None:
            if self._client is None:
                self._holding.cancel()  # not open yet: nobody waits for it any more
            await asyncio.wait([self._holding])

    async def mend(self) -> None:
        """Reconnects if the connection broke. Calls share the attempt, which continues if they are cancelled.

        Raises:
            ToolError: connecting failed.
        """
        if self._holding is None or self._ending.is_set():
            return
        if self._mending is None or self._mending.done():
            if not self._doubted and not self._holding.done():
                return
            self._mending = asyncio.create_task(self._reconnect(self._holding))
        mending = self._mending
        await asyncio.wait([mending])
        if not mending.cancelled() and (error := mending.result()) is not None:
            raise ToolError(str(error)) from error

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Calls a tool; cancelling cancels it on the server.

        Raises:
            ToolError: the server has ended, or refuses.
        """
        if self._client is None or self._holding is None or self._ending.is_set():
            raise ToolError(f"the connection to {self._who} is closed, so its tools cannot be used")
        work = asyncio.ensure_future(self._client.call_tool(name, dict(arguments)))
        try:
            # Not every call fails when its connection ends.
            await asyncio.wait([work, self._holding], return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or work.cancelled():
                raise ToolError(f"the connection to {self._who} ended while it ran")
            if error := work.exception():
                self._doubted = True
                raise ToolError(f"{self._who}: {_reason(error)}") from error
            return work.result()
        finally:
            work.cancel()
            # Retrieved, so that it isn't reported as never retrieved.
            work.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def _reconnect(self, holding: asyncio.Task[BaseException | None]) -> MemagentError | None:
        """Reconnects unless the connection still lists its tools. Returns the error, if any."""
        if self._client is not None:
            with suppress(Exception):
                async with asyncio.timeout(self._timeout):
                    await self._client.list_tools(cursor=None)
                self._doubted = False
        if not self._doubted and not holding.done():
            return None
        holding.cancel()
        await asyncio.wait([holding])
        logger.warning("connecting to %s again", self._who)
        self._doubted = False
        try:
            await self.open()
        except MemagentError as error:
            return error
        return None

    async def _hold(
        self, log: Log, listing: asyncio.Future[list[ServedTool]]
    ) -> BaseException | None:
        """Opens the connection and closes it on request, in the same task. Returns the error, if any."""
        try:
            async with asyncio.timeout(self._timeout) as limit, self._connect(log) as client:
                listing.set_result(await _list_tools(client))
                limit.reschedule(None)
                self._client = client
                await self._ending.wait()
        except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:  # noqa: BLE001
            if listing.done() and not isinstance(error, asyncio.CancelledError):
                logger.warning("the connection to %s broke: %s", self._who, _reason(error))
            return error
        finally:
            self._client = None
            log.output.close()

    def _translate(self, error: BaseException, hint: str) -> MemagentError:
        match error:
            case ImportError():
                return ConfigError(name_extra(self._who, "mcp"))
            case TimeoutError():
                problem = f"{self._who} did not answer within {self._timeout:g} seconds"
                return ToolError(problem + hint)
            case FileNotFoundError() | PermissionError():
                return ConfigError(f"{self._who} cannot be started: {name_error(error)}")
            case asyncio.CancelledError():
                return ToolError(f"the connection to {self._who} was closed before it was open")
            case _:
                return ToolError(f"{self._who} cannot be connected to: {_reason(error)}{hint}")


async def _list_tools(client: Client) -> list[ServedTool]:
    tools: list[ServedTool] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _leaf(error: BaseException) -> BaseException:
    """Returns the first real error in the nested exception groups of task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    """Returns the reason for an error: only the message if the server sent it."""
    from mcp import MCPError

    cause = _leaf(error)
    return message(cause) if isinstance(cause, MCPError) and message(cause) else name_error(cause)
