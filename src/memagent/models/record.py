"""Rebuilds conversations from the calls made through a model, whoever makes them."""

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

    A call continues the conversation whose messages are the longest proper prefix of its messages; if there is none, it
    opens a new one. If the engine returns token ids, they decide: a call continues the conversation whose prompt and
    sampled ids are a prefix of its prompt. If messages extend a conversation but ids do not, a new one is opened, and
    `retokenised` is incremented. `Conversation.turns` holds the ids of each call if every call returned them.

    Conversations stay in memory until `clear`. They are matched in the order of replies; failed calls aren't recorded.
    """

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.retokenised = 0
        """Calls whose messages extended a conversation but whose ids did not."""
        self._lock = threading.Lock()
        self._conversations: list[Conversation] = []
        self._open: defaultdict[_Key, list[int]] = defaultdict(list)
        self._keys: dict[int, list[_Key]] = {}
        """Each conversation's digests (`_open`: its index by them), so that a call isn't compared with every one."""

    @property
    def conversations(self) -> list[Conversation]:
        """A copy of the conversations so far, in the order they were opened."""
        with self._lock:
            return list(self._conversations)

    def clear(self) -> None:
        """Forgets everything; calls in flight open new conversations."""
        with self._lock:
            self._conversations.clear()
            self._keys.clear()
            self._open.clear()
            self.retokenised = 0

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on, and records it with its reply."""
        completion = await self.inner.complete(request)
        with self._lock:
            self._record(request, completion)
        return completion

    def note_call(self, place: int, request: ChatRequest, completion: Completion) -> None:
        """Called for each recorded call, in order and one at a time; subclasses store what they need.

        `place` is the index in `conversations` of the conversation that the call opened or continued.
        """

    def _record(self, request: ChatRequest, completion: Completion) -> None:
        reply = Message(role="assistant", content=completion.text, tool_calls=completion.tool_calls)
        messages, tokens = (*request.messages, reply), completion.tokens
        digests = list(_message_digests(messages))
        keys = [digests[-1]]
        if tokens is not None:
            ids = tokens.prompt + tokens.sampled
            keys += _id_digests(ids, [len(ids)])
        # What a call continues is shorter than its request, so the last two digests can't be it.
        place = self._find_continued(digests[:-2], tokens)
        predecessor = None if place is None else self._conversations[place]
        conversation = Conversation(
            messages=messages, kind=request.kind, tokens=tokens, turns=_turns(predecessor, tokens)
        )
        if place is None:
            place = len(self._conversations)
            self._conversations.append(conversation)
        for key in self._keys.get(place, ()):
            self._open[key].remove(place)
            if not self._open[key]:
                del self._open[key]
        self._conversations[place], self._keys[place] = conversation, keys
        for key in keys:
            self._open[key].append(place)
        self.note_call(place, request, completion)

    def _find_continued(self, prefixes: Sequence[_Key], tokens: TokenIds | None) -> int | None:
        """Finds the conversation that the call continues; None if it opens a new one."""
        if tokens is not None:
            lengths = sorted({length for length, _ in self._open})
            if places := self._find_extended(_id_digests(tokens.prompt[:-1], lengths)):
                return places[0]
        candidates = self._find_extended(prefixes)
        # Without ids on both sides, only the messages can decide.
        for place in candidates:
            if tokens is None or self._conversations[place].tokens is None:
                return place
        self.retokenised += bool(candidates)
        return None

    def _find_extended(self, prefixes: Iterable[_Key]) -> list[int]:
        """Finds the conversations equal to one of the prefixes, longest first, then latest first."""
        longest_first = reversed(list(prefixes))
        return [place for key in longest_first for place in reversed(self._open.get(key, ()))]


def _turns(predecessor: Conversation | None, tokens: TokenIds | None) -> tuple[TokenIds, ...]:
    """Returns a conversation's turns with one more call; `predecessor` is None if the call opens it."""
    if tokens is None:
        return ()
    if predecessor is None:
        return (tokens,)
    if predecessor.tokens is None or not predecessor.turns:
        return ()
    length = len(predecessor.tokens.prompt) + len(predecessor.tokens.sampled)
    return (*predecessor.turns, tokens.model_copy(update={"prompt": tokens.prompt[length:]}))


def _message_digests(messages: Sequence[Message]) -> Iterator[_Key]:
    """Yields the keys of the prefixes of 1, 2, ... messages, each message hashed once."""
    running = hashlib.sha256()
    for length, message in enumerate(messages, start=1):
        running.update(repr(message).encode())
        yield length, running.digest()


def _id_digests(ids: Sequence[int], lengths: Sequence[int]) -> Iterator[_Key]:
    """Yields the keys of the prefixes of the given (ascending) lengths, each id hashed once."""
    hasher = hashlib.sha256()
    start = 0
    for length in lengths:
        if length > len(ids):
            return
        hasher.update(array("q", ids[start:length]).tobytes())
        start = length
        yield length, hasher.digest()
