import asyncio
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.tools.conftest import SERVER

from memagent.errors import ConfigError, ToolError
from memagent.messages import ToolCall
from memagent.tools import Toolset
from memagent.tools.mcp import McpServer, result_text, valid_names


def stdio(*args: str, **settings: Any) -> McpServer:
    return McpServer.stdio(sys.executable, SERVER, *args, **settings)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=json.dumps(arguments))


@pytest.fixture(params=["stdio", "http"], scope="module")
def tools(request: pytest.FixtureRequest) -> Iterator[Toolset]:
    with (
        stdio()
        if request.param == "stdio"
        else McpServer.http(request.getfixturevalue("mcp_url")) as server
    ):
        yield Toolset(server.tools)


# --- what the tools are, and what they return


async def test_tools_are_as_the_server_lists_them(tools: Toolset) -> None:
    add = tools["add"]
    assert add.spec.description == "Adds two numbers."
    assert add.spec.parameters["required"] == ["a"]
    idempotent = {name for name, one in tools.items() if one.idempotent}
    assert idempotent == {"add", "mirror"}  # one says that it only reads, one that it is idempotent
    assert {name for name, one in tools.items() if one.read_only} == {"add"}
    assert {"list_files_now", "list_files_now_2"} <= set(tools)


async def test_results_are_text(tools: Toolset) -> None:
    async def told(name: str, **arguments: Any) -> str:
        output = await tools.run(call(name, **arguments))
        assert output.ok, output.text
        return output.text

    assert await told("add", a=1) == "3"
    assert json.loads(await told("mirror", point={"x": 1, "y": 2})) == {"x": 2, "y": 1}
    assert await told("list_files_now", folder="a") == "files of a"
    assert await told("list_files_now_2") == "the other"
    assert await told("picture") == "a picture:\n[image/png, 1234 bytes]"
    assert await told("only_structured") == '{"wärme": 3}'
    assert await told("links") == (
        "[resource at file:///a.txt]\nthe text of b\n[audio/ogg at file:///c, 3 bytes]"
    )


async def test_errors_of_a_tool_are_told(tools: Toolset) -> None:
    wrong = await tools.run(call("add", a="x"))
    assert not wrong.ok
    assert wrong.text.startswith("add failed: ")
    assert "valid integer" in wrong.text
    assert not (await tools.run(call("fail", why="so"))).ok


async def test_ten_calls_at_once(tools: Toolset) -> None:
    outputs = await asyncio.gather(*(tools.run(call("add", a=i)) for i in range(10)))
    assert [output.text for output in outputs] == [str(i + 2) for i in range(10)]


def test_what_is_no_text_is_named_by_kind_and_size() -> None:
    audio = SimpleNamespace(type="audio", mime_type="audio/wav", data="AAA=")
    result: Any = SimpleNamespace(content=[audio], structured_content=[1])
    assert result_text(result) == "[audio/wav, 2 bytes]\n[1]"
    nothing: Any = SimpleNamespace(content=[], structured_content=None)
    assert result_text(nothing) == ""


def test_names_are_made_valid_and_unique() -> None:
    names = ["a.b", "a/b", "a_b", "ü", "", "x" * 70, "x" * 71]
    found = valid_names(names, "p-")
    assert found[:5] == ["p-a_b", "p-a_b_2", "p-a_b_3", "p-_", "p-"]
    assert found[5:] == ["p-" + "x" * 62, "p-" + "x" * 60 + "_2"]
    assert valid_names(["", ""], "") == ["tool", "tool_2"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found)


async def test_two_servers_need_a_prefix(mcp_url: str) -> None:
    async with McpServer.http(mcp_url) as one, McpServer.http(mcp_url, prefix="b_") as other:
        assert (await Toolset(one.tools + other.tools).run(call("b_add", a=1))).text == "3"
        with pytest.raises(ConfigError, match=r"two tools are named 'add'.*prefix="):
            Toolset(one.tools + one.tools)


