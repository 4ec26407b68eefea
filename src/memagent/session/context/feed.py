"""Feeds a buffer: it is given the whole history each time, and finds what is new."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError

from memagent.errors import ConfigError, ContextOverflow, HistoryChanged
from memagent.messages import Leaf, Message, ToolSpec, Usage
from memagent.models.base import ChatModel
from memagent.models.retry import count_in_thread
from memagent.prompts import Neutraliser
from memagent.session.context.anchors import Anchors
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.context.contents import Contents, SavedContents
from memagent.session.context.turns import as_user, join_users, neutralise
from memagent.texts import describe_problem, digest
from memagent.threads import Closing, in_background, in_thread, run_sync

STATE_VERSION = 1


class Mark(Leaf):
    """The beginning of a history, without its system messages."""

    count: int = 0
    digest: str = ""
    """Digest of its first `count` messages."""


class Chain:
    """A history, with the digest of each of its beginnings."""

    def __init__(self, messages: Sequence[Message]) -> None:
        length = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
        self.systems, self.rest = tuple(messages[:length]), tuple(messages[length:])
        self._digests = [""]
        for message in self.rest:
            self._digests.append(digest(self._digests[-1] + message.model_dump_json()))

    def mark(self, count: int | None = None) -> Mark:
        """Returns the mark of its first `count` messages; of all by default."""
        count = len(self.rest) if count is None else count
        return Mark(count=count, digest=self._digests[count])


class History(Leaf):
    """What a buffer was fed last, and what it returned: the next history continues one of them."""

    prompt: tuple[Message, ...]
    """The messages that start every request: system messages, and the first user message, with any greeting before."""
    systems: tuple[Message, ...]
    """System messages as fed."""
    fed: Mark
    sent_systems: tuple[Message, ...]
    """System messages as returned: at most one."""
    sent: Mark
    summaries: int = 0
    """Summaries before the user's last message."""

    @classmethod
    def start(cls, chain: Chain) -> Self:
        """Returns the history of a buffer that has read nothing but the prompt."""
        first = next((n for n, m in enumerate(chain.rest, 1) if m.role == "user"), 0)
        task = chain.rest[:first]
        if any(message.role == "tool" or message.tool_calls for message in task):
            task = ()
        systems, mark = chain.systems, chain.mark(len(task))
        prompt = (*systems, *task)
        return cls(prompt=prompt, systems=systems, fed=mark, sent_systems=systems, sent=mark)

    def follow(self, chain: Chain) -> Self:
        """Returns this for the next history: which part of it was read before, and its prompt.

        Raises a `HistoryChanged` if it continues neither what was fed last nor what was returned.
        """
        for mark, systems in ((self.fed, self.systems), (self.sent, self.sent_systems)):
            if mark.count <= len(chain.rest) and chain.mark(mark.count) == mark:
                update = {"fed": mark, "systems": chain.systems}
                if chain.systems != systems:
                    update["prompt"] = (*chain.systems, *Chain(self.prompt).rest)
                return self.model_copy(update=update)
        raise HistoryChanged(
            f"the history of {len(chain.rest)} messages (without system messages) does not begin with the "
            f"{self.fed.count} that were fed before: some were edited, or are gone. A buffer is for one conversation: "
            f"make another one for this history, or restore the state() that was saved at the point it goes back to"
        )


class BufferState(Leaf):
    """What `SummaryBuffer.state` returns."""

    version: Literal[1] = STATE_VERSION
    context: SavedContents
    history: History


Given = Message | Mapping[str, Any] | BaseModel
"""A message: memagent's, in OpenAI's form, or an object of the openai package."""


