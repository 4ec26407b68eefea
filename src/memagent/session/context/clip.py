"""Makes texts shorter, with a handle to the whole."""

from __future__ import annotations

import json
from dataclasses import replace

from memagent.chunking.fitting import ends
from memagent.compaction import Change
from memagent.messages import ToolCall
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.context.layout import Layout
from memagent.session.context.turns import ToolResult, Turn


def clip_text(layout: Layout, text: str, limit: int) -> tuple[str, str]:
    """Head and tail of a text, with a line between them that names the handle of the whole; and that handle. Blocks.

    A text of at most `limit` tokens stays as it is. The line is there even if it takes more.
    """
    handle = layout.archive.put(text)
    if layout.counter.count(text) <= limit:
        return text, handle
    first, last = ends(text, limit - layout.line, layout.counter)
    line = layout.render_gap(handle, first, last)
    return "\n".join(part for part in (text[:first], line, text[last:]) if part), handle


def clip_result(layout: Layout, call: ToolCall, result: ToolResult, limit: int) -> ToolResult:
    """A result of at most so many tokens. Blocks.

    What `read_archived` returned gets no handle of its own, but names that of the text that was read, and from where
    to go on: else each reading would make a text that has to be read.
    """
    if result.fixed or layout.counter.count(result.text) <= limit:
        return result
    read = _span(call) if call.name == READ_ARCHIVED.name else None
    if read is None:
        whole = result.text if result.handle is None else layout.archive.get(result.handle)
        text, handle = clip_text(layout, whole, limit)
        return replace(result, text=text, handle=handle)
    handle, start, end = read
    first, _ = ends(result.text, limit - layout.line, layout.counter, tail=False)
    stop = start + len(result.text) if end is None else end
    line = layout.render_gap(handle, start + first, max(stop, start + first))
    short = "\n".join(part for part in (result.text[:first], line) if part)
    return replace(result, text=short, handle=handle)


def clip_turn(layout: Layout, turn: Turn, limit: int) -> tuple[Turn, tuple[Change, ...]]:
    """The turn with results that take so many tokens together, the longest made shorter; and their record. Blocks."""
    sizes = [0 if result is None else layout.counter.count(result.text) for result in turn.results]
    share = _level(sizes, limit)
    return clip_results(layout, turn, sizes, share, share)


def clip_results(
    layout: Layout, turn: Turn, sizes: list[int], long: int, limit: int
) -> tuple[Turn, tuple[Change, ...]]:
    """The turn with its results that take more than `long` of their tokens clipped, and their record. Blocks."""
    changes: list[Change] = []
    for place, (call, result) in enumerate(turn.steps):
        if result is None or sizes[place] <= long:
            continue
        short = clip_result(layout, call, result, limit)
        if (size := layout.counter.count(short.text)) < sizes[place]:
            handle = short.handle or ""
            changes.append(turn.change("clipped", sizes[place], size, handle, place=place))
            turn = turn.with_result(place, short)
    return turn, tuple(changes)


def show_again(layout: Layout, turn: Turn) -> tuple[str, Change]:
    """A turn as one safe text that fits behind a summary, and the record of it. Blocks."""

    def shown(turn: Turn) -> str:
        return layout.neutraliser.safe(layout.transcript(turn))

    def record(text: str, handle: str) -> tuple[str, Change]:
        size = layout.counter.count(layout.transcript(turn))
        return text, turn.change("shown_again", size, layout.counter.count(text), handle)

    text = whole = shown(turn)
    if (over := layout.counter.count(whole) > layout.again) and turn.results:
        bare = replace(turn, results=(ToolResult(""),) * len(turn.results))
        room = layout.again - layout.counter.count(shown(bare)) - 4 * len(turn.results)
        if room >= 2 * layout.line * len(turn.results):
            text = shown(clip_turn(layout, turn, room)[0])
            over = layout.counter.count(text) > layout.again
    if over:
        return record(*clip_text(layout, whole, layout.again))
    return record(text, layout.archive.put(whole))


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
