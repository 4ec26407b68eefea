"""`/v1/chat/completions`: what fits passes as bytes, the rest is read or summarised first."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from memagent.errors import MemagentError
from memagent_serve.bodies import Body, take_body
from memagent_serve.completions import FIELD, add_usage, chunks, completion, with_report
from memagent_serve.desk import Desk
from memagent_serve.local import complete
from memagent_serve.overflow import Conversation, Prepared, refuse
from memagent_serve.reading import Asked
from memagent_serve.refusals import Refusal, refusal_of
from memagent_serve.relay import TooLong, relay
from memagent_serve.wire import (
    STREAM_HEADERS,
    Progress,
    Streamed,
    comment,
    event,
    narrate,
    while_connected,
)

PATH = "/chat/completions"
READINGS = {
    "messages",
    "metadata",
    "model",
    "seed",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "user",
}
"""Fields that a reading honours, or that don't change an answer. With any other one the engine answers."""


class ChatCompletions:
    """The route, as an ASGI application."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        body = await take_body(request, self._desk.settings.max_body)
        conversation = conversation_of(body.fields)
        needed = await while_connected(
            receive, self._desk.overflow.needed(conversation, scope["owner"])
        )
        if not needed or not await self._desk.engine.exact():
            try:
                await self._pass_on(request, send, body, conversation, doubtful=needed)
                return
            except TooLong:
                pass  # the engine has the last word
        if self._desk.settings.overflow == "refuse":
            raise refuse()
        self._desk.check_name(body.fields)
        response = _Overflowing(self._desk, request, body, conversation)
        await (await response.make())(scope, receive, send)

    async def _pass_on(
        self,
        request: Request,
        send: Send,
        body: Body,
        conversation: Conversation,
        *,
        doubtful: bool,
    ) -> None:
        """Has the engine answer; `doubtful` if it may not fit."""
        engine = self._desk.engine
        if engine.served:
            await relay(engine, PATH, body.raw, conversation, request, send)
            return
        if doubtful:
            raise TooLong
        self._desk.check_name(body.fields)
        work = complete(engine, conversation, body.fields, uuid.uuid4().hex, *self._desk.nothing)
        whole = await while_connected(request.receive, work)
        await answer(whole, body.fields)(request.scope, request.receive, send)


class _Overflowing:
    """One request that exceeds the window."""

    def __init__(
        self, desk: Desk, request: Request, body: Body, conversation: Conversation
    ) -> None:
        self._desk, self._request, self._fields = desk, request, body.fields
        self._conversation = conversation
        self._asked = Asked.of(body.fields, request.scope["owner"])
        said = {name for name, value in body.fields.items() if value is not None}
        self._alone = said <= READINGS

    async def make(self) -> Response:
        """The response: at once as a stream, else when all is done."""
        if self._fields.get("stream"):
            return Streamed(self._stream(), STREAM_HEADERS)
        return await while_connected(self._request.receive, self._whole())

    async def _prepare(self, progress: Progress) -> Prepared:
        return await self._desk.overflow.prepare(
            self._conversation, self._asked, progress, alone=self._alone
        )

    async def _whole(self) -> Response:
        prepared: Prepared = await self._prepare(lambda _: None)
        if (whole := await self._own(prepared)) is not None:
            return JSONResponse(whole, headers=prepared.headers)
        raw, headers = self._rewritten(prepared)
        async with self._desk.engine.send(PATH, raw, headers, packed=False) as reply:
            said = b"".join([piece async for piece in reply.pieces()])
            if reply.status != 200:
                return Response(said, reply.status, reply.headers | prepared.headers)
        fields: Any = json.loads(said)
        if fields.get("usage"):
            fields["usage"] = add_usage(fields["usage"], prepared.paid)
        return JSONResponse(fields | {FIELD: prepared.report}, headers=prepared.headers)

    async def _own(self, prepared: Prepared) -> dict[str, Any] | None:
        """The whole completion, unless the engine's server has to answer."""
        if (found := prepared.answer) is not None:
            message = {"role": "assistant", "content": found.answer, "refusal": None}
            finish = "length" if found.truncated else "stop"
            model = self._fields.get("model") or self._desk.engine.name
            return completion(message, finish, model, prepared.paid, prepared.report, found.run_id)
        if self._desk.engine.served:
            return None
        now = Conversation(prepared.messages, self._conversation.tools, self._conversation.most)
        name = uuid.uuid4().hex
        return await complete(
            self._desk.engine, now, self._fields, name, prepared.paid, prepared.report
        )

    def _rewritten(self, prepared: Prepared) -> tuple[bytes, dict[str, str]]:
        """The request with other messages."""
        kept = ("accept", "traceparent", "tracestate", "user-agent")
        headers = {n: v for n, v in self._request.headers.items() if n in kept}
        raw = json.dumps(self._fields | {"messages": prepared.messages}).encode()
        return raw, headers | {"content-type": "application/json"}

    async def _stream(self) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(narrate(self._prepare)) as told:
                yield comment("reading")
                prepared: Prepared | None = None
                async for item in told:
                    if isinstance(item, str):
                        yield comment(item)
                    else:
                        prepared = item
            assert prepared is not None
            async with aclosing(self._answer(prepared)) as pieces:
                async for piece in pieces:
                    yield piece
        except MemagentError as error:
            yield event(json.dumps(refusal_of(error).body()))
        except Refusal as refusal:
            yield event(json.dumps(refusal.body()))

    async def _answer(self, prepared: Prepared) -> AsyncGenerator[bytes]:
        if (whole := await self._own(prepared)) is not None:
            for chunk in chunks(whole, with_usage=wants_usage(self._fields)):
                yield chunk
            return
        raw, headers = self._rewritten(prepared)
        async with self._desk.engine.send(PATH, raw, headers, packed=False) as reply:
            if reply.status != 200:
                said = b"".join([piece async for piece in reply.pieces()])
                yield event(" ".join(said.decode(errors="replace").split()))
                return
            async for line in with_report(reply.pieces(), prepared.report, prepared.paid):
                yield line


def conversation_of(fields: dict[str, Any]) -> Conversation:
    """What takes up the window; without messages if the fields aren't those of a chat request."""
    messages, tools = _list(fields, "messages"), _list(fields, "tools")
    most = fields.get("max_completion_tokens") or fields.get("max_tokens")
    return Conversation(
        messages,
        tools,
        most if isinstance(most, int) and most > 0 else None,
    )


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    found = fields.get(name)
    return cast("list[Any]", found) if isinstance(found, list) else []


def wants_usage(fields: dict[str, Any]) -> bool:
    """Whether a stream is to end with the usage."""
    options = fields.get("stream_options")
    return isinstance(options, dict) and bool(cast("dict[str, Any]", options).get("include_usage"))


def answer(whole: dict[str, Any], fields: dict[str, Any]) -> Response:
    """A completion as the request wants it: whole or as a stream."""
    if not fields.get("stream"):
        return JSONResponse(whole)
    pieces = b"".join(chunks(whole, with_usage=wants_usage(fields)))
    return Response(pieces, headers=STREAM_HEADERS)
