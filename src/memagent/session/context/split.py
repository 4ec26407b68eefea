"""Which turns are summarised, and what becomes of the one that made the context overflow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memagent.compaction import Change
from memagent.session.context.clip import clipped_message, clipped_turn, shown_again
from memagent.session.context.plan import Past, SessionPlan
from memagent.session.context.tiers import results_changed
from memagent.session.context.turns import Result, Turn, transcript


@dataclass(frozen=True)
class Split:
    """What a compaction is to do with each turn."""

    summarised: tuple[Turn, ...] = ()
    dropped: tuple[Turn, ...] = ()
    again: tuple[Turn, ...] = ()
    """Shown again behind the summary."""
    shown: str = ""
    """As what."""
    kept: tuple[Turn, ...] = ()
    """Stay as turns."""
    changes: tuple[Change, ...] = ()
    """To those kept and shown again."""
    summary: bool = True
    """False: what is kept is small enough without one."""


def split(plan: SessionPlan, past: Past, turns: tuple[Turn, ...]) -> Split | None:
    """Divides the turns of a prompt that is over the limit. Blocks.

    Args:
        plan: the session's.
        past: what stands for the turns that left.
        turns: those since, at least one.

    Returns:
        None where only a turn is left that still waits for results.
    """
    older, last = turns[:-1], turns[-1]
    if last.pending:
        return Split(summarised=older, kept=(last,)) if older or past.shown else None
    if last.head.role != "assistant":
        return _said(plan, past, older, last)
    if not older:
        return _alone(plan, past, last)
    if last.calls and all(call.name in plan.idempotent for call in last.calls):
        # One that could never stand behind a summary would be called, and dropped, again and again.
        if plan.base + _size(plan, last) < plan.limit:
            return Split(summarised=older, dropped=(last,))
    elif fits(plan, past, turns):
        return Split(summarised=turns)
    text, handle = shown_again(plan, last)
    size = plan.counter.count(transcript(last, ""))
    change = Change(
        turn=last.number,
        what="shown_again",
        tokens_before=size,
        tokens_after=plan.counter.count(text),
        handle=handle,
    )
    return Split(summarised=older, again=(last,), shown=text, changes=(change,))


def divided_early(past: Past, turns: tuple[Turn, ...]) -> Split | None:
    """Divides the turns of a prompt that is below the limit: the last one fits, and is summarised with the others.

    Returns:
        None where there is nothing to summarise: one turn that waits for results or is the user's stays.
    """
    kept = tuple(turn for turn in turns[-1:] if turn.pending or turn.head.role != "assistant")
    older = turns[: len(turns) - len(kept)]
    return Split(summarised=older, kept=kept) if older or past.shown else None


def fits(plan: SessionPlan, past: Past, turns: tuple[Turn, ...]) -> bool:
    """Whether these turns can be summarised by one call. Blocks."""
    return plan.count(plan.asking(plan.render(past, turns))) + plan.summary <= plan.window


def _said(plan: SessionPlan, past: Past, older: tuple[Turn, ...], last: Turn) -> Split:
    """A user's message is never dropped: it stays behind the summary."""
    size = _size(plan, last)
    if older or past.shown:
        if plan.base + size <= plan.limit - plan.progress:
            return Split(summarised=older, kept=(last,))
        kept, changes = _shorter(plan, last, plan.shown)
        return Split(summarised=older, kept=(kept,), changes=changes)
    kept, changes = _shorter(plan, last, plan.calm - plan.count(plan.render(past, ())))
    return Split(kept=(kept,), changes=changes, summary=False)


def _alone(plan: SessionPlan, past: Past, last: Turn) -> Split:
    """Nothing is before it: its results are clipped, and where that is not enough it is summarised."""
    bare = replace(last, results=(Result(""),) * len(last.calls))
    spare = plan.calm - plan.count(plan.render(past, (bare,)))
    if last.calls and spare >= 0:
        kept = clipped_turn(plan, last, spare)
        if plan.count(plan.render(past, (kept,))) <= plan.calm:
            changes = tuple(results_changed(plan, last, kept))
            return Split(kept=(kept,), changes=changes, summary=False)
    return Split(summarised=(last,))


def _shorter(plan: SessionPlan, turn: Turn, limit: int) -> tuple[Turn, tuple[Change, ...]]:
    before = plan.counter.count(turn.head.content)
    shorter, handle = clipped_message(plan, turn, limit)
    if shorter.head == turn.head:
        return turn, ()
    change = Change(
        turn=turn.number,
        what="clipped",
        tokens_before=before,
        tokens_after=plan.counter.count(shorter.head.content),
        handle=handle,
    )
    return shorter, (change,)


def _size(plan: SessionPlan, turn: Turn) -> int:
    """Tokens that a turn adds to the prompt."""
    return plan.count(plan.render(Past(), (turn,))) - plan.count(plan.prompt)
