"""What a tool session does outside of itself: made once, committed, and handed back when the session is replayed."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from memagent.errors import LimitReached, ModelError
from memagent.events import Event, Retried
from memagent.messages import ChatRequest, Completion, Usage
from memagent.models.base import ChatModel, Wrapper
from memagent.prompts import UnusableReply
from memagent.run.exchange import seed_of
from memagent.run.runner import Journal
from memagent.runstore.effects import Begun
from memagent.threads import in_thread

Told = Callable[[ChatRequest, Completion], Sequence[Event]]
"""What a usable reply says, as events.

Raises:
    UnusableReply: it is none.
"""


class Effects:
    """The effects of one run, in the store.

    Args:
        journal: the run.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._stored = journal.store.effects(journal.run_id)
        self._news: deque[Event] = deque()
        self._order = threading.Lock()

    def news(self) -> list[Event]:
        """The events committed since the last time, in the order of the log."""
        news: list[Event] = []
        while self._news:
            news.append(self._news.popleft())
        return news

    async def find(self, key: str) -> dict[str, Any] | None:
        """What was committed under a key, None where nothing was."""
        return await in_thread(self._stored.find, key)

    async def count(self, kind: str) -> int:
        """How many of a kind are committed."""
        return await in_thread(self._stored.count, kind)

    async def begin(self, key: str) -> Begun:
        """Commits that an effect is about to be made, or hands back what it was."""
        return await in_thread(self._stored.begin, key)

    async def commit(
        self, key: str, body: dict[str, Any], usage: Usage, events: Sequence[Event]
    ) -> None:
        """Commits what an effect was, with its events."""
        await self._told(lambda: self._stored.commit(key, body, usage, events))

    async def spend(self, key: str, usage: Usage, events: Sequence[Event]) -> None:
        """Commits what came to nothing."""
        await self._told(lambda: self._stored.spend(key, usage, events))

    async def log(self, *events: Event) -> None:
        """Commits events that belong to no effect."""
        await self._told(lambda: self._journal.store.log(self._journal.run_id, events))

    async def once(self, key: str, body: dict[str, Any], *events: Event) -> None:
        """Commits what follows from earlier effects, unless it is there."""
        if (await self.begin(key)).body is None:
            await self.commit(key, body, Usage(), events)

    async def _told(self, write: Callable[[], list[Event]]) -> None:
        def work() -> None:
            # Under a lock, and here: several effects may be committed at once, or by a task that is cancelled.
            with self._order:
                self._news.extend(write())

        await in_thread(work)


class Remembered(Wrapper):
    """Commits each usable reply, and hands it back instead of sending the request again when a run is replayed.

    Replies are told apart by the kind of their request and by how many of that kind were usable before. A reply that
    is not usable is paid for and forgotten, so that it is asked for again. A summary that was begun early is not
    asked for again by anybody, and a compaction waits for it: whatever comes of it is handed back, a failure too.

    Args:
        inner: where requests go.
        effects: of the run.
        told: what a usable reply says.
    """

    def __init__(self, inner: ChatModel, effects: Effects, told: Told) -> None:
        super().__init__(inner)
        self._effects, self._told = effects, told
        self._done: Counter[str] = Counter()
        self.unusable: set[str] = set()
        """Kinds of request whose last reply was not usable."""

    async def window(self) -> int | None:
        """None: the working context is settled, and the server may not be willing to say."""
        return None

    async def complete(self, request: ChatRequest) -> Completion:
        """The reply, of now or of an earlier session."""
        early = bool(request.parts.get("early"))
        kind = "early" if early else request.kind
        key = f"{kind}-{self._done[kind]}"
        begun = await self._effects.begin(key)
        self.unusable.discard(kind)
        if begun.body is not None:
            self._done[kind] += 1
            if "failed" in begun.body:
                raise ModelError(begun.body["failed"], attempts=begun.body["attempts"])
            return Completion.model_validate(begun.body)
        if begun.wasted and request.seed is not None:
            # An engine that draws by the seed would say the same again, in each session that resumes the run.
            seed = seed_of(request.seed, 0, key, begun.wasted)
            request = request.model_copy(update={"seed": seed})
        again = Usage(repeated=begun.sent)
        try:
            completion = await self.inner.complete(request)
        except (ModelError, LimitReached) as error:
            attempts = error.attempts if isinstance(error, ModelError) else 0
            spent = again + Usage(retries=attempts)
            if early:
                self._done[kind] += 1
                body = {"failed": str(error), "attempts": attempts}
                await self._effects.commit(key, body, spent, ())
            else:
                await self._effects.spend(key, spent, ())
            raise
        events: list[Event] = [
            Retried(chunk=None, reason=failure.error, waited=failure.waited)
            for failure in completion.failures
        ]
        usage, usable = completion.usage, True
        try:
            events += self._told(request, completion)
        except UnusableReply as error:
            events.append(Retried(chunk=None, reason=str(error)))
            usage, usable = wasted(usage), False
            self.unusable.add(kind)
        if usable or early:
            self._done[kind] += 1
            body = completion.model_dump(mode="json", exclude_defaults=True)
            await self._effects.commit(key, body, usage + again, events)
        else:
            await self._effects.spend(key, usage + again, events)
        return completion


def wasted(usage: Usage) -> Usage:
    """What a reply cost that is thrown away."""
    return Usage(
        retries=usage.retries + 1,
        retry_tokens=usage.retry_tokens + usage.prompt_tokens + usage.completion_tokens,
    )
