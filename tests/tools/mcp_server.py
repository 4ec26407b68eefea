"""An MCP server for tests, made with the mcp package: `python mcp_server.py [PORT]` (stdio without a port)."""

import os
import sys
import time

import mcp_types as types
from mcp.server.mcpserver import Image, MCPServer
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("tests", log_level="WARNING")


class Point(BaseModel):
    x: int
    y: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def mirror(point: Point) -> Point:
    return Point(x=point.y, y=point.x)


@server.tool(name="list.files/now")
def dotted(folder: str) -> str:
    return f"files of {folder}"


@server.tool(name="list_files_now")
def underscored() -> str:
    return "the other"


@server.tool()
def fail(why: str) -> str:
    raise ValueError(why)


@server.tool()
def picture() -> list[str | Image]:
    return ["a picture:", Image(data=b"x" * 1234, format="png")]


@server.tool()
def only_structured() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"wärme": 3})


@server.tool()
def links() -> CallToolResult:
    return CallToolResult(
        content=[
            types.ResourceLink(type="resource_link", uri="file:///a.txt", name="a"),
            types.EmbeddedResource(
                type="resource",
                resource=types.TextResourceContents(uri="file:///b.txt", text="the text of b"),
            ),
            types.EmbeddedResource(
                type="resource",
                resource=types.BlobResourceContents(
                    uri="file:///c", mime_type="audio/ogg", blob="AAEC"
                ),
            ),
        ]
    )


@server.tool()
def die() -> str:
    os._exit(3)


@server.tool()
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "slow"


@server.tool()
def environment(variable: str) -> str:
    return os.environ.get(variable, "(unset)")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        print("the server starts", file=sys.stderr, flush=True)
        server.run()
