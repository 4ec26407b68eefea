"""Long histories, kept within the window by a `SummaryBuffer` that remembers what it summarised."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from memagent import Sampling, SummaryBuffer, Usage
from memagent.errors import CompactionFailed, ConfigError, ContextOverflow
from memagent.models import ChatModel, Limits, UsageLimit
from memagent.prompts.session import SessionPrompts
from memagent.threads import in_background
from memagent_serve.states import States

SUMMARIES = 1_000_000
"""Of one conversation; it ends when its client ends it."""
_SHIPPED = SessionPrompts.load(None)
WORDING = _SHIPPED.model_copy(
    update={"clipped": _SHIPPED.clipped.replace("; the whole text is kept as {{ handle }}", "")}
)
"""A client has no tool that reads what was left out, so the model isn't told that it is kept."""


@dataclass(frozen=True)
class ShortHistory:
    """A history that fits."""

    messages: list[dict[str, Any]]
    summaries: int
    """Written for the conversation so far."""
    clipped: int
    """Results of tools that are sent without their middle."""
    paid: Usage
    """By this request."""
    state: Mapping[str, Any]
    """With which a history continues that begins with these messages."""


class Histories:
    """Shortens histories; the next turn of a conversation continues from the state of the last one.

    Args:
        model: writes the summaries.
        states: of the histories that were fed, by their digests.
        sampling: of the summaries.
    """

    def __init__(self, model: ChatModel, states: States, sampling: Sampling | None = None) -> None:
        self._model, self._states = model, states
        self._settings: dict[str, Any] = {
            "max_summaries": SUMMARIES,
            "prompts": WORDING,
            "sampling": sampling,
        }
        self._locks = WeakValueDictionary[bytes, asyncio.Lock]()

    async def shorten(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[Any],
        window: int,
        room: int,
        *,
        given: Sequence[Mapping[str, Any]],
        owner: str,
        state: Mapping[str, Any] | None = None,
    ) -> ShortHistory:
        """Returns messages that leave room for the output.

        Args:
            messages: in the form of chat completions.
            tools: what the request offers.
            window: of the model, in tokens.
            room: tokens for the output.
            given: the messages as the client sent them, by which the next turn is recognised.
            owner: whose conversation it is.
            state: of the history that this one continues, if the client brought it.

        Raises:
            MemagentError: what `SummaryBuffer.feed` raises.
        """
        digests = await asyncio.to_thread(self._digests, given, owner)
        model = UsageLimit(self._model, Limits())

        async def feed(buffer: SummaryBuffer) -> list[Any]:
            try:
                return await buffer.feed(messages, tools=tools)
            except BaseException:
                if model.spent.calls:  # a request that is dropped or fails has paid for summaries
                    with suppress(ConfigError):  # of a second buffer, which took nothing
                        await self._keep_fed(buffer, digests)
                raise

        # Who asks again while the first request is at work waits for its summaries.
        async with self._locks.setdefault(digests[-1], asyncio.Lock()):
            if state is None:
                state = await asyncio.to_thread(self._states.find, digests)
            history = await self._use(feed, model, max(1, window - room), window, state)
            await asyncio.to_thread(self._states.keep, digests[-1], history.state)
            return history

    async def compact(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[Any],
        window: int,
        state: Mapping[str, Any] | None,
    ) -> ShortHistory:
        """Summarises a history though it may fit; what saves less than a tenth of the window is left alone.

        Args:
            messages: in the form of chat completions.
            tools: what the requests offer.
            window: of the model, in tokens.
            state: of the history that this one continues, if the client brought it: its summary is replaced.

        Raises:
            MemagentError: what `SummaryBuffer.feed` and `compact` raise.
        """

        async def feed(buffer: SummaryBuffer) -> list[Any]:
            await buffer.feed(messages, tools=tools)
            with suppress(CompactionFailed):
                await in_background(buffer.compact(force=True))  # on the loop on which it was fed
            return await buffer.feed(messages, tools=tools)  # once more, so that its state knows

        return await self._use(feed, UsageLimit(self._model, Limits()), window, window, state)

    async def _use(
        self,
        feed: Callable[[SummaryBuffer], Awaitable[list[Any]]],
        model: UsageLimit,
        context: int,
        window: int,
        state: Mapping[str, Any] | None,
    ) -> ShortHistory:
        """Feeds a buffer that continues a state, or else a new one.

        A state may be of another version of memagent, of a larger window, or of a history that was edited since.
        """
        sizes: dict[str, Any] = {"working_context": context, "window": window}
        settings = self._settings | sizes
        try:
            new_buffer = (
                SummaryBuffer(model, **settings)
                if state is None
                else SummaryBuffer.from_state(state, model, **settings)
            )
            async with new_buffer as buffer:
                return _close_history(await feed(buffer), buffer, model)
        except (ConfigError, ContextOverflow):
            if state is None:
                raise
            return await self._use(feed, model, context, window, None)

    async def _keep_fed(self, buffer: SummaryBuffer, digests: Sequence[bytes]) -> None:
        """Keeps the state of a history that was fed in part."""

        async def read() -> dict[str, Any]:
            return buffer.state()

        # On the loop on which it was fed: there no message is half fed.
        state = await in_background(read())
        history = state["history"]
        count: int = len(history["systems"]) + history["fed"]["count"]
        await asyncio.to_thread(self._states.keep, digests[count - 1], state)

    def _digests(self, messages: Sequence[Mapping[str, Any]], owner: str) -> list[bytes]:
        """A digest of each beginning of a history: another model's summaries are not this one's.

        Dates and times in a system message are left out: many prompts hold a clock, and each turn would pay for all
        summaries again. All else counts: under another task the same history has other summaries.
        """
        hasher = hashlib.blake2b(f"{self._model.name}\n{owner}".encode(), digest_size=16)
        digests: list[bytes] = []
        for message in messages:
            text = json.dumps(message, sort_keys=True, ensure_ascii=False)  # \u4e01 has no number
            if message.get("role") in ("system", "developer"):
                text = re.sub(r"(\d+:)+[\d.]+|(\d+[-./]){2}\d+", "", text)
            hasher.update(text.encode("utf-8", "surrogatepass"))
            digests.append(hasher.digest())
        return digests


def _close_history(messages: list[Any], buffer: SummaryBuffer, model: UsageLimit) -> ShortHistory:
    state = buffer.state()
    results = [result for turn in state["context"]["turns"] for result in turn["results"] if result]
    clipped = sum(result["handle"] is not None and not result["fixed"] for result in results)
    return ShortHistory(messages, buffer.summaries, clipped, model.spent, state)
