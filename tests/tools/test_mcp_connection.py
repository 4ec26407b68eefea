import asyncio
import gc
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from tests.tools.conftest import SERVER, free_port
from tests.tools.test_mcp import call, stdio

from memagent.errors import ConfigError, ToolError
from memagent.threads import in_background
from memagent.tools import Toolset
from memagent.tools.mcp import McpServer
from memagent.tools.mcp_connection import SAID_LINES, Connection, Log

# --- where calls may come from


def test_a_sync_program_may_use_a_server(mcp_url: str) -> None:
    from memagent.threads import run_sync

    with McpServer.http(mcp_url) as server:
        tools = Toolset(server.tools)
        assert run_sync(tools.run(call("add", a=1))).text == "3"
        assert asyncio.run(tools.run(call("add", a=2))).text == "4"


async def test_a_server_may_be_closed_by_another_task_and_twice(mcp_url: str) -> None:
    server = McpServer.http(mcp_url)
    await asyncio.create_task(server.__aenter__())
    tools = Toolset(server.tools)
    assert (await tools.run(call("add", a=1))).ok
    await asyncio.gather(*(asyncio.create_task(server.aclose()) for _ in range(2)))
    await server.aclose()
    output = await tools.run(call("add", a=1))
    assert not output.ok
    assert output.text.endswith("is closed, so its tools cannot be used")


async def test_a_server_may_be_opened_again_but_not_twice_at_once(mcp_url: str) -> None:
    server = McpServer.http(mcp_url)
    with pytest.raises(ConfigError, match="is not open; use it with"):
        server.tools  # noqa: B018
    for _ in range(2):
        async with server:
            assert (await Toolset(server.tools).run(call("add", a=1))).ok
            with pytest.raises(ConfigError, match="is already open"):
                await server.__aenter__()


async def test_an_exception_within_passes_and_closes(mcp_url: str) -> None:
    server = McpServer.http(mcp_url)
    with pytest.raises(KeyError):
        async with server:
            raise KeyError
    tools = Toolset(server.tools)
    assert "is closed" in (await tools.run(call("add", a=1))).text


async def test_closing_while_a_call_runs_ends_the_call(mcp_url: str) -> None:
    async with McpServer.http(mcp_url) as server:
        tools = Toolset(server.tools)
        running = asyncio.create_task(tools.run(call("slow", seconds=1.0)))
        await asyncio.sleep(0.3)
    output = await asyncio.wait_for(running, 20)
    assert not output.ok
    assert output.text.startswith("slow failed: ")


async def test_a_call_that_takes_too_long_is_given_up_and_the_server_lives_on(mcp_url: str) -> None:
    async with McpServer.http(mcp_url, timeout=0.2) as server:
        tools = Toolset(server.tools)
        slow = await tools.run(call("slow", seconds=1.0))
        assert "longer than 0.2 seconds" in slow.text
        await asyncio.sleep(1)
        assert (await tools.run(call("list_files_now_2"))).ok


# --- what goes wrong


async def test_a_server_that_dies_in_the_middle_of_a_call_is_started_again() -> None:
    async with stdio() as server:
        tools = Toolset(server.tools)
        for _ in range(2):
            output = await asyncio.wait_for(tools.run(call("die")), 20)
            assert not output.ok
            assert re.fullmatch(r"die failed: the MCP server .*: Connection closed", output.text)
            both = [tools.run(call("add", a=a)) for a in (1, 2)]
            outputs = await asyncio.wait_for(asyncio.gather(*both), 20)
            assert [output.text for output in outputs] == ["3", "4"]


async def test_an_http_server_that_dies_in_the_middle_of_a_call() -> None:
    number = free_port()

    async def start() -> asyncio.subprocess.Process:
        command = (sys.executable, SERVER, str(number))
        return await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)

    process = await start()
    server = McpServer.http(f"http://127.0.0.1:{number}/mcp")
    try:
        for _ in range(600):
            try:
                await server.__aenter__()
                break
            except ToolError:
                await asyncio.sleep(0.1)
        tools = Toolset(server.tools)
        for name in ("die", "list_files_now_2"):
            output = await asyncio.wait_for(tools.run(call(name)), 30)
            assert not output.ok
            assert output.text.startswith(f"{name} failed: ")
            assert f"the MCP server 'http://127.0.0.1:{number}/mcp'" in output.text
        await process.wait()
        process = await start()
        for _ in range(600):
            output = await asyncio.wait_for(tools.run(call("add", a=1)), 30)
            if output.ok:
                break
            await asyncio.sleep(0.1)
        assert output.text == "3"
    finally:
        await asyncio.wait_for(server.aclose(), 30)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_call_that_comes_while_the_connection_breaks_does_not_wait_for_ever() -> None:
    going, released = threading.Event(), threading.Event()

    class Breaking:
        def __init__(self) -> None:
            self.broken = asyncio.Event()

        async def list_tools(self, cursor: str | None) -> Any:
            return SimpleNamespace(tools=[], next_cursor=None)

        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            self.broken.set()
            try:
                await asyncio.sleep(60)
            finally:  # its loop is about to end, and does so after the other call has come
                going.set()
                await asyncio.to_thread(released.wait, 10)

        async def fail(self) -> None:
            await self.broken.wait()
            raise OSError("broken")

    @asynccontextmanager
    async def connect(log: Log) -> AsyncGenerator[Any]:
        client = Breaking()
        async with asyncio.TaskGroup() as group:
            group.create_task(client.fail())
            yield client

    connection = Connection("a server", connect, 10)
    assert await in_background(connection.open()) == []
    first = asyncio.create_task(in_background(connection.call("first", {})))
    await asyncio.to_thread(going.wait, 10)
    second = asyncio.create_task(in_background(connection.call("second", {})))
    await asyncio.sleep(0.1)
    released.set()
    for task in (first, second):
        with pytest.raises(ToolError, match=r"ended while it ran|is closed"):
            await asyncio.wait_for(task, 10)
    await in_background(connection.close())


