"""Which turns are summarised, and what becomes of the one that made the context overflow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memagent.compaction import Change
from memagent.messages import Message
from memagent.session.context.clip import clip_text, clip_turn, show_again
from memagent.session.context.layout import Layout, Past
from memagent.session.context.tiers import record_clips
from memagent.session.context.turns import ToolResult, Turn, transcript


@dataclass(frozen=True)
class Split:
    """What a compaction is to do with each turn."""

    summarised: tuple[Turn, ...] = ()
    dropped: tuple[Turn, ...] = ()
    repeated: tuple[Turn, ...] = ()
    """Shown again behind the summary."""
    again: str = ""
    """As what."""
    kept: tuple[Turn, ...] = ()
    """Stay as turns."""
    changes: tuple[Change, ...] = ()
    """To those kept and shown again."""
    summary: bool = True
    """False: what is kept is small enough without one."""


def split(layout: Layout, past: Past, turns: tuple[Turn, ...]) -> Split | None:
    """Divides the turns of a prompt that is over the limit. Blocks.

    Args:
        layout: the session's.
        past: what stands for the turns that left.
        turns: those since, at least one.

    Returns:
        None where only a turn is left that still waits for results.
    """
    older, last = turns[:-1], turns[-1]
    if last.pending:
        return Split(summarised=older, kept=(last,)) if older or past.again else None
    if last.head.role != "assistant":
        return _said(layout, past, older, last)
    if not older:
        return _alone(layout, past, last)
    if last.calls and all(call.name in layout.idempotent for call in last.calls):
        # One that could never stand behind a summary would be called, and dropped, again and again.
        if layout.shares.base + _size(layout, last) < layout.limit:
            return Split(summarised=older, dropped=(last,))
    elif layout.fits(layout.ask(past, turns)):
        return Split(summarised=turns)
    text, handle = show_again(layout, last)
    size = layout.counter.count(transcript(last, ""))
    change = last.change("shown_again", size, layout.counter.count(text), handle)
    return Split(summarised=older, repeated=(last,), again=text, changes=(change,))


def split_early(past: Past, turns: tuple[Turn, ...]) -> Split | None:
    """Divides the turns of a prompt that is below the limit: the last one fits, and is summarised with the others.

    Returns:
        None where there is nothing to summarise: one turn that waits for results or is the user's stays.
    """
    kept = tuple(turn for turn in turns[-1:] if turn.pending or turn.head.role != "assistant")
    older = turns[: len(turns) - len(kept)]
    return Split(summarised=older, kept=kept) if older or past.again else None


def _said(layout: Layout, past: Past, older: tuple[Turn, ...], last: Turn) -> Split:
    """A user's message is never dropped: it stays behind the summary."""
    size = _size(layout, last)
    if older or past.again:
        if layout.shares.base + size <= layout.limit - layout.progress:
            return Split(summarised=older, kept=(last,))
        kept, changes = _shorter(layout, last, layout.again)
        return Split(summarised=older, kept=(kept,), changes=changes)
    kept, changes = _shorter(layout, last, layout.calm - layout.count(layout.render(past, ())))
    return Split(kept=(kept,), changes=changes, summary=False)


def _alone(layout: Layout, past: Past, last: Turn) -> Split:
    """Nothing is before it: its results are clipped, and where that is not enough it is summarised."""
    bare = replace(last, results=(ToolResult(""),) * len(last.calls))
    spare = layout.calm - layout.count(layout.render(past, (bare,)))
    if last.calls and spare >= 0:
        kept = clip_turn(layout, last, spare)
        if layout.count(layout.render(past, (kept,))) <= layout.calm:
            changes = record_clips(layout, last, kept)
            return Split(kept=(kept,), changes=changes, summary=False)
    return Split(summarised=(last,))


def _shorter(layout: Layout, turn: Turn, limit: int) -> tuple[Turn, tuple[Change, ...]]:
    text, handle = clip_text(layout, turn.head.content, limit)
    if text == turn.head.content:
        return turn, ()
    before, after = layout.counter.count(turn.head.content), layout.counter.count(text)
    head = Message(role=turn.head.role, content=text)
    return Turn(turn.number, head), (turn.change("clipped", before, after, handle),)


def _size(layout: Layout, turn: Turn) -> int:
    """Tokens that a turn adds to the prompt."""
    return layout.count(layout.render(Past(), (turn,))) - layout.count(layout.prompt)
