"""The summary calls: in passes where one would not fit, sent again where the reply is no summary."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from memagent.chunking.fitting import within
from memagent.errors import CompactionFailed, LimitReached, ModelError
from memagent.messages import FinishReason, Message, Usage
from memagent.run.exchange import Caller, Exchange, Unusable
from memagent.session.context.clip import clipped
from memagent.session.context.plan import Past, SessionPlan
from memagent.session.context.split import fits
from memagent.session.context.turns import Turn, joined, settled, transcript
from memagent.threads import in_thread
from memagent.tokens.measured import well_formed
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


@dataclass(frozen=True)
class _Passes:
    """How far a summary has come whose turns do not fit one call."""

    whole: tuple[Past, tuple[Turn, ...]]
    """What it is to stand for."""
    summary: Summary
    """Of the passes that are through."""
    past: Past
    turns: tuple[Turn, ...]
    """Those that are left."""
    number: int
    """Of the next pass."""


class Summariser:
    """Asks a model for the summaries of one session.

    Passes that are through are kept where a later one fails: asked again for the same turns it goes on from there.

    Args:
        plan: the session's.
        caller: makes the calls.
    """

    def __init__(self, plan: SessionPlan, caller: Caller) -> None:
        self._plan, self._caller = plan, caller
        self._written: Counter[str] = Counter()
        """Calls of each kind that are over: the next one's number."""
        self._through: _Passes | None = None

    async def summary(
        self, past: Past, turns: tuple[Turn, ...], spent: Spent, *, early: bool = False
    ) -> Summary:
        """Summarises turns, and what stands for those before them.

        Args:
            past: what stands for the turns before.
            turns: what is summarised.
            spent: what it costs adds up here.
            early: the requests say so (`parts`): nobody waits for them yet.

        Raises:
            CompactionFailed: no reply was a summary.
            ModelError: a call failed.
            LimitReached: a call was not sent.
        """
        stage, whole = past.stage + 1, (past, turns)
        # They left: what has not come is not waited for.
        turns = tuple(settled(turn, self._plan.prompts.render("missing")) for turn in turns)
        most = len(turns) + 2  # one more may be needed for what is shown again
        passes = _Passes(whole, Summary(""), past, turns, 0)
        if self._through is not None and self._through.whole == whole:
            passes = self._through
        summary, past, turns = passes.summary, passes.past, passes.turns
        for number in range(passes.number, most):
            messages, taken = await in_thread(next_pass, self._plan, past, turns)
            reply = await self._ask(messages, spent, early=early)
            summary = Summary(
                reply.text,
                reply.cut,
                summary.neutralised + reply.neutralised,
                (*summary.conversations, *reply.conversations),
            )
            turns = turns[taken:]
            if not turns:
                self._through = None
                return summary
            past = replace(past, stage=stage, summary=reply.text, shown="")
            self._through = _Passes(whole, summary, past, turns, number + 1)
        raise CompactionFailed("a summary took more passes than there are turns")

    async def _ask(self, messages: tuple[Message, ...], spent: Spent, *, early: bool) -> Summary:
        plan, kind = self._plan, "early" if early else "summary"
        exchange = Exchange(
            key=f"{kind}-{self._written[kind]}",
            kind="summary",
            messages=messages,
            read=plan.prompts.read_summary,
            most=plan.summary,
            tools=plan.tools,
            parts={"early": "yes"} if early else {},
            # Nobody asks for an early one again, and a compaction waits for it: a replay has to meet its failure too.
            keeps_failure=early,
        )
        try:
            reply = await self._caller.ask(exchange)
        except Unusable as error:
            self._written[kind] += early
            raise CompactionFailed(
                f"no summary was written: {error}; the history is as it was, so that it may be tried again, with "
                f"another model or more summary_tokens"
            ) from error
        except (ModelError, LimitReached):
            self._written[kind] += early
            raise
        finally:
            spent.usage += exchange.usage
            spent.retried += exchange.reasons
        self._written[kind] += 1
        cut_off = reply.completion.finish_reason is FinishReason.LENGTH
        kept, cut, joiners = await in_thread(self._bounded, reply.value, cut_off)
        return Summary(kept, cut, joiners, (reply.conversation(),))

    def _bounded(self, text: str, cut_off: bool) -> tuple[str, bool, int]:
        safe, joiners = self._plan.neutraliser(well_formed(text))
        kept, after, before = within(safe, self._plan.summary, self._plan.counter, cut_off=cut_off)
        return kept, after < before, len(joiners)


def next_pass(
    plan: SessionPlan, past: Past, turns: tuple[Turn, ...]
) -> tuple[tuple[Message, ...], int]:
    """The messages of the next summary call, and how many of the turns they hold: as many as fit. Blocks.

    A turn that does not fit by itself is shown as one text, clipped. Where what is shown again leaves no room for
    that, no turn is taken: the summary makes the room.
    """
    if fits(plan, past, turns):
        return plan.asking(plan.render(past, turns)), len(turns)
    low, high = 0, len(turns) - 1  # so many fit, so many may fit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(plan, past, turns[:middle]) else (low, middle - 1)
    if low:
        return plan.asking(plan.render(past, turns[:low])), low
    if past.shown and not _holds(plan, past):
        return plan.asking(plan.render(past, ())), 0
    frame = plan.render(past, ())
    head = plan.prompts.render("step")
    text = plan.neutraliser.safe(transcript(turns[0], plan.prompts.render("missing")))
    room = plan.window - plan.summary - plan.count(plan.asking(_with(frame, head)))
    while True:
        short, _ = clipped(plan, text, room)
        messages = plan.asking(_with(frame, f"{head}\n{short}"))
        if room <= plan.line or plan.count(messages) + plan.summary <= plan.window:
            return messages, 1
        room = room * 7 // 8


def _holds(plan: SessionPlan, past: Past) -> bool:
    """Whether a clipped turn fits behind the past."""
    return plan.count(plan.asking(plan.render(past, ()))) + plan.summary + 2 * plan.line <= (
        plan.window
    )


def _with(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    return joined((*messages, Message(role="user", content=text)))