class Slow:
    """A server that breaks with its first call, and after that can be connected to once it is released."""

    def __init__(self) -> None:
        self.connections = 0
        self.broken = False
        self.released = threading.Event()

    @asynccontextmanager
    async def connect(self, log: Log) -> AsyncGenerator[Any]:
        self.connections += 1
        if self.broken:
            await asyncio.to_thread(self.released.wait, 30)
            self.broken = False
        yield self

    async def list_tools(self, cursor: str | None) -> Any:
        if self.broken:
            raise OSError("broken")
        add = types.Tool(name="add", input_schema={"type": "object", "properties": {}})
        return SimpleNamespace(tools=[add], next_cursor=None)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        if self.connections == 1:
            self.broken = True
            raise OSError("broken")
        return types.CallToolResult(content=[types.TextContent(type="text", text="3")])


async def test_a_server_that_starts_more_slowly_than_a_call_may_take_is_connected_to_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Slow()
    async with McpServer("a server", slow.connect, "", 0.2, 30.0) as server:
        tools = Toolset(server.tools)
        assert (await tools.run(call("add"))).text == "add failed: a server: OSError: broken"
        for _ in range(3):
            output = await tools.run(call("add"))
            assert output.text.endswith("is being connected to again, and nothing was sent")
        slow.released.set()
        await asyncio.sleep(0.1)
        assert (await tools.run(call("add"))).text == "3"
    assert slow.connections == 2
    assert [record.getMessage() for record in caplog.records] == ["connecting to a server again"]


async def test_closing_while_a_server_is_connected_to_again_ends_that() -> None:
    slow = Slow()
    async with McpServer("a server", slow.connect, "", 60.0, 30.0) as server:
        tools = Toolset(server.tools)
        await tools.run(call("add"))
        waiting = asyncio.create_task(tools.run(call("add")))
        await asyncio.sleep(0.1)
    assert (await asyncio.wait_for(waiting, 10)).text.endswith("so its tools cannot be used")
    assert slow.connections == 2
    slow.released.set()


async def test_connecting_may_be_cancelled() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    server = McpServer.stdio(sys.executable, "-c", "import time; time.sleep(60)")
    task = asyncio.create_task(server.__aenter__())
    await asyncio.sleep(0.3)
    task.cancel()
    started = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - started < 15
    await server.aclose()
    del task
    await asyncio.sleep(0.3)
    gc.collect()
    assert not complaints


def test_the_last_lines_of_the_error_output_are_told() -> None:
    log = Log("a server")
    log.output.write("".join(f"line {i}\n" for i in range(100)) + "x" * 10_000 + "\n")
    log.output.close()
    said = log.read_last_words()
    assert said.startswith(f"; its error output ends with:\nline {101 - SAID_LINES}\n")
    assert len(said) < 1000


def test_no_error_output_is_not_told_of() -> None:
    log = Log("a server")
    log.output.close()
    assert log.read_last_words() == ""


def test_a_program_that_does_not_close_its_server_ends() -> None:
    code = f"""
from memagent.tools.mcp import McpServer
server = McpServer.stdio({sys.executable!r}, {SERVER!r}).__enter__()
print(len(server.tools) > 5)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("True\n", 0)


async def test_tools_that_only_run_as_tasks_are_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}

    class Serving:
        async def list_tools(self, cursor: str | None) -> Any:
            kinds = {"render": "required", "add": "optional"}
            tools = [
                types.Tool(
                    name=name,
                    input_schema=schema,
                    execution=types.ToolExecution(task_support=kind),  # type: ignore[arg-type]
                )
                for name, kind in kinds.items()
            ]
            return SimpleNamespace(tools=tools, next_cursor=None)

    @asynccontextmanager
    async def connect(log: Log) -> AsyncGenerator[Any]:
        yield Serving()

    async with McpServer("a server", connect, "", 60.0, 10.0) as server:
        assert [tool.name for tool in server.tools] == ["add"]
    assert "a server: ['render'] run as tasks only" in caplog.text
