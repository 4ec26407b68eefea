"""A route of either form: passes requests that fit as bytes, and reads or summarises others first."""

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from memagent.errors import BadResponse, ConfigError, MemagentError, ModelError
from memagent.models.openai_errors import CLIP, server_message
from memagent_serve.bodies import take_body
from memagent_serve.desk import Desk
from memagent_serve.forms import Form, OwnAnswer, edit_stream, effective
from memagent_serve.local import check_fields, complete
from memagent_serve.long_messages import LongMessage
from memagent_serve.overflow import Conversation, PreparedRequest
from memagent_serve.reading import ReadingRequest
from memagent_serve.refusals import OVERFLOW, ClientLeft, Refusal, refusal_of
from memagent_serve.wire import (
    STREAM_HEADERS,
    Progress,
    Streamed,
    comment,
    event,
    narrate,
    while_connected,
)

logger = logging.getLogger("memagent.serve")

KEPT_HEADERS = ("accept", "traceparent", "tracestate", "user-agent")
"""Headers kept from a request that is rewritten: its length, type and encoding are new."""
SHUTTING_DOWN = Refusal(
    503,
    "the endpoint is shutting down: send the request again, and a reading continues where it was",
    headers={"Retry-After": "5", "Connection": "close"},
)
_Work = Callable[[Progress], Coroutine[Any, Any, tuple[PreparedRequest, OwnAnswer | None]]]
"""Prepares a request, and answers it unless the engine's server has to."""


