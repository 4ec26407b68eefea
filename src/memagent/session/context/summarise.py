"""The summary calls: in several passes if one wouldn't fit, retried if the reply isn't a summary."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from memagent.budget import JOINT_SLACK
from memagent.chunking.chunker import MIN_LIMIT, Chunker
from memagent.chunking.fitting import within
from memagent.chunking.stream import chunk_text
from memagent.errors import CompactionFailed, MemagentError
from memagent.messages import FinishReason, Message, Usage
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Unusable
from memagent.session.context.layout import WIDEST, Layout, Past, State
from memagent.session.context.turns import Turn
from memagent.threads import in_thread
from memagent.trajectory import Conversation


@dataclass(frozen=True)
class Summary:
    """A text that replaces turns."""

    text: str
    """Neutralised, and within its token limit."""
    cut: bool = False
    neutralised: int = 0
    conversations: tuple[Conversation, ...] = ()


class Summariser:
    """Asks a model for the summaries of one session, and starts at most one before it is due.

    A summary that was started is always awaited, even if a new one would be as fast, so a session depends only on its
    messages and replies, not on timing. It is started even if no more are allowed, so that a higher maximum changes
    nothing before. `early` is the share of the limit at which it is started; `written` is an earlier value of `counts`.
    """

    def __init__(
        self, caller: Caller, early: float | None = None, written: Mapping[str, int] | None = None
    ) -> None:
        self._caller, self._share = caller, early
        self.counts: Counter[str] = Counter(written)
        """Completed calls of each kind, which is also the next one's number."""
        self._passes: list[tuple[tuple[Message, ...], Summary]] = []
        """Passes of an unfinished summary: they aren't repeated if a later one fails."""
        self._begun: tuple[State, asyncio.Task[Summary | None]] | None = None
        self.usage = Usage()
        """Cost of calls since the last compaction."""
        self.retried: list[str] = []
        """Why some of them were retried."""

    async def summary(
        self, layout: Layout, past: Past, turns: tuple[Turn, ...], *, early: bool = False
    ) -> Summary:
        """Summarises turns together with what replaces those before them.

        Early requests are marked in `parts`: nobody waits for them. Three unusable replies raise a `CompactionFailed`.
        """
        layout, stage = layout.asking, past.stage + 1
        # The turns are leaving: missing results aren't awaited.
        turns = tuple(turn.fill_results(layout.missing) for turn in turns)
        number = 0
        while True:
            messages, turns = await in_thread(next_pass, layout, past, turns)
            if number == len(self._passes) or self._passes[number][0] != messages:
                del self._passes[number:]
                self._passes.append((messages, await self._ask(layout, messages, early=early)))
            reply, number = self._passes[number][1], number + 1
            if not turns:
                break
            past = replace(past, stage=stage, summary=reply.text, again="")
        replies, self._passes = [reply for _, reply in self._passes[:number]], []
        return replace(
            reply,
            neutralised=sum(answer.neutralised for answer in replies),
            conversations=tuple(part for answer in replies for part in answer.conversations),
        )

    def begin(self, layout: Layout, state: State) -> None:
        """Starts a summary of the turns so far if it is time and none is in progress."""
        if self._share is None or self._begun is not None or not state.turns or state.pending:
            return
        if self._share * layout.limit <= state.tokens < layout.limit:
            self._begun = state, asyncio.create_task(self._early(layout, state))

    @property
    def idle(self) -> bool:
        """Whether no summary is unfinished."""
        return self._begun is None and not self._passes and not self.retried

    async def find_begun(self) -> tuple[State, Summary] | None:
        """Awaits the summary started early, and returns it until it is forgotten; None if none was, or it failed."""
        if self._begun is None:
            return None
        state, task = self._begun
        await asyncio.wait([task])  # being cancelled here does not cancel it
        summary = None if task.cancelled() else task.result()
        return None if summary is None else (state, summary)

    async def forget(self) -> None:
        """Cancels the summary in progress, so that another can be started."""
        draft, self._begun = self._begun, None
        if draft is not None and not draft[1].done():
            draft[1].cancel()
            await asyncio.wait([draft[1]])

    async def _early(self, layout: Layout, state: State) -> Summary | None:
        try:
            return await self.summary(layout, state.past, state.turns, early=True)
        except MemagentError as error:  # another is made when it is due
            self.retried.append(f"{type(error).__name__}: {error}")
            return None

    async def _ask(self, layout: Layout, messages: tuple[Message, ...], *, early: bool) -> Summary:
        kind = "early" if early else "summary"
        exchange = Exchange(
            key=f"{kind}-{self.counts[kind]}",
            kind="summary",
            messages=messages,
            read=layout.prompts.read_summary,
            most=layout.summary,
            count=partial(layout.count, below=layout.window - layout.summary + 1),
            # With tools the prompt extends what the server has cached; without, servers reject messages with calls.
            tools=layout.tools,
            tool_choice="none" if layout.tools else None,
            parts={"early": "yes"} if early else {},
            # An early one isn't retried, and a compaction waits for it, so a replay must see its failure too.
            keeps_failure=early,
        )
        is_counted = early
        try:
            reply = await self._caller.ask(exchange)
            is_counted = True
        except Unusable as error:
            raise CompactionFailed(
                f"no summary was written: {error}; the history is unchanged, so try again, with "
                f"another model or more summary_tokens"
            ) from error
        finally:
            self.counts[kind] += is_counted
            self.usage += exchange.usage
            self.retried += exchange.reasons
        cut_off = reply.completion.finish_reason is FinishReason.LENGTH
        safe, joiners = await in_thread(layout.neutraliser, reply.value)
        limit, counter = layout.summary, layout.counter
        text, after, before = await in_thread(within, safe, limit, counter, cut_off=cut_off)
        return Summary(text, after < before, len(joiners), (reply.conversation(),))


def next_pass(
    layout: Layout, past: Past, turns: tuple[Turn, ...]
) -> tuple[tuple[Message, ...], tuple[Turn, ...]]:
    """Returns the messages of the next summary call, with as many turns as fit, and the other turns. Blocks.

    A turn that doesn't fit by itself is split into parts of its text, with a pass for each. If the first turn doesn't
    fit beside what is shown again, the pass takes none: its summary makes room.
    """
    if turns and turns[0].number < 0:  # such a part
        return layout.ask(past, turns[:1]), turns[1:]

    def is_over(turn_count: int) -> bool:
        return not layout.fits(layout.ask(past, turns[:turn_count]))

    turn_count = len(turns)
    if turns and is_over(turn_count):
        turn_count = bisect_left(range(turn_count), True, lo=1, key=is_over) - 1
    if turn_count or not turns or past.again:
        return layout.ask(past, turns[:turn_count]), turns[turn_count:]
    return next_pass(layout, past, (*split(layout, past, turns[0]), *turns[1:]))


def split(layout: Layout, past: Past, turn: Turn) -> tuple[Turn, ...]:
    """Returns a turn as several, each with a part of its text that fits beside any summary. Blocks."""

    def show(text: str) -> Turn:
        return Turn(-1, Message(role="user", content=f"{layout.prompts.render('step')}\n{text}"))

    widest = replace(past, stage=WIDEST, summary=layout.prompts.empty_summary)
    taken = layout.count(layout.ask(widest, (show(""),))) + 2 * layout.summary + JOINT_SLACK
    limit = max(layout.window - taken, MIN_LIMIT)
    chunker = Chunker(layout.counter, limit, neutralise=layout.neutraliser)
    text = turn.transcript(layout.missing)
    return tuple(show(part.text) for part in chunk_text([text], chunker))
