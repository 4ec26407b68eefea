"""Handles requests that exceed the window, with readings, notes and summaries."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from memagent import Message, Result, Usage
from memagent.errors import CompactionFailed, ConfigError, QuestionTooLong, WindowTooSmall
from memagent.messages import ToolSpec
from memagent.prompts import Neutraliser
from memagent.tokens.byte_bound import ByteBound
from memagent_serve.engine import BYTES_PER_TOKEN, Engine
from memagent_serve.histories import Histories, ShortHistory
from memagent_serve.long_messages import NOTES, RULE, LongMessage, with_notes
from memagent_serve.reading import Reader, Reading, ReadingRequest
from memagent_serve.refusals import OVERFLOW, Refusal
from memagent_serve.wire import Progress

LEAST_ROOM = 256
"""Tokens kept free for the output of a request without a limit."""
SURELY = 2 * BYTES_PER_TOKEN
"""Number of windows: what is bounded by more doesn't fit. Bytes, the coarsest bound, are about four per token."""
LAST_SHARE = 3 / 8
"""Share of the window that the user's last message may take with its document, if the request exceeds the window. A
longer one might not fit beside a summary."""
NOTHING_NOTED = "(nothing in the document was worth a note)"


@dataclass(frozen=True)
class Conversation:
    """The part of a request that takes up the window."""

    messages: list[dict[str, Any]] = field(repr=False)
    """Messages in the form of chat completions."""
    tools: list[Any]
    most: int | None
    """Maximum tokens of the output; None if the request has no limit."""
    threshold: int | None = None
    """Tokens from which the request wants its history shortened, if below the window."""
    state: Mapping[str, Any] | None = field(default=None, repr=False)
    """State of the history that this one continues, if the client sent it. The engine can't answer such a request."""
    items: Mapping[int, list[Any]] = field(default_factory=dict[int, list[Any]], repr=False)
    """What messages were made from, by their `id()`, if the request isn't in the form of chat completions."""
    # Not a cached_property: in Python 3.11 it has one lock, so a small request would wait for a large one.
    _found: list[tuple[list[Message], list[ToolSpec]]] = field(
        default_factory=list[Any], init=False, repr=False, compare=False
    )

    async def read(self) -> tuple[list[Message], list[ToolSpec]]:
        """Parses messages and tools as memagent counts them. Raises `ConfigError` if they are invalid."""
        if not self._found:
            self._found.append(await asyncio.to_thread(self._read))  # perhaps hundreds of thousands
        return self._found[0]

    def _read(self) -> tuple[list[Message], list[ToolSpec]]:
        messages = list(map(Message.from_openai, self.messages))
        return messages, list(map(ToolSpec.from_openai, self.tools))


@dataclass(frozen=True)
class PreparedRequest:
    """A request that now fits, or is already answered."""

    messages: list[dict[str, Any]]
    answer: Result | None = None
    """Result of the reading, if the request was one long message and nothing else."""
    report: dict[str, Any] = field(default_factory=dict[str, Any])
    """Report of what was read and summarised, for the response."""
    paid: Usage = field(default_factory=Usage)
    headers: dict[str, str] = field(default_factory=dict[str, str])
    state: Mapping[str, Any] | None = None
    """State to continue in the next turn, if the history was shortened."""