class Endpoint:
    """A route, as an ASGI application."""

    def __init__(self, desk: Desk, form: Form) -> None:
        self._desk, self._form = desk, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; stops silently if nobody waits for the answer any more."""
        has_started = False

        async def forward(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._answer(scope, receive, forward)
        except ClientLeft:
            pass
        except (
            asyncio.CancelledError
        ):  # by a server that shuts down, which would log it as an error
            if not has_started:
                await SHUTTING_DOWN.response()(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        raw, fields = await take_body(request, self._desk.settings.max_body)
        conversation = await asyncio.to_thread(
            self._form.read, fields, self._desk.settings.max_body
        )
        call = _Call(self._desk, self._form, request, fields, conversation)
        too_long = self._desk.overflow.exceeds(call.conversation)
        is_needed = await while_connected(receive, too_long)
        has_state = call.conversation.state is not None
        engine = self._desk.engine
        is_sure = is_needed and await self._desk.overflow.surely(call.conversation)
        if engine.served and not has_state and not is_sure:
            if await self._pass_on(raw, call.conversation, request, send):
                return
            is_needed = True  # the engine decides
        if is_needed and self._desk.settings.overflow == "refuse":
            raise Refusal(
                400,
                "the request exceeds the model's window, and this endpoint doesn't read such requests "
                "(--overflow refuse)",
                code=OVERFLOW,
                param=self._form.field,
            )
        self._desk.check_name(fields)
        await (await call.answer(needed=is_needed))(scope, receive, send)

    async def _pass_on(
        self, raw: bytes, conversation: Conversation, request: Request, send: Send
    ) -> bool:
        """Forwards bytes to the engine and its answer to the client; an answer that breaks off does so here too.

        Returns:
            False if the engine refuses a request that can be made to fit; nothing was then sent to the client.

        Raises:
            ModelError: the engine can't be reached.
        """
        can_be_read = self._desk.settings.overflow == "read" and bool(conversation.messages)
        try:
            messages, _ = await conversation.read()  # used to choose among several servers
        except ConfigError:
            messages = []
        engine, path, started = self._desk.engine, self._form.path, False

        async def forward(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        async def work() -> bool:
            async with engine.send(path, raw, request.headers, messages) as reply:
                if can_be_read and reply.overflows:
                    return False
                await Streamed(reply.pieces(), reply.headers, reply.status).send(forward)
            return True

        try:
            return await while_connected(request.receive, work())
        except ModelError as error:
            if not started:
                raise
            # Without an end, the server closes the connection, so that nobody takes the answer for complete.
            logger.warning("a response broke off: %s", error)
            return True


class _Call:
    """One request that can't be passed on unchanged."""

    def __init__(
        self,
        desk: Desk,
        form: Form,
        request: Request,
        fields: dict[str, Any],
        conversation: Conversation,
    ) -> None:
        self._desk, self._form, self._request, self._fields = desk, form, request, fields
        self.conversation = conversation
        if desk.settings.overflow == "refuse":  # which applies only to the window
            self.conversation = replace(conversation, threshold=None)

    async def answer(self, *, needed: bool) -> Response:
        """Returns the response: once the request is checked as a stream, else when all is done.

        Args:
            needed: whether the request exceeds the window.

        Raises:
            Refusal: the request can't be answered.
        """
        asked = ReadingRequest.of(self._fields, self._request.scope["owner"])
        if not self._desk.engine.served:
            check_fields(self._desk.engine, self._fields, self._form)
        documents: dict[int, LongMessage] = {}
        if needed:
            find_documents = self._desk.overflow.find_documents(self.conversation)
            documents = await while_connected(self._request.receive, find_documents)

        async def work(progress: Progress) -> tuple[PreparedRequest, OwnAnswer | None]:
            prepared = PreparedRequest(self.conversation.messages)
            if needed:
                is_alone = not effective(self._fields, self._form)
                prepared = await self._desk.overflow.prepare(
                    self.conversation, documents, asked, progress, alone=is_alone
                )
            return prepared, await self._find_answer(prepared)

        if asked.stream:
            return Streamed(self._stream(work), STREAM_HEADERS)
        return await while_connected(self._request.receive, self._answer_whole(work))

    async def _answer_whole(self, work: _Work) -> Response:
        prepared, answer = await work(lambda _: None)  # only a stream can report progress
        if answer is not None:
            return _write(self._form.write(answer, prepared.report), prepared)
        raw, headers = self._rewrite(prepared)
        async with self._desk.engine.send(self._form.path, raw, headers) as reply:
            body = await reply.read()
        if reply.status != 200:
            return Response(body, reply.status, reply.headers | prepared.headers)
        try:
            fields = self._form.add(json.loads(body), self._fields, prepared)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BadResponse(f"the engine's answer can't be read: {body[:200]!r}") from None
        return _write(fields, prepared)

    async def _find_answer(self, prepared: PreparedRequest) -> OwnAnswer | None:
        """Returns the answer, unless the engine's server has to give it."""
        if (result := prepared.answer) is not None:
            model = self._fields.get("model") or self._desk.engine.name
            finish = "length" if result.truncated or result.partial else "stop"
            return OwnAnswer(result.answer or "", finish, model, result.run_id, prepared.paid)
        if self._desk.engine.served:
            return None
        source = self.conversation
        conversation = Conversation(prepared.messages, source.tools, source.most)
        fields, name = self._fields, uuid.uuid4().hex
        return await complete(
            self._desk.engine, conversation, fields, self._form, name, prepared.paid
        )

    def _rewrite(self, prepared: PreparedRequest) -> tuple[bytes, dict[str, str]]:
        headers = {n: v for n, v in self._request.headers.items() if n in KEPT_HEADERS}
        fields = self._form.rewrite(self._fields, self.conversation, prepared)
        return json.dumps(fields).encode(), headers | {"content-type": "application/json"}

    async def _stream(self, work: _Work) -> AsyncGenerator[bytes]:
        async def begin(progress: Progress) -> tuple[bytes, AsyncGenerator[bytes]]:
            pieces = self._events(*await work(progress))
            return await anext(pieces, b""), pieces  # an engine may take long to start

        try:
            start: tuple[bytes, AsyncGenerator[bytes]] | None = None
            async with aclosing(narrate(begin)) as narration:
                yield comment("reading")
                async for item in narration:
                    if isinstance(item, str):
                        yield comment(item)
                    else:
                        start = item
            assert start is not None
            first, rest = start
            async with aclosing(rest):
                yield first
                async for piece in rest:
                    yield piece
        except MemagentError as error:
            yield event(json.dumps(refusal_of(error).body()))
        except Refusal as refusal:
            yield event(json.dumps(refusal.body()))

    async def _events(
        self, prepared: PreparedRequest, answer: OwnAnswer | None
    ) -> AsyncGenerator[bytes]:
        if answer is not None:
            for piece in self._form.stream(self._form.write(answer, prepared.report), self._fields):
                yield piece
            return
        raw, headers = self._rewrite(prepared)
        async with self._desk.engine.send(self._form.path, raw, headers) as reply:
            if reply.status != 200:
                yield event(json.dumps(_error_of(reply.status, await reply.read())))
                return
            if not reply.is_stream:  # clients would take it for an empty answer
                body = await reply.read()
                raise BadResponse(f"the engine was asked for a stream, and answered {body[:200]!r}")

            def edit(chunk: dict[str, Any]) -> bool:
                return self._form.edit(chunk, self._fields, prepared)

            async for line in edit_stream(reply.pieces(), edit):
                yield line


def _write(fields: dict[str, Any], prepared: PreparedRequest) -> Response:
    """Returns a whole answer. An engine may write what strict JSON doesn't allow: a lone surrogate, infinity."""
    return Response(json.dumps(fields), headers=prepared.headers, media_type="application/json")


def _error_of(status: int, raw: bytes) -> Any:
    """Returns the engine's error in the form clients expect in a stream; they take others for an empty answer."""
    try:
        body: object = json.loads(raw)
    except ValueError:  # such as a proxy's page
        body = raw.decode(errors="replace")
    if isinstance(body, dict) and (fields := cast("dict[str, Any]", body)).get("error"):
        return fields
    message = " ".join(server_message(cast("object", body)).split())[:CLIP]
    return Refusal(status, f"the engine answered {status}: {message or '(no message)'}").body()
