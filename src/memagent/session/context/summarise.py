"""The summary calls: in passes where one would not fit, sent again where the reply is no summary."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from memagent.chunking.fitting import within
from memagent.errors import CompactionFailed
from memagent.messages import FinishReason, Message, Usage
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Unusable
from memagent.session.context.clip import clip_text
from memagent.session.context.layout import Layout, Past
from memagent.session.context.turns import Turn, fill_missing, join_users, transcript
from memagent.threads import in_thread
from memagent.trajectory import Conversation


@dataclass
class Spent:
    """What summary calls have cost, and why some were sent again."""

    usage: Usage = field(default_factory=Usage)
    retried: list[str] = field(default_factory=list[str])

    def take(self, other: Spent) -> None:
        """Adds what the other one holds, and leaves it empty."""
        self.usage, other.usage = self.usage + other.usage, Usage()
        self.retried += other.retried
        other.retried = []


@dataclass(frozen=True)
class Summary:
    """A text that stands for turns."""

    text: str
    """Safe to show, within its tokens."""
    cut: bool = False
    neutralised: int = 0
    conversations: tuple[Conversation, ...] = ()


_Through = tuple[tuple[Past, tuple[Turn, ...]], Summary, Past, tuple[Turn, ...], range]
"""How far a summary has come whose turns do not fit one call: of what, what it says, and what is left to do."""


class Summariser:
    """Asks a model for the summaries of one session.

    Passes that are through are kept where a later one fails: asked again for the same turns it goes on from there.

    Args:
        caller: makes the calls.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._written: Counter[str] = Counter()
        """Calls of each kind that are over: the next one's number."""
        self._through: _Through | None = None

    async def summary(
        self,
        layout: Layout,
        past: Past,
        turns: tuple[Turn, ...],
        spent: Spent,
        *,
        early: bool = False,
    ) -> Summary:
        """Summarises turns, and what stands for those before them.

        Args:
            layout: the session's, as it is now.
            past: what stands for the turns before.
            turns: what is summarised.
            spent: what it costs adds up here.
            early: the requests say so (`parts`): nobody waits for them yet.

        Raises:
            CompactionFailed: no reply was a summary.
            ModelError: a call failed.
            LimitReached: a call was not sent.
        """
        stage, whole, summary = past.stage + 1, (past, turns), Summary("")
        # They left: what has not come is not waited for.
        turns = tuple(fill_missing(turn, layout.prompts.render("missing")) for turn in turns)
        passes = range(len(turns) + 2)  # one more may be needed for what is shown again
        if self._through is not None and self._through[0] == whole:
            _, summary, past, turns, passes = self._through
        for number in passes:
            messages, taken = await in_thread(next_pass, layout, past, turns)
            reply = await self._ask(layout, messages, spent, early=early)
            summary = replace(
                reply,
                neutralised=summary.neutralised + reply.neutralised,
                conversations=(*summary.conversations, *reply.conversations),
            )
            turns, self._through = turns[taken:], None
            if not turns:
                return summary
            past = replace(past, stage=stage, summary=reply.text, again="")
            self._through = whole, summary, past, turns, passes[number - passes.start + 1 :]
        raise CompactionFailed("a summary took more passes than there are turns")

    async def _ask(
        self, layout: Layout, messages: tuple[Message, ...], spent: Spent, *, early: bool
    ) -> Summary:
        kind = "early" if early else "summary"
        exchange = Exchange(
            key=f"{kind}-{self._written[kind]}",
            kind="summary",
            messages=messages,
            read=layout.prompts.read_summary,
            most=layout.summary,
            count=layout.count,
            # With tools the prompt continues behind what the server has cached, and servers refuse calls without them.
            tools=layout.tools,
            tool_choice="none" if layout.tools else None,
            parts={"early": "yes"} if early else {},
            # Nobody asks for an early one again, and a compaction waits for it: a replay has to meet its failure too.
            keeps_failure=early,
        )
        over = early
        try:
            reply = await self._caller.ask(exchange)
            over = True
        except Unusable as error:
            raise CompactionFailed(
                f"no summary was written: {error}; the history is as it was, so that it may be tried again, with "
                f"another model or more summary_tokens"
            ) from error
        finally:
            self._written[kind] += over
            spent.usage += exchange.usage
            spent.retried += exchange.reasons
        cut_off = reply.completion.finish_reason is FinishReason.LENGTH
        safe, joiners = await in_thread(layout.neutraliser, reply.value)
        text, after, before = await in_thread(
            within, safe, layout.summary, layout.counter, cut_off=cut_off
        )
        return Summary(text, after < before, len(joiners), (reply.conversation(),))


def next_pass(
    layout: Layout, past: Past, turns: tuple[Turn, ...]
) -> tuple[tuple[Message, ...], int]:
    """The messages of the next summary call, and how many of the turns they hold: as many as fit. Blocks.

    A turn that does not fit by itself is shown as one text, clipped. Where what is shown again leaves no room for
    that, no turn is taken: the summary makes the room.
    """
    low, high = 0, len(turns)  # so many fit, so many may fit
    middle = high
    while low < high:
        if layout.fits(layout.ask(past, turns[:middle])):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    again = past.again and not layout.fits(layout.ask(past), spare=2 * layout.line)
    if low or again or not turns:
        return layout.ask(past, turns[:low]), low
    frame = layout.render(past, ())
    head = layout.prompts.render("step")
    text = layout.neutraliser.safe(transcript(turns[0], layout.prompts.render("missing")))

    def shown(short: str) -> tuple[Message, ...]:
        return layout.add_instruction(join_users((*frame, Message(role="user", content=short))))

    room = layout.window - layout.summary - layout.count(shown(head))
    while True:
        messages = shown(f"{head}\n{clip_text(layout, text, room)[0]}")
        if room <= layout.line or layout.fits(messages):
            return messages, 1
        room = room * 7 // 8