class Feeding(Closing):
    """The part of `SummaryBuffer` that takes whole histories."""

    max_summaries: int
    _tools: tuple[ToolSpec, ...]
    _opened: Contents | None
    _lock: asyncio.Lock
    _saved: SavedContents | None = None
    _history: History | None = None

    @abstractmethod
    async def _open(
        self, prompt: Sequence[Message], tools: tuple[ToolSpec, ...], saved: SavedContents | None
    ) -> Contents: ...

    async def feed(
        self,
        messages: Iterable[Given],
        *,
        tools: Iterable[ToolSpec | Mapping[str, Any]] | None = None,
        usage: Usage | None = None,
        failed: Collection[str] = (),
    ) -> list[Any]:
        """Takes the whole history of a conversation, and returns the messages to send instead, in OpenAI's form.

        The next history must continue this one, or what was returned; the same one may be given again. Calls without a
        result get one that says so. System messages come first, and may change. A message that is sent unchanged is the
        object that was given. Runs in memagent's own event loop; don't mix it with `open` and `append`.

        Args:
            messages: in OpenAI's form, or `Message`s.
            tools: the tools that the request offers, if they changed.
            usage: usage of the reply to what this buffer returned last, if that is the only new assistant message.
            failed: `tool_call_id`s of the new results that report failures: they make no earlier result stale.

        Raises:
            HistoryChanged: messages that were fed before were edited, or are gone.
            ConfigError: the history begins with calls or results, or has only assistant messages.

        Also raises what `open` and `compact` raise. Then the same history may be fed again.
        """
        return await in_background(self._feed([*messages], tools, usage, failed))

    def feed_sync(
        self,
        messages: Iterable[Given],
        *,
        tools: Iterable[ToolSpec | Mapping[str, Any]] | None = None,
        usage: Usage | None = None,
        failed: Collection[str] = (),
    ) -> list[Any]:
        """Sync version of `feed`; works inside a running event loop too, which it blocks."""
        return run_sync(self._feed([*messages], tools, usage, failed))

    async def _feed(
        self, values: list[Any], tools: Any, usage: Usage | None, failed: Collection[str]
    ) -> list[Any]:
        async with self._lock:
            messages = [Message.from_openai(message) for message in values]
            specs = self._tools if tools is None else tuple(map(ToolSpec.from_openai, tools))
            chain, prior, opened = Chain(messages), self._history, self._opened
            if opened is not None and prior is None:
                raise ConfigError("it was opened with open(): append to it, or feed another buffer")
            history = History.start(chain) if prior is None else prior.follow(chain)
            if opened is None:
                usage = None  # it belongs to no request of this buffer
                self._opened = opened = await self._open(history.prompt, specs, self._saved)
                await in_thread(_keep, opened, chain.rest[: history.fed.count])
            elif prior is not None and (prior.prompt, self._tools) != (history.prompt, specs):
                await change(opened, history.prompt, specs)
                usage = None  # it belongs to a request with another prompt
            self._tools, self._history = specs, history
            prompt = await self._read(opened, chain, usage, failed)
        raw: dict[Message, list[Any]] = {}
        for message, value in zip(messages, values, strict=True):
            if _is_as_read(value, message):
                raw.setdefault(message, []).append(value)
        # Among equal messages, the last ones are those that stayed.
        return [raw[m].pop() if raw.get(m) else m.to_openai() for m in reversed(prompt)][::-1]

    async def _read(
        self, opened: Contents, chain: Chain, usage: Usage | None, failed: Collection[str]
    ) -> Sequence[Message]:
        """Appends what is new, and returns what to send."""
        assert self._history is not None
        start, limit = self._history.fed.count, self._history.summaries + self.max_summaries
        replies = sum(message.role == "assistant" for message in chain.rest[start:])
        for place, message in enumerate(chain.rest[start:], start):
            if message.role == "assistant":
                await _complete(opened, limit)  # as when the request that it answers was sent
            reply_usage = usage if replies == 1 and place == start else None
            await opened.append(message, ok=message.tool_call_id not in failed, usage=reply_usage)
            if message.role == "user":
                limit = opened.state.past.stage + self.max_summaries
            marks = {"fed": chain.mark(place + 1), "summaries": limit - self.max_summaries}
            self._history = self._history.model_copy(update=marks)
        await _complete(opened, limit)
        await opened.check_asked()
        messages = opened.state.messages
        next_chain = Chain([Message.from_openai(message.to_openai()) for message in messages])
        sent_update = {"sent_systems": next_chain.systems, "sent": next_chain.mark()}
        self._history = self._history.model_copy(update=sent_update)
        return messages

    def state(self) -> dict[str, Any]:
        """Returns what `from_state` continues from, as JSON: for another process, or to go back to this point later.

        Raises:
            ConfigError: nothing was fed.
        """
        if self._history is None:
            raise ConfigError("this buffer was fed nothing: call feed(messages) first")
        context = (self._opened.save() if self._opened else self._saved) or SavedContents()
        return BufferState(context=context, history=self._history).model_dump(mode="json")

    @classmethod
    def from_state(cls, state: Mapping[str, Any], model: ChatModel, **settings: Any) -> Self:
        """Makes a buffer that continues from a state, to be fed the next history.

        Args:
            state: as `state` returned it.
            model: writes the summaries.
            settings: arguments of the class; they aren't in the state, and may differ.

        Raises:
            ConfigError: it isn't a state, or was written by a later version of memagent.
        """
        try:
            stored = BufferState.model_validate(state)
        except ValidationError as error:
            raise ConfigError(
                f"this is not a buffer's state of version {STATE_VERSION} ({describe_problem(error)}): give what "
                f"state() returned, or use the memagent that wrote it"
            ) from error
        buffer: Any = cls
        instance: Self = buffer(model, **settings)
        instance._saved, instance._history = stored.context, stored.history
        return instance


