"""Makes texts shorter, with a handle to the whole."""

from __future__ import annotations

import json
from dataclasses import replace

from memagent.chunking.fitting import ends
from memagent.messages import Message, ToolCall
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.context.plan import SessionPlan
from memagent.session.context.turns import Result, Turn, transcript


def clipped(plan: SessionPlan, text: str, limit: int) -> tuple[str, str]:
    """Head and tail of a text, with a line between them that names the handle of the whole. Blocks.

    Args:
        plan: counts, and keeps the text.
        text: what is to be made shorter.
        limit: most tokens; the line is there even if it takes more.

    Returns:
        The shorter text and the handle; the text itself where it takes no more than `limit`.
    """
    handle = plan.archive.put(text)
    if plan.counter.count(text) <= limit:
        return text, handle
    rest = limit - plan.line
    while True:
        first, last = ends(text, rest, plan.counter)
        line = plan.left_out(handle, first, last)
        short = "\n".join(part for part in (text[:first], line, text[last:]) if part)
        if rest <= 0 or plan.counter.count(short) <= limit:
            return short, handle
        rest = rest * 7 // 8


def clipped_result(plan: SessionPlan, call: ToolCall, result: Result, limit: int) -> Result:
    """A result of at most so many tokens. Blocks.

    What `read_archived` returned gets no handle of its own, but names that of the text that was read, and from where
    to go on: else each reading would make a text that has to be read.
    """
    if result.fixed or plan.counter.count(result.text) <= limit:
        return result
    read = _span(call) if call.name == READ_ARCHIVED.name else None
    if read is None:
        whole = result.text if result.handle is None else plan.archive.get(result.handle)
        text, handle = clipped(plan, whole, limit)
        return replace(result, text=text, handle=handle)
    handle, start, end = read
    rest = limit - plan.line
    first, _ = ends(result.text, rest, plan.counter, tail=False)
    stop = start + len(result.text) if end is None else end
    line = plan.left_out(handle, start + first, max(stop, start + first))
    short = "\n".join(part for part in (result.text[:first], line) if part)
    return replace(result, text=short, handle=handle)


def clipped_turn(plan: SessionPlan, turn: Turn, limit: int) -> Turn:
    """The turn with results that take so many tokens together: the longest are made shorter. Blocks."""
    sizes = [0 if result is None else plan.counter.count(result.text) for result in turn.results]
    share = _level(sizes, limit)
    for place, (call, result) in enumerate(turn.steps):
        if result is not None and sizes[place] > share:
            turn = turn.with_result(place, clipped_result(plan, call, result, share))
    return turn


def clipped_message(plan: SessionPlan, turn: Turn, limit: int) -> tuple[Turn, str]:
    """A turn without calls, its text made shorter, and the handle of the whole text. Blocks."""
    text, handle = clipped(plan, turn.head.content, limit)
    head = Message(role=turn.head.role, content=text)
    return Turn(turn.number, head), handle


def shown_again(plan: SessionPlan, turn: Turn) -> tuple[str, str]:
    """A turn as one safe text that fits behind a summary, and the handle of the whole. Blocks."""
    missing = plan.prompts.render("missing")
    whole = plan.neutraliser.safe(transcript(turn, missing))
    if plan.counter.count(whole) <= plan.shown:
        return whole, plan.archive.put(whole)
    spare = plan.counter.count(
        plan.neutraliser.safe(
            transcript(
                Turn(turn.number, turn.head, turn.given, (Result(""),) * len(turn.results)), missing
            )
        )
    )
    room = plan.shown - spare - 4 * len(turn.results)
    if turn.results and room >= 2 * plan.line * len(turn.results):
        text = plan.neutraliser.safe(transcript(clipped_turn(plan, turn, room), missing))
        if plan.counter.count(text) <= plan.shown:
            return text, plan.archive.put(whole)
    return clipped(plan, whole, plan.shown)


def _level(sizes: list[int], limit: int) -> int:
    """The size at which all larger ones have to be cut, so that their sum is at most `limit`."""
    left, rest = limit, sorted(sizes)
    while rest:
        share = left // len(rest)
        if rest[0] > share:
            return max(share, 0)
        left -= rest.pop(0)
    return max(sizes, default=0)


def _span(call: ToolCall) -> tuple[str, int, int | None] | None:
    """What a call of `read_archived` asked for; None where that cannot be read."""
    try:
        values = json.loads(call.arguments)
        handle, start, end = values["handle"], values.get("start") or 0, values.get("end")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    good = isinstance(handle, str) and isinstance(start, int)
    return (handle, start, end) if good and (end is None or isinstance(end, int)) else None