# --- environment


async def test_a_server_gets_no_variables_but_those_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    async with stdio(env={"GIVEN": "1"}, cwd=tmp_path) as server:
        tools = Toolset(server.tools)
        assert (await tools.run(call("environment", variable="SOME_KEY"))).text == "(unset)"
        assert (await tools.run(call("environment", variable="GIVEN"))).text == "1"


# --- what goes wrong


@pytest.mark.parametrize(
    ("server", "error", "told"),
    [
        (
            McpServer.stdio("no-such-command-here"),
            ConfigError,
            "'no-such-command-here' cannot be started: FileNotFoundError",
        ),
        (
            McpServer.stdio(sys.executable, "-c", "import sys; sys.exit('no key was given')"),
            ToolError,
            r"cannot be connected to: .*; its error output ends with:\nno key was given",
        ),
        (
            McpServer.stdio(
                sys.executable, "-c", "input(); print('hello'); input()", connect_timeout=0.5
            ),
            ToolError,
            "did not answer within 0.5 seconds",
        ),
        (
            McpServer.http("http://127.0.0.1:9/mcp"),
            ToolError,
            "'http://127.0.0.1:9/mcp' cannot be connected to: ConnectError",
        ),
    ],
    ids=["no-command", "dies", "silent", "no-server"],
)
async def test_a_server_that_cannot_be_reached(
    server: McpServer, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        await asyncio.wait_for(server.__aenter__(), 30)
    await server.aclose()
    with pytest.raises(error, match=told):
        await asyncio.to_thread(server.__enter__)


async def test_a_url_that_serves_no_mcp(mcp_url: str) -> None:
    with pytest.raises(ToolError, match="cannot be connected to"):
        await asyncio.wait_for(McpServer.http(mcp_url.replace("/mcp", "/nothing")).__aenter__(), 30)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000/mcp", "ftp://a/b", "http://", "http://[::1", "http://a:x/"],
    ids=repr,
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http://localhost:8000/mcp"):
        McpServer.http(url)


def test_secrets_of_a_url_are_not_shown() -> None:
    server = McpServer.http(
        "https://me:secret@example.org:8443/mcp?key=secret#secret", {"X": "secret"}
    )
    assert repr(server) == "<MCP server 'https://example.org:8443/mcp'>"


async def test_arguments_of_a_command_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "memagent")
    told = list[str]()
    async with McpServer.stdio(sys.executable, "-X", "key=hush-hush", SERVER) as server:
        told.append(repr(server))
        tools = Toolset(server.tools)
        told += [(await tools.run(call(name))).text for name in ("die", "add")]
    told += [(await tools.run(call("die"))).text, *caplog.messages]
    assert told[0] == f"<MCP server '{sys.executable} ...'>"
    assert f"the MCP server '{sys.executable} ...'" in told[1]
    assert not [text for text in told if "hush-hush" in text]


@pytest.mark.parametrize(
    "settings",
    [
        {"prefix": "a.b"},
        {"prefix": "x" * 33},
        {"timeout": 0},
        {"timeout": math.nan},
        {"connect_timeout": -1},
    ],
    ids=str,
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        McpServer.stdio("x", **settings)


def test_a_command_with_its_arguments_in_a_list_is_refused_and_not_shown() -> None:
    command: Any = [sys.executable, "secret.py"]
    with pytest.raises(ConfigError, match="the program and its arguments separately") as refused:
        McpServer.stdio(command)
    assert "secret" not in str(refused.value)


async def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ConfigError, match=r"pip install 'path/to/memagent\[mcp\]'"):
        await stdio().__aenter__()


def test_importing_tools_does_not_import_mcp() -> None:
    code = "import sys, memagent.tools.mcp; print(sorted({'mcp', 'mcp_types', 'httpx2'} & {*sys.modules}))"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"
