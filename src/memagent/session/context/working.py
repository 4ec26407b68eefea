"""A context whose prompt is known: takes messages, compacts, and renders what to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike

from memagent.compaction import Compaction
from memagent.errors import ConfigError, WindowUnknown
from memagent.messages import Message, Sampling, ToolSpec, Usage
from memagent.models.base import ChatModel
from memagent.models.retry import count_in_thread
from memagent.prompts import Neutraliser
from memagent.prompts.session import SessionPrompts
from memagent.run.caller import Caller
from memagent.run.log import Log
from memagent.session.context.anchors import Anchors
from memagent.session.context.archive import READ_ARCHIVED, Archive
from memagent.session.context.compaction import compact_state
from memagent.session.context.history import Chain, History, Saved
from memagent.session.context.layout import Layout, Past, State
from memagent.session.context.summarise import Summariser
from memagent.session.context.turns import as_user, join_users, neutralise, place_message
from memagent.threads import in_thread


def make_prompt(messages: Sequence[Message], spoken: Neutraliser) -> tuple[Message, ...]:
    """The messages that start every request: at most the first is the system's, which templates refuse elsewhere."""
    safe = [
        message if message.role == "system" else neutralise(message, spoken, spoken)
        for message in messages
    ]
    return join_users([*safe[:1], *map(as_user, safe[1:])])


def has_reader(tools: Sequence[ToolSpec]) -> bool:
    """Whether `read_archived` is among the tools."""
    return any(tool.name == READ_ARCHIVED.name for tool in tools)


@dataclass(frozen=True)
class Opener:
    """A buffer's settings; see `SummaryBuffer`."""

    model: ChatModel
    working_context: int | None
    window: int | None
    summary_tokens: int | None
    max_summaries: int
    idempotent: frozenset[str]
    writes: frozenset[str]
    native: bool
    prompts: SessionPrompts | str | PathLike[str] | None
    archive: Archive
    sampling: Sampling
    seed: int
    early: float | None
    log: Log | None

    def __post_init__(self) -> None:
        for name in ("working_context", "window", "summary_tokens"):
            if (size := getattr(self, name)) is not None and size < 1:
                raise ConfigError(f"{name} must be at least 1 token, got {size!r}")
        if self.max_summaries < 0:
            raise ConfigError(f"max_summaries must be at least 0, got {self.max_summaries!r}")
        if self.early is not None and not 0 < self.early < 1:
            raise ConfigError(f"early must be a share between 0 and 1, got {self.early!r}")
        if not hasattr(self.model, "complete"):
            raise ConfigError(
                f"model must be a ChatModel, got {self.model!r}: memagent.open_model({self.model!r}) makes one"
            )

    async def open(
        self, prompt: Sequence[Message], tools: tuple[ToolSpec, ...], saved: Saved | None = None
    ) -> Working:
        """The context with a prompt, and what was saved of it."""
        model, name = self.model, self.model.name
        said = None if self.log else await model.window()
        most = min((size for size in (said, self.window) if size is not None), default=None)
        if most is None:
            raise WindowUnknown(f"the model {name!r} does not report its window: give it (window=)")
        prompts = await in_thread(SessionPrompts.load, self.prompts)
        counter = await model.counter()
        spoken = Neutraliser(None, counter.control_tokens)
        layout = Layout(
            prompt=make_prompt(prompt, spoken),
            prompts=prompts,
            counter=counter,
            neutraliser=Neutraliser(prompts.tags.names, counter.control_tokens),
            spoken=spoken,
            archive=self.archive,
            tools=tools if self.native else (),
            native=self.native,
            can_read=has_reader(tools),
            idempotent=self.idempotent,
            writes=self.writes,
            window=most if self.working_context is None else min(most, self.working_context),
            most=most,
            summary_tokens=self.summary_tokens,
        )
        layout = await count_in_thread(name, layout.measure)
        past, turns = (Past(), ()) if saved is None else (saved.past, saved.turns)
        state = await count_in_thread(name, layout.state, past, turns)
        caller = Caller(
            model, counter, layout.window, sampling=self.sampling, seed=self.seed, log=self.log
        )
        summariser = Summariser(caller, self.early)
        summariser.written.update({} if saved is None else saved.written)
        number = 0 if saved is None else saved.number
        return Working(name, layout, summariser, self.max_summaries, state, number)


