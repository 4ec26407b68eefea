"""A connection to an MCP server that any task, thread and event loop may use."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, cast

from memagent.errors import ConfigError, MemagentError, ToolError
from memagent.tools.wording import clip, message, named

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as ServedTool

logger = logging.getLogger("memagent")

SAID_LINES = 20
"""Of a server's error output, told of where it fails."""
LAST_WORDS = 0.2
"""Seconds in which the error output of a server that has ended is read to its end."""
PAGES = 100
"""Of a server's list of tools: one that never ends is cut."""


class Log:
    """The error output of a server: its last lines are kept, and all go to the log at level DEBUG."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._lines: deque[str] = deque(maxlen=SAID_LINES)
        read, write = os.pipe()
        self.output = os.fdopen(write, "w", encoding="utf-8")
        self._read = os.fdopen(read, encoding="utf-8", errors="replace")
        self._thread = threading.Thread(target=self._follow, name="memagent-mcp-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes this side. What the server still writes is read until it ends."""
        self.output.close()

    def said(self) -> str:
        """What a server that has ended said last, as the end of a sentence. Blocks for `LAST_WORDS`."""
        self._thread.join(LAST_WORDS)
        last = clip("\n".join(self._lines))
        return f"; its error output ends with:\n{last}" if last else ""

    def _follow(self) -> None:
        with self._read:
            for line in self._read:
                self._lines.append(clip(line.rstrip(), 500))
                logger.debug("%s: %s", self._who, line.rstrip())


Connect = Callable[[Log], AbstractAsyncContextManager["Client"]]
"""Opens a connection to a server; what that says goes to the log."""


class Session:
    """One connection, on an event loop in a thread of its own.

    The cancel scopes of the client have to be left by the task that entered them, and its streams belong to one event
    loop. Here it has both, so calls may come from anywhere, also from the loop of the sync API.

    Args:
        who: the server, as errors name it.
        connect: opens the connection.
        timeout: seconds for connecting.
    """

    def __init__(self, who: str, connect: Connect, timeout: float) -> None:
        self._who, self._connect, self._timeout = who, connect, timeout
        self._mutex = threading.Lock()
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._client: Client | None = None
        self.opened: Future[list[ServedTool]] = Future()
        """The server's tools, or a ConfigError or ToolError: why there is no connection."""
        self.closed: Future[None] = Future()
        """When all of it is gone, the server's process too."""
        threading.Thread(target=self._run, name="memagent-mcp", daemon=True).start()

    def end(self) -> None:
        """Ends the connection; `closed` tells when it is through. Twice is as good as once."""
        with self._mutex:
            self._over = True
            if self._loop is not None and self._ending is not None:
                with suppress(RuntimeError):  # the loop is closed by now
                    self._loop.call_soon_threadsafe(self._ending.set)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Calls a tool. Cancelling cancels it at the server.

        Raises:
            ToolError: the server is gone, or refuses.
        """
        with self._mutex:
            client, loop = self._client, self._loop
            if client is None or loop is None or self._over:
                raise ToolError(
                    f"the connection to {self._who} is closed, so its tools cannot be used"
                )
            work = client.call_tool(name, dict(arguments))
            future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # It was the session that was cancelled.
            raise ToolError(f"the connection to {self._who} ended while it ran") from None
        except Exception as error:
            raise ToolError(f"{self._who}: {_reason(error)}") from error

    def _run(self) -> None:
        log = Log(self._who)
        try:
            asyncio.run(self._live(log))
        except BaseException as error:  # noqa: BLE001 - it is for whoever opened it
            log.close()
            if self.opened.done():
                logger.warning("the connection to %s broke: %s", self._who, _reason(error))
            else:
                self.opened.set_exception(self._translated(error, log))
        finally:
            log.close()
            self.closed.set_result(None)

    async def _live(self, log: Log) -> None:
        with self._mutex:
            self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        connection = asyncio.create_task(self._hold(log, self._ending))
        if self._over:
            self._ending.set()
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait([connection, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not self.opened.done():
            connection.cancel()  # nobody waits for it any more, or it has failed
        try:
            await connection
        finally:
            with self._mutex:
                self._client = None
            # Calls that came before this are tasks after it, and end with the loop; none comes later.
            await asyncio.sleep(0)

    async def _hold(self, log: Log, ending: asyncio.Event) -> None:
        """Opens the connection, and closes it when it is told to: one task does both."""
        async with asyncio.timeout(self._timeout) as limit, self._connect(log) as client:
            tools = await _listed(client)
            limit.reschedule(None)
            self._client = client
            self.opened.set_result(tools)
            await ending.wait()

    def _translated(self, error: BaseException, log: Log) -> MemagentError:
        match cause := _leaf(error):
            case MemagentError():
                return cause
            case ImportError():
                return ConfigError(
                    f"MCP servers need the package mcp, 2.0 or newer ({cause}): pip install 'memagent[mcp]'"
                )
            case TimeoutError():
                what = f"{self._who} did not answer within {self._timeout:g} seconds"
                return ToolError(what + log.said())
            case FileNotFoundError() | PermissionError():
                return ConfigError(f"{self._who} cannot be started: {named(cause)}")
            case asyncio.CancelledError():
                return ToolError(f"the connection to {self._who} was closed before it was open")
            case _:
                return ToolError(
                    f"{self._who} cannot be connected to: {_reason(cause)}{log.said()}"
                )


async def _listed(client: Client) -> list[ServedTool]:
    """All pages of the server's list of tools."""
    page = await client.list_tools()
    tools = [*page.tools]
    for _ in range(PAGES):
        if not page.next_cursor:
            break
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _leaf(error: BaseException) -> BaseException:
    """The first real error of groups within groups, which task groups make."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    """What went wrong, by its message alone where that is the server's."""
    from mcp import MCPError

    cause = _leaf(error)
    return message(cause) if isinstance(cause, MCPError) and message(cause) else named(cause)
