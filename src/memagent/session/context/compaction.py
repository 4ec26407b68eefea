"""One compaction: the tiers in their order, and the state that comes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memagent.compaction import Change, Compaction, Tier
from memagent.errors import CompactionFailed, OutOfSummaries
from memagent.messages import Message
from memagent.session.context.plan import Past, SessionPlan
from memagent.session.context.split import Split, divided_early, split
from memagent.session.context.summarise import Spent, Summariser, Summary
from memagent.session.context.tiers import Lighter, lighter, without_repetition
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
    """Of the prompt."""


@dataclass(frozen=True)
class Early:
    """A summary that was begun before it was due, and is through."""

    past: Past
    turns: tuple[Turn, ...]
    """What it was made of."""
    summary: Summary

    def suits(self, state: State) -> bool:
        """Whether what it was made of still stands first."""
        return (
            state.past == self.past
            and state.turns[: len(self.turns)] == self.turns
            and bool(self.turns)
        )


def state_of(plan: SessionPlan, past: Past, turns: tuple[Turn, ...]) -> State:
    """A state with its messages, counted. Blocks."""
    messages = plan.render(past, turns)
    return State(past, turns, messages, plan.count(messages))


async def compacted(
    plan: SessionPlan,
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
        plan: the session's.
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
    before, tiers, changes = state.tokens, list[Tier](), list[Change]()
    summary: Summary | None = None
    swapped = early is not None and early.suits(state)
    if early is not None and swapped:
        _allow(plan, state, max_summaries)
        parts = Split(summarised=early.turns, kept=state.turns[len(early.turns) :])
        state, left = await in_thread(_after, plan, state.past, parts, early.summary)
        summary, changes = early.summary, [*left]
        tiers.append("summary")
    if (
        not swapped
        or state.tokens >= plan.limit
        or (force and before - state.tokens < plan.progress)
    ):
        light = await in_thread(lighter, plan, state.past, state.turns, state.tokens)
        parts = None
        if not light.enough:
            if state.tokens >= plan.limit:
                parts = await in_thread(split, plan, state.past, light.turns)
            else:
                parts = divided_early(state.past, light.turns)
            if parts is None and not swapped:
                return _nothing(state)
            if parts is not None and (parts.dropped or parts.again):
                light, parts = await in_thread(_apart, plan, state, light, parts)
        tiers += light.tiers
        changes += light.changes
        if parts is None:
            state = await in_thread(state_of, plan, state.past, light.turns)
        elif not parts.summary:
            tiers.append("clip")
            state, left = await in_thread(_after, plan, state.past, parts, None)
            changes += left
        elif await in_thread(_gains, plan, state, parts):
            _allow(plan, state, max_summaries)
            new = await summariser.summary(state.past, parts.summarised, spent)
            conversations = () if summary is None else summary.conversations
            summary = replace(new, conversations=(*conversations, *new.conversations))
            tiers.append("summary")
            over = state.tokens
            state, left = await in_thread(_after, plan, state.past, parts, new)
            changes += left
            if over - state.tokens < plan.progress:
                raise CompactionFailed(
                    f"the prompt took {over} tokens and takes {state.tokens} with the summary: at least "
                    f"{plan.progress} have to be freed; use a larger working_context"
                )
        elif not swapped:
            return _nothing(state)
    return state, Compaction(
        tiers=tuple(tiers),
        changes=tuple(changes),
        tokens_before=before,
        tokens_after=state.tokens,
        stage=state.past.stage,
        summary=None if summary is None else summary.text,
        cut=summary is not None and summary.cut,
        early=swapped,
        neutralised=0 if summary is None else summary.neutralised,
        retried=tuple(spent.retried),
        usage=spent.usage,
        conversations=() if summary is None else summary.conversations,
    )


def _allow(plan: SessionPlan, state: State, most: int) -> None:
    """One summary more.

    Raises:
        OutOfSummaries: as many as there may be are written.
    """
    if state.past.stage >= most:
        written = "1 summary is" if most == 1 else f"{most} summaries are"
        raise OutOfSummaries(
            f"the prompt takes {state.tokens} tokens of {plan.limit}, and {written} written, as many as there may "
            f"be: allow more with max_summaries="
        )


def _nothing(state: State) -> None:
    """There is nothing to leave out, yet.

    Raises:
        CompactionFailed: and it would help nothing to wait for results.
    """
    if not state.turns or not state.turns[-1].pending:
        raise CompactionFailed(
            f"the prompt takes {state.tokens} tokens, and leaving out what it can spare would free less than a tenth "
            f"of the working context: use a larger working_context"
        )


def _apart(plan: SessionPlan, state: State, light: Lighter, parts: Split) -> tuple[Lighter, Split]:
    """The same, where the last turn leaves without being summarised: it makes nothing stale. Blocks."""
    *_, last = state.turns
    older, changes = without_repetition(plan, state.turns[:-1])
    tokens = plan.count(plan.render(state.past, (*older, last)))
    stale = state.tokens - tokens >= plan.progress
    own = tuple(change for change in light.changes if parts.again and change.turn == last.number)
    light = replace(light, changes=(*changes, *own), tiers=("stale",) if stale else ())
    dropped = (last,) if parts.dropped else ()
    return light, replace(parts, summarised=older, dropped=dropped)


def _gains(plan: SessionPlan, state: State, parts: Split) -> bool:
    """Whether any summary would free a tenth of the working context, beside what stays. Blocks."""
    if state.tokens >= plan.limit and not any(turn.pending for turn in parts.kept):
        return True  # the working context was divided so
    past = Past(stage=state.past.stage + 1)
    most = plan.count(plan.render(past, parts.kept)) + plan.summary + plan.ledger
    return state.tokens - most >= plan.progress


def _after(
    plan: SessionPlan, past: Past, parts: Split, summary: Summary | None
) -> tuple[State, tuple[Change, ...]]:
    """The state after turns left, and the record of it. Blocks."""
    if summary is None:
        return state_of(plan, past, parts.kept), parts.changes
    changes = [_left(plan, turn, "summarised") for turn in parts.summarised]
    changes += [_left(plan, turn, "dropped") for turn in parts.dropped]
    ledger = past.ledger.with_turns((*parts.summarised, *parts.again), plan.idempotent)
    ledger = ledger.with_turns(parts.dropped, plan.idempotent, dropped=True)
    past = Past(
        stage=past.stage + 1,
        summary=summary.text,
        ledger=ledger.within(plan.ledger, plan.counter, plan.neutraliser),
        shown=parts.shown,
    )
    return state_of(plan, past, parts.kept), (*changes, *parts.changes)


def _left(plan: SessionPlan, turn: Turn, what: str) -> Change:
    text = transcript(turn, plan.prompts.render("missing"))
    fields = {
        "turn": turn.number,
        "what": what,
        "tokens_before": plan.counter.count(text),
        "tokens_after": 0,
        "handle": plan.archive.put(text),
    }
    return Change.model_validate(fields)
