"""The context of a tool session, kept below its limit: for users who own their loop, and for `ToolAgent`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

from pydantic import BaseModel

from memagent.compaction import Compaction
from memagent.errors import ConfigError
from memagent.messages import Message, Sampling, ToolSpec, Usage
from memagent.models.base import ChatModel
from memagent.prompts.session import SessionPrompts
from memagent.run.log import Log
from memagent.session.context.archive import Archive, FileArchive, read_archived
from memagent.session.context.history import Chain, History, Saved
from memagent.session.context.working import Opener, Working
from memagent.threads import in_background, in_thread, run_sync
from memagent.tools import Tool

Given = Message | Mapping[str, Any] | BaseModel
"""A message: memagent's, in OpenAI's form, or an object of the openai package."""


class SummaryBuffer:
    """Holds what to send: the prompt, the summary of earlier turns, and the turns since.

    ```python
    buffer = SummaryBuffer(model, working_context=4096, tools=[*specs, READ_ARCHIVED])
    await buffer.open([Message(role="system", content=frame), Message(role="user", content=task)])
    while True:
        if buffer.due:
            await buffer.compact()
        request = ChatRequest(messages=buffer.messages, tools=buffer.tools, max_tokens=buffer.room)
        ...  # send it, append the assistant message and the results of its calls
    ```

    A turn is an assistant message with the results of all its calls, or a user message. Call `compact` between
    turns; a turn with missing results is left alone.

    Args:
        model: writes the summaries.
        working_context: most tokens of prompt plus output; the model's window counts where it is smaller. None
            takes the model's window.
        window: the model's window, for a model that does not say it.
        max_summaries: how often turns may be summarised.
        summary_tokens: most tokens of a summary; by default an eighth of the working context, at least 64.
        tools: what the requests of the loop offer (they are part of each prompt, and of the summary's). With
            `memagent.session.context.archive.READ_ARCHIVED` among them, clipped texts say how to read the rest.
        idempotent: names of the tools that may be called twice: a later call of the same arguments makes an earlier
            result stale, and the ledger lists them as read.
        writes: names of those of them that change something: the ledger lists them as written.
        native: calls travel in fields of their own; False: in the text of messages (`memagent.tools.protocol`).
        prompts: the wording: a set, or the path of one; None takes memagent's own.
        archive: keeps what leaves the context; by default a temporary file that goes with `aclose`.
        sampling: of the summary calls.
        seed: the summary calls' seeds are made from it.
        early: share of the limit from which a summary is begun in the background (0.7, say); None waits until it
            is due.
        log: log of the run that the summaries belong to: they are committed, and returned when it is replayed.

    Raises:
        ConfigError: a setting has a bad value.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        working_context: int | None = 4096,
        window: int | None = None,
        max_summaries: int = 7,
        summary_tokens: int | None = None,
        tools: Sequence[ToolSpec] = (),
        idempotent: Collection[str] = frozenset(),
        writes: Collection[str] = (),
        native: bool = True,
        prompts: SessionPrompts | str | PathLike[str] | None = None,
        archive: Archive | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        early: float | None = None,
        log: Log | None = None,
    ) -> None:
        self._own: FileArchive | None = None
        if archive is None:
            archive = self._own = FileArchive()
        self._tools, self._native = tuple(tools), native
        self._opener = Opener(
            model=model,
            working_context=working_context,
            window=window,
            summary_tokens=summary_tokens,
            max_summaries=max_summaries,
            idempotent=frozenset(idempotent),
            writes=frozenset(writes),
            native=native,
            prompts=prompts,
            archive=archive,
            sampling=sampling or Sampling(),
            seed=seed,
            early=early,
            log=log,
        )
        self._opened: Working | None = None
        self._saved: Saved | None = None
        self._lock = asyncio.Lock()

    async def open(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Sets the prompt, which starts every request and never leaves.

        Args:
            messages: the system message, if there is one, and the task; at least one message.

        Raises:
            WindowUnknown: neither the model nor `window=` gives the window.
            WindowTooSmall: prompt, summary and instruction leave no room for turns.
            ConfigError: there is no message, or the buffer was opened before.
            PromptSetError: the prompts can't be read.
            ModelError: the server had to count, and did not answer.
        """
        async with self._lock:
            if self._opened is not None:
                raise ConfigError("this buffer is already open: create another for another session")
            prompt = [Message.from_openai(message) for message in messages]
            self._opened = await self._opener.open(prompt, self._tools, self._saved)

    async def append(
        self,
        message: Message | Mapping[str, Any],
        *,
        ok: bool = True,
        usage: Usage | None = None,
    ) -> None:
        """Appends a message; missing and repeated ids are repaired, control tokens neutralised.

        Args:
            message: an assistant's, a tool's or a user's; a mapping is one in OpenAI's form. A system message becomes a
                user's.
            ok: False marks a tool's message as a failure, which takes the place of no earlier result, and a user's as
                a note of the loop: it is summarised, where the user's words stay.
            usage: of the reply that an assistant's message is: later prompts are counted from its `prompt_tokens`. Only
                for a request that held `messages` and `tools` and nothing else that changes the prompt (`thinking`).

        Raises:
            ConfigError: the buffer isn't open, or this isn't a message.
            ModelError: the server had to count, and did not answer; nothing was added.
        """
        async with self._lock:
            await self._ready.append(Message.from_openai(message), ok=ok, usage=usage)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages to send; don't send them while results of the last turn are missing."""
        return self._ready.state.messages

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The request's `tools`: those that were given, or none if calls are sent as text."""
        return self._tools if self._native else ()

    @property
    def tokens(self) -> int:
        """Tokens of the prompt made of `messages` and `tools`."""
        return self._ready.state.tokens

    @property
    def room(self) -> int:
        """Tokens left for the output: the working context minus the prompt, at least 0."""
        return max(0, self._ready.layout.window - self.tokens)

    def count(self, messages: Sequence[Message], *, thinking: bool | None = None) -> int:
        """Like `tokens`, for a request that says whether to think. Blocks.

        Raises:
            ModelError: the server had to count, and did not answer.
        """
        return self._ready.layout.count(messages, thinking=thinking)

    @property
    def limit(self) -> int:
        """Prompt tokens at which compaction is due: L = min(0.95 W, W - instruction - summary)."""
        return self._ready.layout.limit

    @property
    def due(self) -> bool:
        """Whether the prompt has reached `limit`."""
        return self.tokens >= self.limit

    @property
    def summaries(self) -> int:
        """Summaries written so far."""
        return self._ready.state.past.stage

    @property
    def summary(self) -> str | None:
        """The last summary; None before the first."""
        return self._ready.state.past.summary or None

    @property
    def archive_tool(self) -> Tool:
        """`read_archived`, which reads what left the context; a loop that offers its spec runs it like any tool."""
        layout = self._ready.layout
        return read_archived(layout.archive, layout.counter, layout.again)

    async def compact(self, *, force: bool = False) -> Compaction | None:
        """Compacts the prompt if it is due.

        Args:
            force: makes room although it isn't due, for instance because a reply did not fit `room`: with a summary if
                the cheap tiers free less than a tenth of the working context.

        Returns:
            What was done; None if it isn't due, or the only turn that could be compacted still waits for
            results. Then it is still due: write `if buffer.due`, or break out of a `while buffer.due` on None.

        Raises:
            CompactionFailed: there was no usable summary after two retries, or less than a tenth of the working context
                could be freed.
            OutOfSummaries: a summary is needed, but `max_summaries` have been written.
            ModelError: a summary call failed.
            LimitReached: a summary call would exceed a usage limit.

        Whatever is raised, the context is unchanged, and `compact` may be called again.
        """
        async with self._lock:
            if not self.due and not force:
                return None
            return await self._ready.compact(force=force)

    async def feed(
        self,
        messages: Iterable[Given],
        *,
        tools: Iterable[ToolSpec | Mapping[str, Any]] | None = None,
        usage: Usage | None = None,
    ) -> list[Any]:
        """Takes the whole history of a conversation, and returns the messages to send instead.

        The next history continues this one, or what was returned; the same one may be given again. Calls without a
        result get one that says so. System messages stand first, and may change. It runs in memagent's own event loop,
        whoever calls it; don't mix it with `open` and `append`.

        Args:
            messages: in OpenAI's form, or `Message`s.
            tools: what the request offers, if that changed.
            usage: of the reply to what was returned last, if that is the only new message of an assistant.

        Returns:
            Messages in OpenAI's form. One that is sent as it came is the object that was given.

        Raises:
            HistoryChanged: messages that were fed before were edited, or are gone.
            ConfigError: the history doesn't begin with a system or user message.

        It raises what `open` and `compact` raise, too. Then the same history may be fed again.
        """
        return await in_background(self._feed([*messages], tools, usage))

    def feed_sync(
        self,
        messages: Iterable[Given],
        *,
        tools: Iterable[ToolSpec | Mapping[str, Any]] | None = None,
        usage: Usage | None = None,
    ) -> list[Any]:
        """Sync version of `feed`; works inside a running event loop too, which it blocks."""
        return run_sync(self._feed([*messages], tools, usage))

    async def _feed(self, given: list[Any], tools: Any, usage: Usage | None) -> list[Any]:
        async with self._lock:
            messages = [Message.from_openai(message) for message in given]
            offered = self._tools if tools is None else tuple(map(ToolSpec.from_openai, tools))
            chain, before = Chain(messages), self._opened or self._saved
            known = before and before.history
            if before is not None and known is None:
                raise ConfigError(
                    "this buffer was opened with open(): append to it, or feed a new one"
                )
            history = History.start(chain) if known is None else known.follow(chain)
            if self._opened is None:
                self._opened = await self._opener.open(history.prompt, offered, self._saved)
                await in_thread(self._opened.keep, chain.rest[: history.fed.count])
            elif known is not None and (known.prompt, self._tools) != (history.prompt, offered):
                await self._opened.change(history.prompt, offered)
                usage = None  # of a request with another prompt
            self._tools, self._opened.history = offered, history
            sent = await self._opened.read(chain, usage)
        own = dict(zip(messages, given, strict=True))
        return [own[message] if message in own else message.to_openai() for message in sent]

    def state(self) -> dict[str, Any]:
        """What `from_state` continues with, as JSON: for another process, or to go back to this point later."""
        if self._opened is None and self._saved is not None:
            return self._saved.model_dump(mode="json")
        return self._ready.save().model_dump(mode="json")

    @classmethod
    def from_state(cls, state: Mapping[str, Any], model: ChatModel, **settings: Any) -> Self:
        """A buffer that continues with the next history, or with `open` and the same prompt.

        Args:
            state: as `state` returned it.
            model: writes the summaries.
            settings: those of the class; they aren't in the state, and may differ.

        Raises:
            ConfigError: it isn't a state, or was written by a later version of memagent.
        """
        buffer = cls(model, **settings)
        buffer._saved = Saved.read(state)
        return buffer

    async def aclose(self) -> None:
        """Cancels a summary started early, and frees the archive, unless it was passed in."""
        fed = self._opened is not None and self._opened.history is not None
        await (in_background(self._close()) if fed else self._close())

    def close(self) -> None:
        """Sync version of `aclose`."""
        run_sync(self._close())

    async def _close(self) -> None:
        if self._opened is not None:
            await self._opened.summariser.forget()
        if self._own is not None:
            await in_thread(self._own.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _ready(self) -> Working:
        if self._opened is None:
            raise ConfigError("this buffer has no prompt yet: await open(messages) first")
        return self._opened
