"""One compaction: the tiers in order, and the resulting state."""

from dataclasses import dataclass, field, replace

from memagent.compaction import Change, Compaction, Tier
from memagent.errors import CompactionFailed, OutOfSummaries
from memagent.session.context.layout import Layout, Past, State
from memagent.session.context.summarise import Summariser, Summary
from memagent.session.context.tiers import (
    Split,
    clip_text,
    clip_turn,
    drop_repetition,
    keep_said,
    lighten,
    show_again,
)
from memagent.session.context.turns import Turn, without_media
from memagent.threads import in_thread
from memagent.tokens.byte_bound import split_media


async def compact_state(
    layout: Layout,
    summariser: Summariser,
    before: State,
    *,
    max_summaries: int,
    force: bool = False,
) -> tuple[State, Compaction] | None:
    """Compacts a state.

    A summary started early that still fits is used without trying the cheap tiers first. So the
    outcome does not depend on `max_summaries`, and a larger one continues the same session.

    Returns the new state and what `SummaryBuffer.compact` returns; raises the same errors.
    """
    work = _Work(layout, before, before, max_summaries)
    draft = await summariser.find_begun()
    if draft is not None:
        state, summary = draft
        first, later = before.turns[: len(state.turns)], before.turns[len(state.turns) :]
        if (before.past, first) == (state.past, state.turns):
            work.check_allowed()
            await in_thread(work.leave, Split(first, kept=later), summary)
    is_early = bool(work.tiers)
    is_gain = is_early and before.tokens - work.state.tokens >= layout.progress
    enough = is_early and work.state.tokens < layout.limit and (is_gain or not force)
    # A summary may have been started before the server reported how short the prompt is, and gain nothing.
    if not enough and not await _make_room(work, summariser) and not is_gain:
        if before.pending:
            return None
        raise CompactionFailed(
            f"the prompt takes {before.tokens} tokens, and dropping everything it can spare would free less than a "
            f"tenth of the working context: use a larger working_context"
        )
    return work.state, Compaction(
        tiers=tuple(work.tiers),
        changes=tuple(work.changes),
        tokens_before=before.tokens,
        tokens_after=work.state.tokens,
        stage=work.state.past.stage,
        summary=work.summary.text if "summary" in work.tiers else None,
        cut=work.summary.cut,
        early=is_early,
        neutralised=work.summary.neutralised,
        retried=tuple(summariser.retried),
        usage=summariser.usage,
        conversations=work.summary.conversations,
    )


@dataclass
class _Work:
    """A compaction in progress."""

    layout: Layout
    before: State
    state: State
    max_summaries: int
    tiers: list[Tier] = field(default_factory=list[Tier])
    changes: list[Change] = field(default_factory=list[Change])
    summary: Summary = field(default_factory=lambda: Summary(""))

    def check_allowed(self) -> None:
        """Raises an `OutOfSummaries` if no more summaries are allowed."""
        if self.state.past.stage >= (maximum := self.max_summaries):
            subject = "1 summary has" if maximum == 1 else f"{maximum} summaries have"
            raise OutOfSummaries(
                f"the prompt takes {self.state.tokens} tokens of {self.layout.limit}, and {subject} been written, the "
                f"maximum: allow more with max_summaries="
            )

    def leave(self, parts: Split, summary: Summary | None) -> None:
        """Removes turns by summarising or shortening them. Blocks."""
        layout, past = self.layout, self.state.past
        self.tiers += parts.tiers
        self.changes += parts.lines
        if summary is not None:
            self.tiers.append("summary")
            conversations = (*self.summary.conversations, *summary.conversations)
            self.summary = replace(summary, conversations=conversations)
            for turn in parts.summarised:
                size = layout.turn_size(turn)
                handle = layout.archive.put(turn.transcript(layout.missing))
                self.changes.append(turn.change("summarised", size, 0, handle))
            turns = parts.summarised if parts.left is None else (*parts.summarised, parts.left)
            ledger = past.ledger.with_turns(turns, layout.idempotent, layout.writes)
            ledger = ledger.within(layout.ledger, layout.counter, layout.neutraliser)
            user_texts, earlier = keep_said(layout, past, parts.summarised, parts.kept)
            past = Past(past.stage + 1, summary.text, ledger, parts.again, user_texts, earlier)
        self.changes += parts.changes
        below = min(layout.limit, self.before.tokens - layout.progress + 1)
        self.state = layout.state(past, parts.kept, below=below)


async def _make_room(work: _Work, summariser: Summariser) -> bool:
    """Compacts the state; returns False if nothing would free enough."""
    layout, old_state = work.layout, work.state
    parts = await in_thread(_choose, layout, old_state)
    if parts is None:
        return False
    summary = None
    if parts.summary:
        work.check_allowed()
        summary = await summariser.summary(layout, old_state.past, parts.summarised)
    await in_thread(work.leave, parts, summary)
    least = 1 if summary is None else layout.progress  # what frees nothing would be tried forever
    if old_state.tokens - work.state.tokens < least:
        raise CompactionFailed(
            f"the prompt took {old_state.tokens} tokens and takes {work.state.tokens} compacted, but at least {least} "
            f"must be freed; use a larger working_context"
        )
    return True


