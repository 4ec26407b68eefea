"""The context of a tool session, kept below its limit: for users with their own loop, and for `ToolAgent`."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

from memagent.budget import DEFAULT_WINDOW
from memagent.compaction import Compaction
from memagent.errors import ConfigError, QuestionTooLong, WindowUnknown
from memagent.messages import Message, Sampling, ToolSpec, Usage
from memagent.models.base import ChatModel
from memagent.models.retry import count_in_thread
from memagent.prompts import Neutraliser
from memagent.prompts.session import SessionPrompts
from memagent.run.caller import Caller
from memagent.run.log import Log
from memagent.session.context.archive import Archive, FileArchive, RunArchive, read_archived
from memagent.session.context.contents import Contents, SavedContents
from memagent.session.context.feed import Feeding, change, has_reader, make_prompt
from memagent.session.context.layout import Layout
from memagent.threads import in_background, in_thread
from memagent.tools import Tool


class SummaryBuffer(Feeding):
    """Holds what to send: the prompt, the summary of earlier turns, and the turns since.

    `feed` it the whole history before each request. Or `open` it with the prompt, `append` each message, call `compact`
    between turns when it is `due`, and send `messages` and `tools` with `room` as `max_tokens`. A turn is an assistant
    message with the results of all its calls, or a user message; one with missing results is left alone.

    Args:
        model: writes the summaries.
        working_context: maximum tokens of prompt plus output, by default 8192, or the model's window if that is
            smaller. None uses the model's window.
        window: the model's window, for a model that doesn't report it.
        max_summaries: maximum number of summaries; with `feed`, for each user message.
        summary_tokens: maximum tokens of a summary; by default an eighth of the working context, at least 64.
        tools: the tools that the loop's requests offer (they are part of each prompt, also the summary's). With
            `memagent.session.context.archive.READ_ARCHIVED` among them, clipped texts say how to read the rest.
        idempotent: names of the tools that may be called twice: a later call with the same arguments makes an earlier
            result stale, and the ledger lists their calls as read.
        writes: names of the idempotent tools that change something: the ledger lists their calls as written.
        native: True sends calls in their own fields; False, in the text of messages (`memagent.tools.protocol`).
        prompts: the wording: a prompt set, or its path; None uses memagent's own.
        archive: stores what leaves the context; by default the log's run, or a temporary file that `aclose`
            deletes.
        sampling: for the summary calls.
        seed: the summary calls' seeds are derived from it.
        early: share of the limit at which a summary is started in the background (0.7, say); None waits until it
            is due.
        log: log of the run that the summaries belong to: they are committed to it, and returned in a replay.

    Raises:
        ConfigError: a setting has a bad value.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        working_context: int | None = DEFAULT_WINDOW,
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
        for name, size in (
            ("working_context", working_context), ("window", window), ("summary_tokens", summary_tokens),
        ):  # fmt: skip
            if size is not None and size < 1:
                raise ConfigError(f"{name} must be at least 1 token, got {size!r}")
        if max_summaries < 0:
            raise ConfigError(f"max_summaries must be at least 0, got {max_summaries!r}")
        if early is not None and not 0 < early < 1:
            raise ConfigError(f"early must be a share between 0 and 1, got {early!r}")
        if not hasattr(model, "complete"):
            raise ConfigError(
                f"model must be a ChatModel, got {model!r}: memagent.open_model({model!r}) makes one"
            )
        self._own: FileArchive | None = None
        if archive is None and log is not None:
            archive = RunArchive(log.store, log.run_id)
        elif archive is None:
            archive = self._own = FileArchive()
        self._model, self._log, self._prompts, self._early = model, log, prompts, early
        self._tools, self._native = tuple(map(ToolSpec.from_openai, tools)), native
        self._sizes, self.max_summaries = (working_context, window), max_summaries
        self._lay_out = partial(
            Layout,
            archive=archive,
            native=native,
            idempotent=frozenset(idempotent),
            writes=frozenset(writes),
            summary_tokens=summary_tokens,
        )
        self._calls = partial(Caller, model, sampling=sampling or Sampling(), seed=seed, log=log)
        self._opened: Contents | None = None
        self._lock = asyncio.Lock()

    async def open(
        self,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        """Sets the prompt, which starts every request and never leaves the context.

        Args:
            messages: the system message, if there is one, and the task; at least one message.
            saved: what `dump` returned for a buffer with the same settings and archive, to continue from there.

        Raises:
            WindowUnknown: neither the model nor `window=` gives the window.
            WindowTooSmall: prompt, summary and instruction leave no room for turns.
            ConfigError: there is no message, or the buffer was opened before.
            PromptSetError: the prompts can't be read.
            ModelError: the server was asked to count, and did not answer.
        """
        async with self._lock:
            if self._opened is not None:
                raise ConfigError("this buffer is already open: create another for another session")
            prompt = [Message.from_openai(message) for message in messages]
            self._opened = await self._open(prompt, self._tools, saved)

    async def _open(
        self,
        prompt: Sequence[Message],
        tools: tuple[ToolSpec, ...],
        saved: Mapping[str, Any] | SavedContents | None = None,
    ) -> Contents:
        working_context, window = self._sizes
        model_window = None if self._log else await self._model.window()
        limit = min((size for size in (model_window, window) if size is not None), default=None)
        if limit is None:
            raise WindowUnknown(
                f"the model {self._model.name!r} does not report its window: give it (window=)"
            )
        prompts = await in_thread(SessionPrompts.load, self._prompts)
        counter = await self._model.counter()
        user_neutraliser = Neutraliser(None, counter.control_tokens)
        layout = self._lay_out(
            make_prompt(prompt, user_neutraliser),
            prompts=prompts,
            counter=counter,
            neutraliser=Neutraliser(dict(prompts.tags).values(), counter.control_tokens),
            spoken=user_neutraliser,
            tools=tools if self._native else (),
            can_read=has_reader(tools),
            window=limit if working_context is None else min(limit, working_context),
            most=limit,
            foreign=self._log is None,
        )
        caller = self._calls(counter, layout.window)
        begin = partial(Contents.begin, layout, caller, self._early, saved)
        return await count_in_thread(self._model, begin)

    async def change(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        idempotent: Collection[str] = (),
        writes: Collection[str] = (),
    ) -> None:
        """Replaces the prompt and the tools; the turns stay.

        Args:
            messages: the prompt, as in `open`.
            tools: what requests offer from now on; they and the names below replace those of the constructor.
            idempotent: names of the tools that may be called twice.
            writes: names of the idempotent tools that change something.

        Raises:
            WindowTooSmall: prompt, summary and instruction leave no room for turns; nothing was changed.
            ConfigError: the buffer isn't open.
            ModelError: the server was asked to count, and did not answer.
        """
        names = {"idempotent": frozenset(idempotent), "writes": frozenset(writes)}
        async with self._lock:
            await change(self._ready, messages, tools, **names)
            self._tools = tuple(tools)

    async def append(
        self, message: Message | Mapping[str, Any], *, ok: bool = True, usage: Usage | None = None
    ) -> None:
        """Appends a message; missing and repeated ids are repaired, control tokens neutralised.

        Args:
            message: an assistant, tool or user message; a mapping is in OpenAI's form. A system message becomes a user
                message.
            ok: False marks a tool message as a failure, which makes no earlier result stale, and a user message as a
                note of the loop, which is summarised, while the user's words stay.
            usage: the reply's usage, for an assistant message: later prompts are counted from its `prompt_tokens`. Only
                for a request of `messages` and `tools`, without anything else that changes the prompt (`thinking`).

        Raises:
            ConfigError: the buffer isn't open, or this isn't a message.
            ModelError: the server was asked to count, and did not answer; nothing was added.
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
        """Counts a prompt of `messages` like `tokens`, for a request that sets `thinking`. Blocks.

        Raises:
            ModelError: the server was asked to count, and did not answer.
        """
        return self._ready.layout.count(messages, thinking=thinking)

    @property
    def takes_more(self) -> bool:
        """Whether there is room for another message of the user, which stays word for word after summaries."""
        return self._ready.layout.said > 0

    async def check_said(self, text: str) -> None:
        """Checks that a user message is short enough to stay word for word after summaries.

        Raises:
            QuestionTooLong: it is too long for that.
            ModelError: the server was asked to count, and did not answer.
        """
        await self._ready.check_said(text)

    async def dump(self) -> dict[str, Any] | None:
        """Returns the state as JSON values, for `open`; None while results are missing or a summary is unfinished."""
        opened = self._ready
        if not opened.summariser.idle or opened.state.pending:
            return None
        return await in_thread(opened.save().model_dump, mode="json")

    @property
    def limit(self) -> int:
        """Prompt tokens at which compaction is due: three quarters of the working context, or as in ADR 0029."""
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
            force: makes room even if it isn't due, for instance because a reply did not fit `room`; with a summary if
                the cheap tiers free less than a tenth of the working context.

        Returns:
            What was done; None if it isn't due, or the only turn that could be compacted still waits for
            results. Then it is still due: use `if buffer.due`, or break out of `while buffer.due` on None.

        Raises:
            CompactionFailed: there was no usable summary after two retries, or less than a tenth of the working context
                could be freed.
            QuestionTooLong: the user's last message doesn't fit behind the summary whole.
            OutOfSummaries: a summary is needed, but `max_summaries` have been written.
            ModelError: a summary call failed.
            LimitReached: a summary call would exceed a usage limit.

        After any error the context is unchanged, and `compact` may be called again.
        """
        async with self._lock:
            if not self.due and not force:
                return None
            opened, state = self._ready, self._ready.state
            compaction = await opened.compact(max_summaries=self.max_summaries, force=force)
            try:
                await opened.check_asked()
            except QuestionTooLong:
                opened.state = state
                raise
            return compaction

    async def aclose(self) -> None:
        """Cancels a summary started early, and frees the archive, unless it was passed in."""
        await (in_background(self._close()) if self._history else self._close())

    async def _close(self) -> None:
        if self._opened is not None:
            await self._opened.summariser.forget()
        if self._own is not None:
            await in_thread(self._own.close)

    @property
    def _ready(self) -> Contents:
        if self._opened is None:
            raise ConfigError("this buffer has no prompt yet: await open(messages) first")
        return self._opened
