"""MCP servers as sources of tools (the extra `mcp`)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

from memagent.errors import ConfigError, ToolError
from memagent.messages import ToolSpec
from memagent.threads import Closing, in_background
from memagent.tools.base import Tool
from memagent.tools.mcp_connection import Connect, Connection, Log

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as ServedTool

logger = logging.getLogger("memagent")

NAME_CHARS = 64
"""Maximum length of a tool name that model servers accept."""
HTTP_SECONDS = 30.0
"""Seconds for connecting and sending; replies may take as long as the tool's timeout."""


class McpServer(Closing):
    """An MCP server: `async with McpServer.stdio("uvx", "some-server") as server: Toolset(server.tools)`.

    Works with `with` and `async with`, and its tools with the sync API: the connection lives in memagent's
    background thread. If it breaks, the call in progress fails, and the model is told so; the next one reconnects.

    A server sees what a model sends it, and its descriptions become part of the prompt. It
    declares whether a tool is idempotent or read-only (`idempotentHint`, `readOnlyHint`).

    Use `stdio` or `http` to make one.
    """

    def __init__(
        self, who: str, connect: Connect, prefix: str, timeout: float, connect_timeout: float
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,32}", prefix):
            raise ConfigError(f"prefix={prefix!r}: use at most 32 letters, digits, '_' or '-'")
        if not (timeout > 0 and connect_timeout > 0):
            raise ConfigError(
                f"timeout and connect_timeout must be more than 0 seconds, got {timeout!r} and {connect_timeout!r}"
            )
        self._who, self._connect, self._prefix = who, connect, prefix
        self._timeout, self._connect_timeout = timeout, connect_timeout
        self._connection: Connection | None = None
        self._tools: list[Tool] | None = None

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        prefix: str = "",
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
    ) -> Self:
        """Makes a server that runs as a local process, which ends with the connection.

        Args:
            command: the program.
            args: its arguments. memagent's errors and logs don't show them.
            env: environment variables, in addition to those that any program needs (PATH, HOME and the like). No others
                are passed on: a server should not see other services' keys.
            cwd: its working directory; by default this process's.
            prefix: prefix for the names of its tools.
            timeout: seconds that a call may take.
            connect_timeout: seconds that starting may take.

        Raises:
            ConfigError: the prefix or a timeout is invalid.
        """

        def connect(log: Log) -> AbstractAsyncContextManager[Client]:
            from mcp import Client, StdioServerParameters, stdio_client

            parameters = StdioServerParameters(
                command=command,
                args=list(args),
                env=None if env is None else dict(env),
                cwd=None if cwd is None else fspath(cwd),
            )
            return Client(stdio_client(parameters, errlog=log.output))

        # Arguments may hold secrets, and this name goes to models, logs and run stores.
        if not isinstance(cast("object", command), str):
            kind = type(command).__name__
            raise ConfigError(f"command is a {kind}: pass the program and its arguments separately")
        name = f"the MCP server {' '.join([command[:200], *['...'] * bool(args)])!r}"
        return cls(name, connect, prefix, timeout, connect_timeout)

    @classmethod
    def http(
        cls,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        prefix: str = "",
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
    ) -> Self:
        """Makes the client of a server that is already running (streamable HTTP).

        Args:
            url: its endpoint, such as `http://localhost:8000/mcp`.
            headers: sent with each request, such as a key. memagent's errors and logs don't show them.
            prefix: prefix for the names of its tools.
            timeout: seconds that a call may take.
            connect_timeout: seconds that connecting may take.

        Raises:
            ConfigError: the URL, the prefix or a timeout is invalid.
        """
        name = f"the MCP server {_hide_secrets(url)!r}"

        @asynccontextmanager
        async def connect(log: Log) -> AsyncGenerator[Client]:
            import httpx2
            from mcp import Client
            from mcp.client.streamable_http import streamable_http_client

            limits = httpx2.Timeout(HTTP_SECONDS, read=None)
            async with (
                httpx2.AsyncClient(headers=dict(headers or {}), timeout=limits) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                yield client

        return cls(name, connect, prefix, timeout, connect_timeout)

    @property
    def tools(self) -> list[Tool]:
        """The server's tools, as it listed them when it was opened.

        Raises:
            ConfigError: it was never opened.
        """
        if self._tools is None:
            raise ConfigError(f"{self._who} is not open; use it with `with` or `async with`")
        return list(self._tools)

    async def __aenter__(self) -> Self:
        if self._connection is not None:
            raise ConfigError(f"{self._who} is already open; create another McpServer")
        self._connection = Connection(self._who, self._connect, self._connect_timeout)
        try:
            tools = await in_background(self._connection.open())
            tasks = [t for t in tools if t.execution and t.execution.task_support == "required"]
            if tasks:
                absent = [tool.name for tool in tasks]
                logger.warning("%s: %r run as tasks only, so they are left out", self._who, absent)
                tools = [tool for tool in tools if tool not in tasks]
            names = valid_names([tool.name for tool in tools], self._prefix)
            self._tools = [
                _tool(self._connection, tool, name, self._timeout)
                for tool, name in zip(tools, names, strict=True)
            ]
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Closes the connection, and ends a server that was started for it (within 4 seconds)."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.shield(in_background(connection.close()))

    def __repr__(self) -> str:
        return f"<{self._who.removeprefix('the ')}>"


def valid_names(names: Sequence[str], prefix: str) -> list[str]:
    """Returns a unique name that model servers accept for each of a server's tools."""
    unique_names: list[str] = []
    for name in names:
        plain = (prefix + re.sub(r"[^A-Za-z0-9_-]", "_", name))[:NAME_CHARS] or "tool"
        candidate, number = plain, 2
        while candidate in unique_names:
            candidate = f"{plain[: NAME_CHARS - len(str(number)) - 1]}_{number}"
            number += 1
        unique_names.append(candidate)
    return unique_names


def _tool(connection: Connection, served: ServedTool, name: str, timeout: float) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        try:
            await in_background(connection.mend())
        except asyncio.CancelledError as error:
            error.add_note("its server is being connected to again, and nothing was sent")
            raise
        result = await in_background(connection.call(served.name, arguments))
        text = result_text(result)
        if result.is_error:
            raise ToolError(text or "the server does not say why")
        return text

    hints = served.annotations
    spec = ToolSpec(
        name=name,
        description=served.description or served.title or "",
        parameters=served.input_schema,
    )
    idempotent = bool(hints and hints.idempotent_hint)
    read_only = bool(hints and hints.read_only_hint)
    return Tool(spec, run, idempotent=idempotent, read_only=read_only, timeout=timeout)


def result_text(result: CallToolResult) -> str:
    """Returns a result as shown to a model: its texts, or its structured content if it has none.

    Anything else is described by its kind and size.
    """
    parts = [_part(block) for block in result.content]
    structured: Any = result.structured_content
    if structured is not None and all(block.type != "text" for block in result.content):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return "\n".join(parts)


def _part(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.mime_type}, {_size(block.data)} bytes]"
        case "resource_link":
            return f"[{block.mime_type or 'resource'} at {block.uri}]"
        case "resource":
            resource = cast("Any", block.resource)
            if hasattr(resource, "text"):
                return resource.text
            return f"[{resource.mime_type or 'resource'} at {resource.uri}, {_size(resource.blob)} bytes]"


def _size(base64: str) -> int:
    """Returns the number of bytes encoded by a base64 text."""
    return len(base64.rstrip("=\n")) * 3 // 4


def _hide_secrets(url: str) -> str:
    """Returns the URL without potential secrets: user, password and query."""
    with suppress(ValueError):
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        if parts.scheme in ("http", "https") and parts.hostname:
            return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    raise ConfigError("invalid MCP URL: give one such as 'http://localhost:8000/mcp'")