def _choose(layout: Layout, state: State) -> Split | None:
    """Chooses the cheap tiers if they are enough, else the turns to remove; None if that gains too little. Blocks."""
    if (light := lighten(layout, state)) is not None:
        return light
    # The last turn may be shown clipped. It makes nothing stale: the only copy might be lost with it.
    older, changes = drop_repetition(layout, state.turns[:-1])
    turns = (*older, *state.turns[-1:])
    is_full = turns and state.tokens >= layout.limit
    parts = split(layout, state.past, turns) if is_full else split_early(state.past, turns)
    if parts is None or (parts.summary and not _gains(layout, state, parts)):
        return None
    if not changes:
        return parts
    stale = state.tokens - layout.state(state.past, turns).tokens >= layout.progress
    tiers = (*(("stale",) if stale else ()), *parts.tiers)
    return replace(parts, lines=changes, tiers=tiers)


def _gains(layout: Layout, state: State, parts: Split) -> bool:
    """Returns whether any summary would free a tenth of the working context, given what stays. Blocks."""
    if state.tokens >= layout.limit and not any(turn.pending for turn in parts.kept):
        return True  # the division of the working context guarantees it
    base = layout.state(Past(stage=state.past.stage + 1), parts.kept)
    return state.tokens - base.tokens - layout.summary - layout.ledger >= layout.progress


# --- which turns are summarised, and what happens to the one that made the context overflow


def split(layout: Layout, past: Past, turns: tuple[Turn, ...]) -> Split | None:
    """Divides the turns of a prompt above the limit; None if the only turn waits for results. Blocks."""
    older, last = turns[:-1], turns[-1]
    if last.pending:
        return Split(summarised=older, kept=(last,)) if older or past.again else None
    if last.head.role != "assistant":
        return _keep_said(layout, past, older, last)
    if not older:
        spare = layout.calm - layout.state(past, (last.without_texts(),)).tokens
        if last.results and spare >= 0:
            short_turn, changes = clip_turn(layout, last, spare)
            if layout.state(past, (short_turn,)).tokens <= layout.calm:
                return Split(kept=(short_turn,), changes=changes, tiers=("clip",), summary=False)
        return Split(summarised=(last,))
    unseen = any(split_media(message.extra)[1] for message in last.native)
    if unseen and _fits_behind(layout, past, turns, last):  # summaries are written from text
        return Split(summarised=older, kept=(last,))
    if (asking := layout.asking).fits(asking.ask(past, turns)):
        return Split(summarised=turns)
    user_texts, earlier = keep_said(layout, past, older)
    text, change = show_again(layout, last, sum(map(layout.size, (*user_texts, earlier))))
    return Split(summarised=older, left=last, again=text, changes=(change,))


def split_early(past: Past, turns: tuple[Turn, ...]) -> Split | None:
    """Divides the turns of a prompt below the limit: the last one fits, and is summarised with the others.

    It stays if it is a user's, or waits for results; None if there is nothing else.
    """
    tail = tuple(turn for turn in turns[-1:] if turn.pending or turn.head.role != "assistant")
    older = turns[: len(turns) - len(tail)]
    return Split(summarised=older, kept=tail) if older or past.again else None


def _keep_said(layout: Layout, past: Past, older: tuple[Turn, ...], last: Turn) -> Split:
    """Keeps a user's message, which is never dropped, after the summary, with its pictures if they fit."""
    summary = bool(older or past.again or past.said)
    if summary and _fits_behind(layout, past, (*older, last), last):
        return Split(summarised=older, kept=(last,))
    text_head = without_media(last.head)
    behind = max(layout.again, layout.said)
    room = behind if summary else layout.calm - layout.state(past, ()).tokens
    text, handle = clip_text(layout, text_head.content, room)
    short = replace(last, head=text_head.model_copy(update={"content": text}))
    before, after = layout.size(last.head.content), layout.size(short.head.content)
    changes = (last.change("clipped", before, after, handle),) if short.head != last.head else ()
    tiers: tuple[Tier, ...] = () if summary else ("clip",)
    return Split(summarised=older, kept=(short,), changes=changes, tiers=tiers, summary=summary)


def _fits_behind(layout: Layout, past: Past, turns: tuple[Turn, ...], last: Turn) -> bool:
    """Returns whether the last turn, as shown, fits after a summary of the others that frees enough. Blocks."""
    texts, earlier = keep_said(layout, past, turns[:-1], (last,))
    base = layout.state(Past(past.stage + 1, said=texts, earlier=earlier), (last,)).tokens
    cap = min(layout.limit - 1, layout.state(past, turns).tokens - layout.progress)
    return base + layout.summary + layout.ledger <= cap
