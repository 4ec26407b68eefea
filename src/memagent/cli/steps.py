"""A tool session step by step, written from its events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, pairwise
from typing import Any, cast

from memagent.cli.history import Trace, made_harmless, sent_again
from memagent.compaction import Change, Compaction
from memagent.events import Acted, Answered, Compacted, Event, Retried, ToolReturned
from memagent.messages import ToolCall
from memagent.terminal import Paper, plural

TIERS = {"stale": "dropping stale results", "clip": "clipping", "summary": "a summary"}
NO_RESULT = "no result was committed"
MISREAD = "  meant as a call that could not be read"


def turns_of(events: Iterable[Event]) -> list[int]:
    """The step of each turn: compactions count turns. A step whose calls could not be read has two of them."""
    turns: list[int] = []
    for event, following in pairwise(chain(events, (None,))):
        if isinstance(event, Acted) and event.calls:
            turns.append(event.step)
        elif isinstance(event, Acted) and following and not isinstance(following, Answered):
            turns += [event.step, event.step]  # the reply, and what the model was told
    return turns


class Steps(Trace):
    """Writes what a session did: a paragraph for each step and each compaction, then the answer.

    Texts are one line each, unless `whole`. `turns` are those of the whole session.
    """

    def __init__(self, paper: Paper, turns: Sequence[int], *, whole: bool = False) -> None:
        super().__init__(paper)
        self._turns, self._whole = turns, whole
        self._misread = {step for step, following in pairwise(turns) if step == following}
        self._open: list[ToolCall] = []
        """Calls of the last step whose results are still to come."""

    def _event(self, event: Event) -> None:
        match event:
            case Acted():
                self._acted(event)
            case ToolReturned():
                if event.call in self._open:  # an equal one, where a model wrote the same twice
                    self._open.remove(event.call)
                self._text(described(event.call), "cyan", indent=2)
                self._text(event.output, "dim" if event.ok else "red", indent=4)
            case Compacted():
                self._compacted(event.step, event.compaction)
            case Retried():
                self._paper.line((sent_again(event), "yellow"))
            case _:
                super()._event(event)

    def _acted(self, event: Acted) -> None:
        self._flush()
        self._open = list(event.calls)
        misread = event.step in self._misread
        if not event.calls and not misread and not self._whole:
            return  # the answer, which comes next
        prompt = f"  prompt {event.prompt_tokens:,} tokens"
        how = MISREAD if misread else ""
        self._paper.line((f"step {event.step}", "bold"), (prompt, "dim"), (how, "yellow"))
        if event.text.strip():
            self._text(event.text, "italic", indent=2)

    def _flush(self) -> None:
        """Writes the calls that never returned."""
        for call in self._open:
            self._text(described(call), "cyan", indent=2)
            self._paper.line((NO_RESULT, "yellow"), indent=4)
        self._open = []

    def _text(self, text: str, style: str, *, indent: int) -> None:
        if self._whole:
            self._paper.line((text, style), indent=indent)
            return
        lines = [line for line in text.splitlines() if line.strip()]
        more = f"  (+{plural(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
        self._paper.gist(lines[0] if lines else "(empty)", style, indent=indent, end=more)

    def _compacted(self, step: int, done: Compaction) -> None:
        how = " and ".join(TIERS[tier] for tier in done.tiers)
        sizes = f"{done.tokens_before:,} to {done.tokens_after:,} tokens"
        self._paper.line((f"compacted before step {step}", "bold magenta"), f"  {sizes}, by {how}")
        rows = self._rows(done.changes)
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        for where, what, size, handle in rows:
            line = f"{where:<{widths[0]}}  {what:<{widths[1]}}  {size:>{widths[2]}}  {handle}"
            self._paper.line((line, "dim"), indent=2)
        for reason in done.retried:
            self._paper.line((f"sent again: {reason}", "yellow"), indent=2)
        if done.summary is None:
            return
        notes = (
            f"summary {done.stage}",
            "begun early" if done.early else "",
            "cut at a sentence end" if done.cut else "",
            made_harmless(done.neutralised) if done.neutralised else "",
        )
        self._paper.line((", ".join(filter(None, notes)), "magenta"), indent=2)
        self._paper.line((done.summary, "green"), indent=4)

    def _rows(self, changes: Iterable[Change]) -> list[tuple[str, str, str, str]]:
        """Where, what, how large, and the handle; steps that left as a whole are one row, unless in full."""
        rows: list[tuple[str, str, str, str]] = []
        turns = self._turns
        for what, group in groupby(changes, self._together):
            these = list(group)
            numbers = [change.turn for change in these]
            steps = [turns[number] if number < len(turns) else number for number in numbers]
            before = sum(change.tokens_before for change in these)
            after = sum(change.tokens_after for change in these)
            where = f"step {steps[0]}" if steps[0] == steps[-1] else f"steps {steps[0]}-{steps[-1]}"
            size = f"{before:,}{f' to {after:,}' if after else ''} tokens"
            rows.append((where, what[0], size, these[0].handle if len(these) == 1 else ""))
        return rows

    def _together(self, change: Change) -> tuple[str, int]:
        """The same for changes that are shown as one."""
        what = change.what.replace("_", " ")
        whole = change.what in ("summarised", "dropped") and not self._whole
        return (what, -1) if whole else (f"{what} {change.tool or ''}".rstrip(), id(change))


def described(call: ToolCall) -> str:
    """A call as Python writes it: `search(query="fog")`; arguments that are no JSON object as they are."""
    try:
        arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return f"{call.name}({call.arguments})"
    given = cast("dict[str, Any]", arguments)
    named = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    return f"{call.name}({', '.join(named)})"
