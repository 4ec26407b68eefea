"""Rebuilds conversations from the calls that pass by, whoever makes them."""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from memagent.messages import ChatRequest, Completion, Message, TokenIds
from memagent.models.base import ChatModel, Wrapper
from memagent.trajectory import Conversation

_Key = tuple[int, bytes]
"""Length and digest of a sequence."""


class Recorder(Wrapper):
    """Keeps every call as part of a `Conversation`.

    A call continues the open conversation whose messages are a proper prefix of its own, the longest
    one; without such a conversation it opens one. Where the engine gives token ids, they decide: a call
    continues the conversation whose prompt and sampled ids its own prompt starts with. Messages that
    extend a conversation whose ids they do not extend open a new one, and count as `retokenised`.
    `Conversation.turns` holds the ids of each call for as long as every call of the conversation gave some: a
    call without ids, which only its messages can place, leaves it without turns for good.

    Conversations stay in memory until `clear`. They are matched when the reply comes, in the
    order of replies; failed calls leave no trace.
    """

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.retokenised = 0
        """Calls whose messages extended a conversation and whose ids did not."""
        self._lock = threading.Lock()
        self._conversations: list[Conversation] = []
        self._open: defaultdict[_Key, list[int]] = defaultdict(list)
        """Places by the digests of a conversation's messages and ids, so that a call is not compared with each."""

    @property
    def conversations(self) -> list[Conversation]:
        """A copy of the list: what was said so far, in the order in which conversations were opened."""
        with self._lock:
            return list(self._conversations)

    def clear(self) -> None:
        """Forgets everything; calls under way open new conversations."""
        with self._lock:
            self._conversations.clear()
            self._open.clear()
            self.retokenised = 0

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on and records it with its reply."""
        completion = await self.inner.complete(request)
        with self._lock:
            self._record(request, completion)
        return completion

    def note_call(self, place: int, request: ChatRequest, completion: Completion) -> None:
        """Hears of each call that was recorded, in that order and one at a time; subclasses keep what they need of it.

        `place` is the index in `conversations` of the one that the call opened or continued.
        """

    def _record(self, request: ChatRequest, completion: Completion) -> None:
        place = self._find_continued(request.messages, completion.tokens)
        reply = Message(role="assistant", content=completion.text, tool_calls=completion.tool_calls)
        before = None if place is None else self._conversations[place]
        conversation = Conversation(
            messages=(*request.messages, reply),
            kind=request.kind,
            tokens=completion.tokens,
            turns=_turns(before, completion.tokens),
        )
        if place is None or before is None:
            place = len(self._conversations)
            self._conversations.append(conversation)
        else:
            for key in _keys(before):
                self._open[key].remove(place)
                if not self._open[key]:
                    del self._open[key]
            self._conversations[place] = conversation
        for key in _keys(conversation):
            self._open[key].append(place)
        self.note_call(place, request, completion)

    def _find_continued(self, messages: Sequence[Message], tokens: TokenIds | None) -> int | None:
        """Which conversation the call continues, None for a new one."""
        if tokens is not None:
            lengths = sorted({length for length, _ in self._open})
            if found := self._find_extended(_id_digests(tokens.prompt[:-1], lengths)):
                return found[0]
        extended = self._find_extended(list(_message_digests(messages))[:-1])  # a proper prefix
        # Without ids on both sides nothing but the messages can decide.
        for place in extended:
            if tokens is None or self._conversations[place].tokens is None:
                return place
        self.retokenised += bool(extended)
        return None

    def _find_extended(self, prefixes: Iterable[_Key]) -> list[int]:
        """Conversations that are one of the prefixes, the longest and of equals the latest first."""
        longest_first = reversed(list(prefixes))
        return [place for key in longest_first for place in reversed(self._open.get(key, ()))]


def _keys(conversation: Conversation) -> Iterator[_Key]:
    """Where an open conversation is found."""
    yield list(_message_digests(conversation.messages))[-1]
    if (tokens := conversation.tokens) is not None:
        ids = tokens.prompt + tokens.sampled
        yield next(_id_digests(ids, [len(ids)]))


def _turns(before: Conversation | None, tokens: TokenIds | None) -> tuple[TokenIds, ...]:
    """The turns of a conversation with one more call; `before` is None where the call opens it."""
    if tokens is None:
        return ()
    if before is None:
        return (tokens,)
    if before.tokens is None or not before.turns:
        return ()
    known = len(before.tokens.prompt) + len(before.tokens.sampled)
    return (*before.turns, tokens.model_copy(update={"prompt": tokens.prompt[known:]}))


def _message_digests(messages: Sequence[Message]) -> Iterator[_Key]:
    """Keys of the prefixes of 1, 2, ... messages, each message hashed once."""
    running = hashlib.sha256()
    for length, message in enumerate(messages, start=1):
        running.update(repr(message).encode())
        yield length, running.digest()


def _id_digests(ids: Sequence[int], lengths: Sequence[int]) -> Iterator[_Key]:
    """Keys of the prefixes of those lengths (ascending), each id hashed once."""
    running = hashlib.sha256()
    done = 0
    for length in lengths:
        if length > len(ids):
            return
        running.update(array("q", ids[done:length]).tobytes())
        done = length
        yield length, running.digest()