def make_prompt(messages: Sequence[Message], spoken: Neutraliser) -> tuple[Message, ...]:
    """Returns the messages that start each request. Only the first may be the system's: templates refuse later ones."""
    if not messages:
        raise ConfigError("the prompt is empty: open a session with at least the task")
    for message in messages:
        if message.role == "tool" or message.tool_calls:
            raise ConfigError(
                f"the prompt contains a {message.role!r} message with a call or its result: open with the messages "
                f"before it, and append the others"
            )
    safe = [m if m.role == "system" else neutralise(m, spoken, spoken) for m in messages]
    return join_users([*safe[:1], *map(as_user, safe[1:])])


def has_reader(tools: Sequence[ToolSpec]) -> bool:
    """Returns whether `read_archived` is among the tools."""
    return any(tool.name == READ_ARCHIVED.name for tool in tools)


def _keep(opened: Contents, messages: Sequence[Message]) -> None:
    """Puts results into an archive that may be new, so that their handles stay valid. Blocks."""
    for message in messages:
        if message.role == "tool":
            opened.layout.archive.put(opened.layout.neutraliser.safe(message.content))


async def _complete(opened: Contents, max_summaries: int) -> None:
    """Gives each call without a result a placeholder until it comes, and compacts while that is due."""
    state, layout = opened.state, opened.layout
    if state.pending:
        turns = (*state.turns[:-1], state.turns[-1].fill_results(layout.missing))
        add = layout.at(state).state
        opened.state = await count_in_thread(opened.model, add, state.past, turns, head=state.head)
    while opened.state.tokens >= opened.layout.limit:
        try:
            await opened.compact(max_summaries=max_summaries)
        except ContextOverflow:  # what was reported may be for a model that takes fewer tokens
            if [anchor.reported for anchor in opened.layout.anchors.known] == [False]:
                raise
            await change(opened, layout.prompt, layout.tools, can_read=layout.can_read)


async def change(
    opened: Contents, prompt: Sequence[Message], tools: Sequence[ToolSpec], **known: Any
) -> None:
    """Replaces the prompt, the tools and `known` fields of the layout before the same turns; reports are forgotten."""
    old, state = opened.layout, opened.state
    known = {"prompt": make_prompt(prompt, old.spoken), "can_read": has_reader(tools), **known}
    layout = replace(old, tools=tuple(tools) if old.native else (), anchors=Anchors(), **known)
    layout = await count_in_thread(opened.model, replace(layout, bounded=False).measure)
    opened.state = await count_in_thread(opened.model, layout.state, state.past, state.turns)
    opened.layout = layout


def _is_as_read(value: Any, message: Message) -> bool:
    """Returns whether a given message may be sent unchanged: without missing or repeated ids and lone surrogates."""
    fields: Any = value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
    try:
        json.dumps(fields, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    calls: Iterable[Any] = fields.get("tool_calls") or ()
    ids = [getattr(call, "id", None) or dict(call).get("id") for call in calls]
    return ids == [call.id for call in message.tool_calls]
