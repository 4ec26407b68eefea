"""
title: memagent
description: Reads attached files of any length through `memagent serve`.
requirements: httpx
"""

# Paste this file into Open WebUI (Admin Panel, Functions), enable it, and set its valves to the address of
# `memagent serve` and one of its keys. The endpoint's model then appears in the list of models.

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
from pydantic import BaseModel, Field

Emitter = Callable[[dict[str, Any]], Awaitable[None]]


class Pipe:
    class Valves(BaseModel):
        url: str = Field("http://localhost:8300/v1", description="Where `memagent serve` listens")
        key: str = Field("", description="One of its keys, if it has any")

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def pipes(self) -> list[dict[str, str]]:
        async with self._client() as client:
            reply = await client.get("models")
            reply.raise_for_status()
        return [{"id": model["id"], "name": model["id"]} for model in reply.json()["data"]]

    async def pipe(
        self,
        body: dict[str, Any],
        __files__: list[dict[str, Any]] | None = None,
        __user__: dict[str, Any] | None = None,
        __metadata__: dict[str, Any] | None = None,
        __task__: str | None = None,
        __event_emitter__: Emitter | None = None,
    ) -> AsyncGenerator[str] | dict[str, Any]:
        # Open WebUI puts the function's own id before the first dot.
        request = {**body, "model": body["model"].partition(".")[2]}
        files = [item for item in __files__ or () if item.get("type") == "file"]
        # Titles, tags and searches (`__task__`) are generated from the chat alone.
        if files and not __task__:
            *history, last = body["messages"]
            texts = [await read_file(item, __user__ or {}) for item in files]
            # Open WebUI has added its excerpts of the files to the last message; this is what the user wrote.
            question = (__metadata__ or {}).get("base_user_prompt")
            # Of collections, pages and chats there is nothing else.
            if question and files != __files__:
                texts.append(text_of(last))
            request["messages"] = [*history, with_documents(last, texts, question)]
            # Open WebUI's own tools would fill most of a small window, and a reading doesn't call any.
            request.pop("tools", None)
        async with AsyncExitStack() as stack:
            reply = await self._send(stack, request)
            if not body.get("stream"):
                return json.loads(await reply.aread())
            return forward(reply, stack.pop_all(), __event_emitter__)

    async def _send(self, stack: AsyncExitStack, request: dict[str, Any]) -> httpx.Response:
        client = await stack.enter_async_context(self._client())
        sent = client.stream("POST", "chat/completions", json=request)
        try:
            reply = await stack.enter_async_context(sent)
        except httpx.ConnectError:
            raise RuntimeError(
                f"nothing answers at {self.valves.url!r}: start `memagent serve`, "
                f"or give this function's valves its address"
            ) from None
        if reply.is_error:
            text = (await reply.aread()).decode(errors="replace")
            raise RuntimeError(f"memagent serve answered {reply.status_code}: {text:.500}")
        return reply

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.valves.key}"} if self.valves.key else {}
        # No read timeout: answers that aren't streamed arrive only after the whole document is read.
        timeout = httpx.Timeout(None, connect=10)
        return httpx.AsyncClient(base_url=self.valves.url, headers=headers, timeout=timeout)


async def read_file(item: dict[str, Any], user: dict[str, Any]) -> str:
    """Returns the text of an attached file, if the user may read it."""
    from open_webui.models.files import Files
    from open_webui.models.users import UserModel
    from open_webui.utils.access_control.files import has_access_to_file

    file = await Files.get_file_by_id(item["id"])
    if file is None or not (
        user.get("role") == "admin"
        or file.user_id == user["id"]
        or await has_access_to_file(file.id, "read", UserModel(**user))
    ):
        raise RuntimeError(f"the file {item.get('name')!r} is not there, or not yours")
    text = (file.data or {}).get("content")
    if not text:
        raise RuntimeError(f"Open WebUI found no text in {file.filename!r}: attach another file")
    return f"{file.filename}\n\n{text}"


def text_of(message: dict[str, Any]) -> str:
    """Returns the text of a message."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def with_documents(message: dict[str, Any], texts: list[str], asked: str | None) -> dict[str, Any]:
    """Returns the message in the form that `memagent serve` takes: each document a part, the question last."""
    content = message["content"]
    parts = content if isinstance(content, list) else []
    others = [part for part in parts if part["type"] != "text"]
    *documents, question = (
        {"type": "text", "text": text} for text in (*texts, asked or text_of(message))
    )
    return {**message, "content": [*documents, *others, question]}


async def forward(
    reply: httpx.Response, stack: AsyncExitStack, emit: Emitter | None
) -> AsyncGenerator[str]:
    """Yields the events of the answer as they arrive; shows the comments between them as its status."""
    status = ""

    async def show(done: bool) -> None:
        if emit and status:
            data = {"description": status, "done": done}
            await emit({"type": "status", "data": data})

    async with stack:
        async for line in reply.aiter_lines():
            if line.startswith(":") and line != ": at work":
                status = line.rpartition(": ")[2]
                await show(done=False)
            elif line.startswith("data:") and line != "data: [DONE]":
                await show(done=True)
                status = ""
                yield line