@dataclass
class Working:
    """What `SummaryBuffer` holds once it is open; its lock guards it."""

    model: str
    layout: Layout
    summariser: Summariser
    max_summaries: int
    state: State
    number: int
    """Of the next turn."""
    history: History | None = None
    """What was fed; None where messages are appended."""

    async def append(self, given: Message, *, ok: bool = True, usage: Usage | None = None) -> None:
        """See `SummaryBuffer.append`."""
        layout, state = self.layout, self.state
        if given.role == "tool":
            counts = layout.at(state)
        else:  # the prompt so far was sent
            said = usage.prompt_tokens if usage and given.role == "assistant" else 0
            known = (state.messages, state.low, state.tokens, said, layout.most)
            counts = layout = replace(layout, anchors=layout.anchors.with_prompt(*known))

        def add() -> State:
            safe = neutralise(given, layout.neutraliser, layout.spoken)
            turns = place_message(state.turns, safe, self.number, layout.prompts, ok=ok)
            return counts.state(state.past, turns, head=state.head)

        self.state = await count_in_thread(self.model, add)
        self.layout = layout
        self.number += len(self.state.turns) - len(state.turns)
        self.summariser.begin(layout, self.state)

    async def compact(self, *, force: bool = False) -> Compaction | None:
        """See `SummaryBuffer.compact`, but for whether it is due."""
        found = await compact_state(
            self.layout.at(self.state),
            self.summariser,
            self.state,
            max_summaries=self.max_summaries,
            force=force,
        )
        if found is None:
            return None
        self.state, report = found
        self.layout.forget(self.state)
        await self.summariser.forget()
        self.summariser.usage, self.summariser.retried = Usage(), []
        return report

    async def read(self, chain: Chain, usage: Usage | None) -> tuple[Message, ...]:
        """Appends what is new in a history, and returns what to send; `usage` is that of the only new reply."""
        assert self.history is not None
        start = self.history.fed.count
        if sum(message.role == "assistant" for message in chain.rest[start:]) != 1:
            usage = None
        for place, message in enumerate(chain.rest[start:], start):
            if message.role == "assistant":
                await self.complete()  # it answers what would have been sent then
            await self.append(message, usage=usage if place == start else None)
            self.history = self.history.model_copy(update={"fed": chain.mark(place + 1)})
        sent = (await self.complete()).messages
        self.history = self.history.with_sent(sent)
        return sent

    async def complete(self) -> State:
        """What to send now, below the limit: a call without a result gets one that says so, although it may still come.

        Raises the same as `compact`.
        """
        while True:
            state = self.state
            if state.pending:
                layout, last = self.layout, state.turns[-1].fill_results(self.layout.missing)
                turns = (*state.turns[:-1], last)
                state = await count_in_thread(
                    self.model, layout.at(state).state, state.past, turns, head=state.head
                )
            if state.tokens < self.layout.limit:
                return state
            self.state = state
            await self.compact()

    def keep(self, messages: Sequence[Message]) -> None:
        """Puts results into an archive that may be new, so that their handles stay valid. Blocks."""
        for message in messages:
            if message.role == "tool":
                self.layout.archive.put(self.layout.neutraliser.safe(message.content))

    def save(self) -> Saved:
        """The state to store."""
        return Saved(
            past=self.state.past,
            turns=self.state.turns,
            number=self.number,
            written=dict(self.summariser.written),
            history=self.history,
        )

    async def change(self, prompt: Sequence[Message], tools: tuple[ToolSpec, ...]) -> None:
        """Sets another prompt and other tools, before the same turns.

        Raises:
            WindowTooSmall: they leave no room for turns.
        """
        layout, state = self.layout, self.state
        layout = replace(
            layout,
            prompt=make_prompt(prompt, layout.spoken),
            tools=tools if layout.native else (),
            can_read=has_reader(tools),
            anchors=Anchors(),
        )
        layout = await count_in_thread(self.model, layout.measure)
        self.state = await count_in_thread(self.model, layout.state, state.past, state.turns)
        self.layout = layout
