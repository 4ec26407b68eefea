"""The tiers before the summary: obsolete results are replaced by a line, long ones are clipped."""

import json
from contextlib import suppress
from dataclasses import dataclass

from memagent.chunking.fitting import ends
from memagent.compaction import Change, Tier, What
from memagent.errors import UnknownHandle
from memagent.messages import ToolCall
from memagent.session.context.anchors import BYTES_PER_TOKEN
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.context.layout import Layout, Past, State
from memagent.session.context.ledger import describe, normalise_json
from memagent.session.context.turns import ToolResult, Turn

MIN_DUPLICATE = 20
"""Tokens: shorter texts may be equal by chance, and replacing them frees nothing."""
LONG_SHARE = 8
"""Results of more than an eighth of the working context are long, and are clipped to half of that."""
MIN_LONG = 64


@dataclass(frozen=True)
class Split:
    """What a compaction does with each turn."""

    summarised: tuple[Turn, ...] = ()
    left: Turn | None = None
    """The last turn, if it leaves without being summarised."""
    again: str = ""
    """The text that shows `left` again after the summary."""
    kept: tuple[Turn, ...] = ()
    """Turns that stay."""
    lines: tuple[Change, ...] = ()
    """Results replaced by a line."""
    changes: tuple[Change, ...] = ()
    """Changes to turns that are kept or shown again."""
    tiers: tuple[Tier, ...] = ()
    """The cheap tiers used."""
    summary: bool = True
    """Whether to write a summary; False if what is kept is small enough without one."""