class Overflow:
    """Makes requests fit."""

    def __init__(self, engine: Engine, reader: Reader, histories: Histories) -> None:
        self._engine, self._reader, self._histories = engine, reader, histories

    async def room(self, conversation: Conversation) -> int:
        """Returns the tokens to keep free for the output: at most half the window; the engine may refuse the rest."""
        window = await self._engine.window()
        if window is None:
            return 1
        if conversation.most is None:
            return min(LEAST_ROOM, window // 8)
        return max(1, min(conversation.most, window // 2))

    async def _limit(self, conversation: Conversation) -> int | None:
        """Returns the tokens of prompt plus output that the history may take."""
        window = await self._engine.window()
        threshold = conversation.threshold
        if threshold is not None:
            threshold += await self.room(conversation)
        return min((size for size in (window, threshold) if size is not None), default=None)

    async def exceeds(self, conversation: Conversation) -> bool:
        """Returns whether a request is too long; False if it can't be parsed: the engine then reports what is wrong."""
        try:
            messages, tools = await conversation.read()
            room, limit = await self.room(conversation), await self._limit(conversation)
            return bool(messages) and await self._engine.exceeds(messages, tools, room, limit)
        except ConfigError:
            return False

    async def surely(self, conversation: Conversation) -> bool:
        """Returns whether to shorten a request that `exceeds` before asking the engine.

        Not if only an upper bound exceeds the window, since the request may fit; but if it does so by far, since some
        engines silently cut off what is too long. A limit that the request sets can't be left to the engine.
        """
        window, limit = await self._engine.window(), await self._limit(conversation)
        if limit is None or limit != window or await self._engine.exact():
            return True
        messages, tools = await conversation.read()
        return await self._engine.exceeds(messages, tools, 0, SURELY * limit)

    async def find_documents(self, conversation: Conversation) -> dict[int, LongMessage]:
        """Returns the messages to read, by their places, of a conversation that exceeds the window.

        Raises:
            Refusal: a long message isn't a document and a question, the system messages alone exceed the window, or
                the window is unknown.
        """
        window, messages = await self._known_window(), conversation.messages
        places = await self._find_long(conversation, await self.room(conversation))
        documents = {place: LongMessage.read(messages[place], place) for place in places}
        read_messages, _ = await conversation.read()
        users = [place for place, message in enumerate(read_messages) if message.role == "user"]
        if not users or len(messages) == 1 or (last := users[-1]) in documents:
            return documents
        # It would stay word for word, and leave no room for anything else.
        limit = int(LAST_SHARE * window)
        if await self._engine.exceeds([read_messages[last]], (), 0, limit) and await self.exceeds(
            replace(conversation, threshold=None)
        ):
            with suppress(Refusal):  # one without a document is left as it is
                documents[last] = LongMessage.read(messages[last], last)
        return documents

    async def prepare(
        self,
        conversation: Conversation,
        documents: Mapping[int, LongMessage],
        asked: ReadingRequest,
        progress: Progress,
        *,
        alone: bool,
    ) -> PreparedRequest:
        """Reads long messages, and shortens the history if that isn't enough.

        Args:
            conversation: conversation that exceeds the window.
            documents: its long messages, from `find_documents`.
            asked: how to read.
            progress: called with news of chunks and summaries.
            alone: whether the request is one message and nothing else, so that the reading may answer it.

        Raises:
            MemagentError: a reading or a summary failed.
            Refusal: a reading stopped.
        """
        limit, room = await self._limit(conversation), await self.room(conversation)
        messages, readings, usage = list(conversation.messages), dict[int, Reading](), Usage()
        for place, long_message in documents.items():
            readings[place] = reading = await self._reader.read(long_message, asked, progress)
            usage += reading.paid
            control_tokens = (await self._engine.model.counter()).control_tokens
            safe = Neutraliser((NOTES,), control_tokens).safe(reading.result.memory or "")
            messages[place] = with_notes(messages[place], safe or NOTHING_NOTED)
        report: dict[str, Any] = {
            "read": [{"message": n, **r.report()} for n, r in readings.items()]
        }
        answer = readings[0].result if alone and readings and len(messages) == 1 else None
        headers, state = _headers(list(readings.values())), conversation.state
        if answer is None:
            fits = replace(conversation, messages=messages)
            if limit is not None and (not readings or await self.exceeds(fits)):
                progress("the history is being shortened")
                try:
                    history = await self._histories.shorten(
                        messages,
                        conversation.tools,
                        limit,
                        room,
                        given=conversation.messages,
                        owner=asked.owner,
                        state=conversation.state,
                    )
                except (CompactionFailed, QuestionTooLong, WindowTooSmall) as error:
                    full_conversation = replace(fits, threshold=None)
                    fails = conversation.threshold is None or await self.exceeds(full_conversation)
                    if fails and await self.surely(full_conversation):
                        if isinstance(error, QuestionTooLong):
                            raise _refuse_last(messages) from error
                        raise
                    report = report if readings else {}
                    return PreparedRequest(messages, None, report, usage, headers, state)
                state = history.state
                messages, usage = history.messages, usage + history.paid
                report |= {"summaries": history.summaries, "clipped": history.clipped}
                headers["X-Memagent-Summaries"] = str(history.summaries)
        return PreparedRequest(messages, answer, report, usage, headers, state)

    async def compact(self, conversation: Conversation) -> ShortHistory:
        """Summarises a conversation as far as that saves anything.

        Raises:
            MemagentError: a summary failed.
            Refusal: the model's window is unknown.
        """
        window = await self._known_window()
        return await self._histories.compact(
            conversation.messages, conversation.tools, window, conversation.state
        )

    async def _known_window(self) -> int:
        if (window := await self._engine.window()) is None:
            raise Refusal(
                400,
                "the request exceeds the model's window, or has to be shortened, but the model doesn't report its "
                "window: start the endpoint with --window",
                code=OVERFLOW,
            )
        return window

    async def _find_long(self, conversation: Conversation, room: int) -> list[int]:
        """Returns the places of user messages that exceed the window even with only the system messages before them.

        Raises a `Refusal` if the system messages alone exceed it.
        """
        messages, _ = await conversation.read()
        users = {place: m for place, m in enumerate(messages) if m.role == "user"}
        bounds = {place: ByteBound().count_messages([m]) for place, m in users.items()}
        largest_first = sorted(bounds, key=bounds.__getitem__, reverse=True)
        systems, window = [m for m in messages if m.role == "system"], await self._engine.window()
        blank = Message(role="user", content="")  # some templates need a user message
        if systems and await self._engine.exceeds([*systems, blank], (), room, window):
            raise Refusal(
                400,
                f"the system messages alone exceed the model's window of {window} tokens: shorten them",
                code=OVERFLOW,
                param=f"messages[{messages.index(systems[0])}].content",
            )
        places: list[int] = []
        for place in largest_first:
            # A count may be a request. That of the smallest message, plus the bytes of this one, usually settles all.
            least = [*systems, users[largest_first[-1]]]
            if not await self._engine.exceeds(least, (), room + bounds[place], window):
                break
            if await self._engine.exceeds([*systems, users[place]], (), room, window):
                places.append(place)
        return sorted(places)


def _refuse_last(messages: Sequence[Mapping[str, Any]]) -> Refusal:
    place = max(n for n, message in enumerate(messages) if message.get("role") == "user")
    return Refusal(
        400,
        f"messages[{place}] can't stay whole beside a summary of what came before it: shorten it. {RULE}",
        code=OVERFLOW,
        param=f"messages[{place}].content",
    )


def _headers(readings: Sequence[Reading]) -> dict[str, str]:
    if not readings:
        return {}
    return {
        "X-Memagent-Run": ", ".join(reading.result.run_id for reading in readings),
        "X-Memagent-Chunks": str(sum(reading.result.chunks for reading in readings)),
        "X-Memagent-Tokens": str(sum(reading.tokens for reading in readings)),
    }
