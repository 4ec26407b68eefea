"""Keeps long histories within the window with a `SummaryBuffer`, and remembers what was summarised."""

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
"""Maximum summaries of one conversation, in effect unlimited: the client ends a conversation."""
CLOCK = re.compile(
    r"(?<![\d:.])\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?![\d:])|(?<![\d.])(?:\d{4}([-./])\d{1,2}\1\d{1,2}"
    r"|\d{1,2}([-./])\d{1,2}\2\d{4}|\d{1,2}/\d{1,2}/\d\d|\d\d\.\d\d\.\d\d)(?!/?\d|\.\d)"
)
"""Matches times and dates in digits, and hardly any version or address."""
_SHIPPED = SessionPrompts.load(None)
WORDING = _SHIPPED.model_copy(
    update={"clipped": _SHIPPED.clipped.replace("; the whole text is kept as {{ handle }}", "")}
)
"""Prompts for summaries. A client has no tool to read what was left out, so the model isn't told that it is kept."""


@dataclass(frozen=True)
class ShortHistory:
    """A history that fits the window."""

    messages: list[dict[str, Any]]
    summaries: int
    """Summaries written for the conversation so far."""
    clipped: int
    """Tool results that are sent without their middle."""
    paid: Usage
    """What this request paid."""
    state: Mapping[str, Any]
    """State to continue a history that begins with these messages."""


class Histories:
    """Shortens histories; a conversation's next turn continues from the state of the last one.

    Args:
        model: the model that writes the summaries.
        states: states of histories that were fed, by their digests.
        sampling: sampling settings for the summaries.
        limits: how much the summaries of one request may spend.
    """

    def __init__(
        self,
        model: ChatModel,
        states: States,
        sampling: Sampling | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._model, self._states, self._limits = model, states, limits or Limits()
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
            messages: messages in the form of chat completions.
            tools: tools that the request offers.
            window: the model's window, in tokens.
            room: tokens for the output.
            given: the messages as the client sent them, by which the next turn is recognised.
            owner: owner of the conversation.
            state: state of the history that this one continues, if the client sent it.

        Raises:
            MemagentError: see `SummaryBuffer.feed`.
        """
        digests = await asyncio.to_thread(self._digests, given, owner)
        model = UsageLimit(self._model, self._limits)

        async def feed(buffer: SummaryBuffer) -> list[Any]:
            try:
                return await buffer.feed(messages, tools=tools)
            except BaseException:
                if model.spent.calls:  # dropped or failed, it has paid for summaries
                    with suppress(ConfigError):  # from a second buffer, which took no messages
                        await self._keep_fed(buffer, digests)
                raise

        # A repeated request waits for the summaries of the first one, if that is still at work.
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
        """Summarises a history even if it fits, unless that would save less than a tenth of the window.

        Args:
            messages: messages in the form of chat completions.
            tools: tools that the requests offer.
            window: the model's window, in tokens.
            state: state of the history that this one continues, if the client sent it; its summary is replaced.

        Raises:
            MemagentError: see `SummaryBuffer.feed` and `compact`.
        """

        async def feed(buffer: SummaryBuffer) -> list[Any]:
            await buffer.feed(messages, tools=tools)
            with suppress(CompactionFailed):
                await in_background(buffer.compact(force=True))  # on the event loop that fed it
            return await buffer.feed(messages, tools=tools)  # again, so that its state has it

        model = UsageLimit(self._model, self._limits)
        return await self._use(feed, model, window, window, state)

    async def _use(
        self,
        feed: Callable[[SummaryBuffer], Awaitable[list[Any]]],
        model: UsageLimit,
        context: int,
        window: int,
        state: Mapping[str, Any] | None,
    ) -> ShortHistory:
        """Feeds a buffer that continues a state, or a new one if that isn't possible.

        A state may come from another version of memagent, a larger window, or a history that was edited since.
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
        """Keeps the state of a partly fed history."""

        async def read() -> dict[str, Any]:
            return buffer.state()

        # On the event loop that fed it, where no message is half fed.
        state = await in_background(read())
        history = state["history"]
        count: int = len(history["systems"]) + history["fed"]["count"]
        await asyncio.to_thread(self._states.keep, digests[count - 1], state)

    def _digests(self, messages: Sequence[Mapping[str, Any]], owner: str) -> list[bytes]:
        """Returns a digest of each prefix of a history. It includes the model, since summaries are each model's own.

        Dates and times in a system message are left out: many prompts have a clock, and each turn would pay for all
        summaries again. Everything else counts: under another task the same history has other summaries.
        """
        hasher = hashlib.blake2b(f"{self._model.name}\n{owner}".encode(), digest_size=16)
        digests: list[bytes] = []
        for message in messages:
            text = json.dumps(message, sort_keys=True, ensure_ascii=False)  # \u4e01 has digits
            if message.get("role") in ("system", "developer"):
                text = CLOCK.sub("", text)
            hasher.update(text.encode("utf-8", "surrogatepass"))
            digests.append(hasher.digest())
        return digests


def _close_history(messages: list[Any], buffer: SummaryBuffer, model: UsageLimit) -> ShortHistory:
    state = buffer.state()
    results = [result for turn in state["context"]["turns"] for result in turn["results"] if result]
    clipped = sum(result["handle"] is not None and not result["fixed"] for result in results)
    return ShortHistory(messages, buffer.summaries, clipped, model.spent, state)