def lighten(layout: Layout, state: State) -> Split | None:
    """Applies the cheap tiers to a state; None if a summary is needed. Blocks.

    They are enough if they free a tenth of the working context and bring the prompt well below the limit.
    """
    turns, changes = drop_repetition(layout, state.turns)
    max_tokens = min(layout.calm, state.tokens - layout.progress)

    def count(turns: tuple[Turn, ...]) -> int:
        return layout.state(state.past, turns, head=state.head, below=max_tokens + 1).tokens

    tokens = count(turns) if changes else state.tokens
    tiers: tuple[Tier, ...] = ("stale",) if changes else ()
    if tokens <= max_tokens:
        return Split(kept=turns, changes=changes, tiers=tiers, summary=False)
    long = max(layout.window // LONG_SHARE, MIN_LONG)
    limit = max(long // 2, 2 * layout.line)
    clipped: tuple[Change, ...] = ()
    # Older turns first, and never the last: the model must see what it has just asked for.
    for index, turn in enumerate(turns[:-1]):
        texts = ("" if r is None or r.handle or r.fixed else r.text for r in turn.results)
        sizes = [layout.size(text) for text in texts]
        shorter, turn_changes = clip_results(layout, turn, sizes, long, limit)
        turns, clipped = (*turns[:index], shorter, *turns[index + 1 :]), (*clipped, *turn_changes)
        tokens -= sum(change.tokens_before - change.tokens_after for change in turn_changes)
        if turn_changes and tokens <= max_tokens:
            tokens = count(turns)
            if tokens <= max_tokens:
                changes = (*changes, *clipped)
                return Split(kept=turns, changes=changes, tiers=(*tiers, "clip"), summary=False)
    return None


def drop_repetition(
    layout: Layout, turns: tuple[Turn, ...]
) -> tuple[tuple[Turn, ...], tuple[Change, ...]]:
    """Puts a line in place of results that a later one repeats or supersedes; returns turns and changes. Blocks.

    A failure supersedes only failures with the same text. A turn that waits for results is left alone, and makes
    nothing stale: once they arrive it may be dropped.
    """
    fixed = {result.handle for turn in turns for result in turn.results if result and result.fixed}
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
            key = (call.name, normalise_json(call.arguments))
            text = (result.ok, json.dumps(result.extra.get("content") or result.text))
            # With other tools each call may return something new: the next page, another roll of a die.
            stale = key in calls and call.name in layout.idempotent
            if result.ok:
                calls.add(key)
            new = not stale and texts.setdefault(text, call) is call
            if new or (size := layout.size(result.text)) < MIN_DUPLICATE:
                continue
            handle = result.handle or layout.archive.put(result.text)
            # A result that an earlier line refers to stays, unless its text comes again.
            later = None if stale and handle not in fixed else texts.setdefault(text, call)
            if later is call:
                continue
            kind: What = "duplicate" if later else "stale"
            gist = layout.neutraliser.safe(describe(later or call))
            line = layout.prompts.render(kind, call=gist, handle=handle, can_read=layout.can_read)
            if (new_size := layout.size(line)) < size:
                changes.append(turns[at].change(kind, size, new_size, handle, place=place))
                short = result.with_text(line, handle, fixed=True)
                turns = (*turns[:at], turns[at].with_result(place, short), *turns[at + 1 :])
    return turns, tuple(reversed(changes))


# --- clipping


def clip_text(layout: Layout, text: str, limit: int) -> tuple[str, str]:
    """Returns head and tail of a text around a line that names the handle of the whole, and that handle. Blocks.

    A text of at most `limit` tokens is unchanged. The line is included even if it exceeds the limit.
    """
    handle = layout.archive.put(text)
    if layout.size(text) <= limit:
        return text, handle
    first, last = _ends(layout, text, limit)
    line = layout.render_gap(handle, first, last)
    return "\n".join(part for part in (text[:first], line, text[last:]) if part), handle


def _ends(layout: Layout, text: str, limit: int, *, tail: bool = True) -> tuple[int, int]:
    """Returns the span to cut from a text so that it fits `limit` tokens, with the line in its place. Blocks."""
    margin = BYTES_PER_TOKEN * max(limit, 1)
    gap = len(text) - 2 * margin  # what is farther from both ends is not looked at
    if gap > 0:
        text = text[:margin] + text[-margin:]
    first, last = ends(text, limit - layout.line, layout.counter, tail=tail)
    return (min(first, margin), max(last, margin) + gap) if gap > 0 else (first, last)


def clip_result(layout: Layout, call: ToolCall, result: ToolResult, limit: int) -> ToolResult:
    """Returns a result clipped to at most `limit` tokens. Blocks.

    A result of `read_archived` gets no new handle, but names that of the text it read, and where
    to continue: otherwise each reading would create another text to read.
    """
    if result.fixed or layout.size(result.text) <= limit:
        return result
    span = _span(call) if call.name == READ_ARCHIVED.name else None
    if span is None:
        full_text = result.text
        if result.handle is not None:
            with suppress(UnknownHandle):  # a saved state came without its archive
                full_text = layout.archive.get(result.handle)
        text, handle = clip_text(layout, full_text, limit)
        return result.with_text(text, handle)
    handle, start, end = span
    first, _ = _ends(layout, result.text, limit, tail=False)
    stop = start + len(result.text) if end is None else end
    line = layout.render_gap(handle, start + first, max(stop, start + first))
    return result.with_text("\n".join(filter(None, (result.text[:first], line))), handle)


def clip_turn(layout: Layout, turn: Turn, limit: int) -> tuple[Turn, tuple[Change, ...]]:
    """Returns the turn with its longest results clipped so that all fit `limit` tokens, and the changes. Blocks."""
    sizes = [0 if result is None else layout.size(result.text) for result in turn.results]
    share = _level(sizes, limit)
    return clip_results(layout, turn, sizes, share, share)


def clip_results(
    layout: Layout, turn: Turn, sizes: list[int], long: int, limit: int
) -> tuple[Turn, tuple[Change, ...]]:
    """Returns the turn with results of more than `long` tokens clipped to `limit`, and the changes. Blocks."""
    changes: list[Change] = []
    for place, (call, result) in enumerate(turn.steps):
        if result is None or sizes[place] <= long:
            continue
        short = clip_result(layout, call, result, limit)
        if (size := layout.size(short.text)) < sizes[place]:
            handle = short.handle or ""
            changes.append(turn.change("clipped", sizes[place], size, handle, place=place))
            turn = turn.with_result(place, short)
    return turn, tuple(changes)


def keep_said(
    layout: Layout, past: Past, turns: tuple[Turn, ...], kept: tuple[Turn, ...] = ()
) -> tuple[tuple[str, ...], str]:
    """Returns the user's texts that stay word for word after a summary of turns, and the line for the others. Blocks.

    The last text stays, clipped only if it alone is too long. Earlier ones stay whole, as far as all together fit half
    of the room for texts shown again. Those in `kept` turns stay in their turns, but take up room.
    """
    user_texts, later = [*past.said, *_list_user_texts(turns)], _list_user_texts(kept)
    room, first = layout.said, len(user_texts) + len(later)
    for text in reversed((*user_texts, *later)):
        if (size := layout.size(text)) > room and first <= len(user_texts) + len(later) - 1:
            break
        first -= 1
        room = min(room, layout.again // 2) - size
    first = min(first, len(user_texts))
    if user_texts and not later and layout.size(user_texts[-1]) > layout.said:
        user_texts[-1], _ = clip_text(layout, user_texts[-1], layout.said)
    earlier = past.earlier
    if first:
        text = "\n\n".join(filter(None, (past.earlier, *user_texts[:first])))
        earlier = layout.render_gap(layout.archive.put(text), 0, len(text))
    return tuple(user_texts[first:]), earlier


def _list_user_texts(turns: tuple[Turn, ...]) -> list[str]:
    return [turn.head.content for turn in turns if turn.head.role == "user" and turn.own]


def show_again(layout: Layout, turn: Turn, taken: int = 0) -> tuple[str, Change]:
    """Returns a turn as one safe text that fits after a summary, and the change. Blocks.

    `taken` tokens of the room for it are already in use.
    """
    max_tokens = max(layout.again - taken, 2 * layout.line)

    def write(turn: Turn) -> str:
        return layout.neutraliser.safe(turn.transcript(layout.missing))

    text = full_text = write(turn)
    if turn.results and layout.size(full_text) > max_tokens:
        room = max_tokens - layout.size(write(turn.without_texts())) - 4 * len(turn.results)
        if room >= 2 * layout.line * len(turn.results):
            text = write(clip_turn(layout, turn, room)[0])
    if (after := layout.size(text)) > max_tokens:
        text, _ = clip_text(layout, full_text, max_tokens)
        after = layout.size(text)
    before, handle = layout.turn_size(turn), layout.archive.put(full_text)
    return text, turn.change("shown_again", before, after, handle)


def _level(sizes: list[int], limit: int) -> int:
    """Returns the size to which all larger ones must be cut so that their sum is at most `limit`."""
    room, queue = limit, sorted(sizes)
    while queue:
        share = room // len(queue)
        if queue[0] > share:
            return max(share, 0)
        room -= queue.pop(0)
    return max(sizes, default=0)


def _span(call: ToolCall) -> tuple[str, int, int | None] | None:
    """Returns what a call of `read_archived` asked for; None if its arguments can't be parsed."""
    values = call.values()
    handle, start, end = values.get("handle"), values.get("start") or 0, values.get("end")
    if not (isinstance(handle, str) and isinstance(start, int) and isinstance(end, int | None)):
        return None
    return handle, start, end
