"""One compaction: the tiers in their order, and the state that comes of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from memagent.compaction import Change, Compaction, Tier, What
from memagent.errors import CompactionFailed, OutOfSummaries
from memagent.messages import Message
from memagent.session.context.layout import Layout, Past
from memagent.session.context.split import Split, split, split_early
from memagent.session.context.summarise import Spent, Summariser, Summary
from memagent.session.context.tiers import Lighter, drop_repetition, lighten
from memagent.session.context.turns import Turn, transcript
from memagent.threads import in_thread


@dataclass(frozen=True)
class State:
    """What a session holds."""

    past: Past
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    """What they make."""
    tokens: int
    """Of the prompt: at most so many."""
    counted: int
    """The same by the counter alone."""


@dataclass(frozen=True)
class Early:
    """A summary that was begun before it was due, and is through."""

    state: State
    """What it was made of."""
    summary: Summary

    def suits(self, state: State) -> bool:
        """Whether what it was made of still stands first."""
        turns = self.state.turns
        return state.past == self.state.past and state.turns[: len(turns)] == turns


def make_state(layout: Layout, past: Past, turns: tuple[Turn, ...]) -> State:
    """A state with its messages, counted. Blocks."""
    messages = layout.render(past, turns)
    counted = layout.counter.count_messages(messages, tools=layout.tools)
    tokens = layout.anchors.bound(messages, counted, layout.counter)
    return State(past, turns, messages, tokens, counted)


async def compact_state(
    layout: Layout,
    summariser: Summariser,
    state: State,
    spent: Spent,
    *,
    max_summaries: int,
    early: Early | None = None,
    force: bool = False,
) -> tuple[State, Compaction] | None:
    """Makes a state smaller.

    Args:
        layout: the session's.
        summariser: asks the model.
        state: is not changed.
        spent: what summary calls cost adds up here, whatever happens.
        max_summaries: no more than so many are written.
        early: a summary that is there already. Where it suits it is what is used, and the cheap tiers are not asked
            first: so what is done does not depend on `max_summaries`, and a larger one continues the same session.
        force: room is made even below the limit.

    Returns:
        The new state and what was done; None where only a turn is left that still waits for results.

    Raises:
        CompactionFailed: no usable summary, or nothing that could be made smaller.
        OutOfSummaries: one more is needed than there may be.
        ModelError: a summary call failed.
        LimitReached: a summary call was not sent.
    """
    work = _Work(layout, state)
    if early is not None and early.suits(state):
        _allow(layout, state, max_summaries)
        turns = early.state.turns
        parts = Split(summarised=turns, kept=state.turns[len(turns) :])
        await in_thread(work.leave, parts, early.summary)
        if work.state.tokens < layout.limit and not (force and work.freed(state) < layout.progress):
            return work.report(state, spent, early=True)
    swapped = bool(work.tiers)
    step = await in_thread(_choose, layout, work.state)
    if step is not None and await _take(work, step, summariser, spent, max_summaries):
        return work.report(state, spent, early=swapped)
    # It was begun before the server reported how little the prompt takes: it may free nothing.
    if swapped and work.freed(state) >= layout.progress:
        return work.report(state, spent, early=True)
    return _nothing(state)


@dataclass
class _Work:
    """A compaction that is under way."""

    layout: Layout
    state: State
    tiers: list[Tier] = field(default_factory=list[Tier])
    changes: list[Change] = field(default_factory=list[Change])
    summary: Summary = field(default_factory=lambda: Summary(""))

    def freed(self, before: State) -> int:
        """Tokens that the prompt takes less."""
        return before.tokens - self.state.tokens

    def leave(self, parts: Split, summary: Summary | None) -> None:
        """Lets turns leave, summarised or made shorter. Blocks."""
        self.state, changes = _after(self.layout, self.state.past, parts, summary)
        self.tiers.append("clip" if summary is None else "summary")
        self.changes += changes
        if summary is not None:
            conversations = (*self.summary.conversations, *summary.conversations)
            self.summary = replace(summary, conversations=conversations)

    def report(self, before: State, spent: Spent, *, early: bool) -> tuple[State, Compaction]:
        """The new state and what was done."""
        summary = self.summary
        return self.state, Compaction(
            tiers=tuple(self.tiers),
            changes=tuple(self.changes),
            tokens_before=before.tokens,
            tokens_after=self.state.tokens,
            stage=self.state.past.stage,
            summary=summary.text if "summary" in self.tiers else None,
            cut=summary.cut,
            early=early,
            neutralised=summary.neutralised,
            retried=tuple(spent.retried),
            usage=spent.usage,
            conversations=summary.conversations,
        )


def _choose(layout: Layout, state: State) -> tuple[Lighter, Split | None] | None:
    """Chooses what to do: cheap tiers if they are enough, else which turns leave; None if none can. Blocks."""
    light = lighten(layout, state.past, state.turns, state.tokens)
    if light.enough:
        return light, None
    if state.tokens >= layout.limit:
        parts = split(layout, state.past, light.turns)
    else:
        parts = split_early(state.past, light.turns)
    if parts is not None and (parts.dropped or parts.repeated):
        return _apart(layout, state, light, parts)
    return None if parts is None else (light, parts)


async def _take(
    work: _Work,
    step: tuple[Lighter, Split | None],
    summariser: Summariser,
    spent: Spent,
    max_summaries: int,
) -> bool:
    """Takes the step that was chosen; False where it would not be worth a summary."""
    layout, before, (light, parts) = work.layout, work.state, step
    if parts is not None and parts.summary:
        if not await in_thread(_gains, layout, before, parts):
            return False
        _allow(layout, before, max_summaries)
    work.tiers += light.tiers
    work.changes += light.changes
    if parts is None:
        work.state = await in_thread(make_state, layout, before.past, light.turns)
        return True
    summary = None
    if parts.summary:
        summary = await summariser.summary(layout, before.past, parts.summarised, spent)
    await in_thread(work.leave, parts, summary)
    if summary is not None and work.freed(before) < layout.progress:
        raise CompactionFailed(
            f"the prompt took {before.tokens} tokens and takes {work.state.tokens} with the summary: at least "
            f"{layout.progress} have to be freed; use a larger working_context"
        )
    return True


def _allow(layout: Layout, state: State, most: int) -> None:
    """Refuses one summary more than there may be."""
    if state.past.stage >= most:
        written = "1 summary is" if most == 1 else f"{most} summaries are"
        raise OutOfSummaries(
            f"the prompt takes {state.tokens} tokens of {layout.limit}, and {written} written, as many as there may "
            f"be: allow more with max_summaries="
        )


def _nothing(state: State) -> None:
    """There is nothing to leave out yet: refused where waiting for results would not help."""
    if not state.turns or not state.turns[-1].pending:
        raise CompactionFailed(
            f"the prompt takes {state.tokens} tokens, and leaving out what it can spare would free less than a tenth "
            f"of the working context: use a larger working_context"
        )


def _apart(layout: Layout, state: State, light: Lighter, parts: Split) -> tuple[Lighter, Split]:
    """The same, where the last turn leaves without being summarised: it makes nothing stale. Blocks."""
    *_, last = state.turns
    older, changes = drop_repetition(layout, state.turns[:-1])
    tokens = layout.count(layout.render(state.past, (*older, last)))
    stale = state.tokens - tokens >= layout.progress
    own = tuple(change for change in light.changes if parts.repeated and change.turn == last.number)
    light = replace(light, changes=(*changes, *own), tiers=("stale",) if stale else ())
    dropped = (last,) if parts.dropped else ()
    return light, replace(parts, summarised=older, dropped=dropped)


def _gains(layout: Layout, state: State, parts: Split) -> bool:
    """Whether any summary would free a tenth of the working context, beside what stays. Blocks."""
    if state.tokens >= layout.limit and not any(turn.pending for turn in parts.kept):
        return True  # the working context was divided so
    past = Past(stage=state.past.stage + 1)
    most = layout.count(layout.render(past, parts.kept)) + layout.summary + layout.shares.ledger
    return state.tokens - most >= layout.progress


def _after(
    layout: Layout, past: Past, parts: Split, summary: Summary | None
) -> tuple[State, tuple[Change, ...]]:
    """The state after turns left, and the record of it. Blocks."""
    if summary is None:
        return make_state(layout, past, parts.kept), parts.changes
    changes = [_left(layout, turn, "summarised") for turn in parts.summarised]
    changes += [_left(layout, turn, "dropped") for turn in parts.dropped]
    ledger = past.ledger.with_turns((*parts.summarised, *parts.repeated), layout.idempotent)
    ledger = ledger.with_turns(parts.dropped, layout.idempotent, dropped=True)
    past = Past(
        stage=past.stage + 1,
        summary=summary.text,
        ledger=ledger.within(layout.shares.ledger, layout.counter, layout.neutraliser),
        again=parts.again,
    )
    return make_state(layout, past, parts.kept), (*changes, *parts.changes)


def _left(layout: Layout, turn: Turn, what: What) -> Change:
    text = transcript(turn, layout.prompts.render("missing"))
    return turn.change(what, layout.counter.count(text), 0, layout.archive.put(text))
