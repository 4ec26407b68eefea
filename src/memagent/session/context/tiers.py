"""The tiers before the summary: results that left their use behind become a line, long ones are clipped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memagent.compaction import Change, Tier
from memagent.messages import ToolCall
from memagent.session.context.clip import clip_results
from memagent.session.context.layout import Layout, State
from memagent.session.context.ledger import describe, normalise_json
from memagent.session.context.turns import Turn

MIN_DUPLICATE = 20
"""Tokens: shorter texts are alike by chance, and a line in their place frees nothing."""
LONG_SHARE = 16
"""Results of more than a sixteenth of the working context are long, and are clipped to half of that."""
MIN_LONG = 64


@dataclass(frozen=True)
class Split:
    """What a compaction is to do with each turn."""

    summarised: tuple[Turn, ...] = ()
    left: Turn | None = None
    """The last one, where it leaves without being summarised."""
    again: str = ""
    """As what it is shown behind the summary; empty where it is dropped."""
    kept: tuple[Turn, ...] = ()
    """Stay as turns."""
    lines: tuple[Change, ...] = ()
    """Results that became a line before."""
    changes: tuple[Change, ...] = ()
    """To turns that are kept or shown again."""
    tiers: tuple[Tier, ...] = ()
    """The cheap ones that counted."""
    summary: bool = True
    """False: what is kept is small enough without one."""


def lighten(layout: Layout, state: State) -> Split | None:
    """What the cheap tiers make of a state; None where a summary is needed. Blocks.

    Enough is a tenth of the working context, for a prompt that is well below the limit.
    """
    turns, changes = drop_repetition(layout, state.turns)
    tokens = layout.state(state.past, turns).tokens if changes else state.tokens
    tiers: tuple[Tier, ...] = ("stale",) if changes else ()
    most = min(layout.calm, state.tokens - layout.progress)
    if tokens <= most:
        return Split(kept=turns, changes=changes, tiers=tiers, summary=False)
    long = max(layout.window // LONG_SHARE, MIN_LONG)
    limit = max(long // 2, 2 * layout.line)
    clipped: tuple[Change, ...] = ()
    # Older ones first, and never the last turn: what a model has just asked for it is to see.
    for at, turn in enumerate(turns[:-1]):
        whole = ("" if r is None or r.handle or r.fixed else r.text for r in turn.results)
        sizes = [layout.counter.count(text) for text in whole]
        shorter, made = clip_results(layout, turn, sizes, long, limit)
        turns, clipped = (*turns[:at], shorter, *turns[at + 1 :]), (*clipped, *made)
        tokens -= sum(change.tokens_before - change.tokens_after for change in made)
        if made and tokens <= most:
            tokens = layout.state(state.past, turns).tokens
            if tokens <= most:
                changes = (*changes, *clipped)
                return Split(kept=turns, changes=changes, tiers=(*tiers, "clip"), summary=False)
    return None


def drop_repetition(
    layout: Layout, turns: tuple[Turn, ...]
) -> tuple[tuple[Turn, ...], tuple[Change, ...]]:
    """The turns without results that a later one repeats or replaces, and what was changed. Blocks.

    A failure replaces nothing but failures of the same text. A turn that waits for results is left alone, and makes
    nothing stale: once they have come it may be dropped.
    """
    calls: set[tuple[str, str]] = set()
    texts: dict[tuple[bool, str], ToolCall] = {}
    changes: list[Change] = []
    for at in range(len(turns) - 1, -1, -1):
        if at == len(turns) - 1 and turns[at].pending:
            continue
        for place in range(len(turns[at].results) - 1, -1, -1):
            call, result = turns[at].steps[place]
            if result is None or result.fixed:
                continue
            key, text = (call.name, normalise_json(call.arguments)), (result.ok, result.text)
            what, later = "duplicate", texts.setdefault(text, call)
            # Of other tools each call may have told something else: the next page, another throw of a die.
            if key in calls and call.name in layout.idempotent:
                what, later = "stale", call
            elif later is call:
                what = None
            if result.ok:
                calls.add(key)
            if what is None or (size := layout.counter.count(result.text)) < MIN_DUPLICATE:
                continue
            handle = result.handle or layout.archive.put(result.text)
            said = layout.neutraliser.safe(describe(later))
            line = layout.prompts.render(what, call=said, handle=handle, can_read=layout.can_read)
            if (left := layout.counter.count(line)) < size:
                changes.append(turns[at].change(what, size, left, handle, place=place))
                short = replace(result, text=line, handle=handle, fixed=True)
                turns = (*turns[:at], turns[at].with_result(place, short), *turns[at + 1 :])
    return turns, tuple(reversed(changes))
