"""Prints what a run did from its events: memories as diffs, a tool session step by step."""

import json
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, pairwise

from memagent import events
from memagent.cli.changes import changes, words
from memagent.compaction import Change, Compaction
from memagent.messages import ToolCall
from memagent.terminal import Paper
from memagent.texts import plural

TIERS = {"stale": "dropping stale results", "clip": "clipping", "summary": "a summary"}
SO_FAR = " (from the memory so far)"
"""Follows a partial answer, as in a result's repr."""
STYLES = {"=": "", "-": "red strike", "+": "green"}


def tell(event: events.Event) -> str:
    """Describes anything unusual that happened to a chunk or a call; empty if nothing did."""
    match event:
        case events.Retried():
            delay = f" after {event.waited:.1f} s" if event.waited else ""
            return f"sent again{delay}: {event.reason}"
        case events.MemoryDegenerate():
            outcome = "the old one was kept" if event.kept else "it was accepted"
            return f"{event.problem}; {outcome}"
        case events.Rereading():
            sentence_count, chunks = len(event.recalled), ", ".join(map(str, event.chunks)) or "-"
            phrase = f"{plural(sentence_count, 'sentence')} recalled, chunks {chunks} read again"
            return f"the memory doesn't settle it: {phrase}"
        case events.RowsFound():
            losses = [("duplicate", event.duplicates), ("invalid row", event.invalid)]
            return ", ".join(plural(count, name) for name, count in losses if count)
        case events.Neutralised():
            return tell_neutralised(event.count)
        case _:
            return ""


def tell_neutralised(count: int) -> str:
    """Describes look-alikes that were neutralised in a document or a result."""
    return f"{plural(count, 'look-alike')} of prompt fields neutralised"


class History:
    """Writes the history of one question: a paragraph for each chunk that changed its memory, then the answer."""

    def __init__(self, paper: Paper, number: int = 0) -> None:
        self._paper, self._number, self._memory = paper, number, ""
        self._same: tuple[int, int, str] | None = None
        """First and last of consecutive chunks after which the memory was the same, and why."""
        self._span: events.ChunkRead | None = None
        self._truncated: events.MemoryTruncated | None = None

    def write(self, history: Iterable[events.Event]) -> None:
        """Writes a paragraph for each event that matters."""
        for event in history:
            self._event(event)
        self._flush()

    def _event(self, event: events.Event) -> None:
        if getattr(event, "question", self._number) != self._number:
            return
        match event:
            case events.ChunkRead():
                self._span = event
            case events.MemoryKept():
                self._tell_kept(event.chunk, "kept")
            case events.MemoryTruncated():
                self._truncated = event
            case events.MemoryUpdated():
                self._tell_update(event)
            case events.Retried():
                place = "answer" if event.chunk is None else f"chunk {event.chunk}"
                self._note(f"{place} {tell(event)}", "yellow")
            case events.Rereading():
                self._note(tell(event), "cyan")
                self._memory = events.memory_after(event, self._memory)
            case events.MemoryDegenerate() | events.RowsFound() | events.Neutralised():
                if text := tell(event):
                    self._note(f"chunk {event.chunk}: {text}", "yellow")
            case events.Settled():
                self._note(f"settled after chunk {event.chunk}: the rest was not read", "cyan")
            case events.Stopped():
                self._note(f"stopped ({event.reason.replace('_', ' ')}): {event.detail}", "yellow")
            case events.Answered():
                self._flush()
                self._paper.line("")
                answer = (event.answer.strip(), "bold")
                self._paper.line(("answer: ", "dim"), answer, SO_FAR * event.partial)
                if event.truncated:
                    self._paper.line((events.CUT_OFF, "yellow"))
            case _:
                pass

    def _note(self, text: str, style: str) -> None:
        self._flush()
        self._paper.line((text, style))

    def _tell_update(self, event: events.MemoryUpdated) -> None:
        differences, self._memory = changes(self._memory, event.memory), event.memory
        truncation, self._truncated = self._truncated, None
        if not differences and truncation is None:
            self._tell_kept(event.chunk, "rewritten unchanged")
            return
        self._flush()
        details = note = ""
        if self._span is not None and self._span.chunk == event.chunk:
            details = f"  characters {self._span.start:,} to {self._span.end:,}"
            details += f", {self._span.place}" if self._span.place else ""
        if truncation is not None:
            note = f"  cut from {truncation.tokens_before:,} to {truncation.tokens_after:,}"
        details += f"  memory {event.tokens:,} tokens"
        self._paper.line((f"chunk {event.chunk}", "bold"), (details, "dim"), (note, "yellow"))
        for change in differences:
            is_rewrite = bool(change.removed and change.added)
            for sign, text, style in ("-", change.removed, "red"), ("+", change.added, "green"):
                parts = [(text, style)]
                if is_rewrite:
                    kinds = ("=", sign)
                    parts = [(part, STYLES[kind]) for kind, part in words(change) if kind in kinds]
                if text:
                    self._paper.line((f"{sign} ", style), *parts, indent=2, hang=2)

    def _tell_kept(self, chunk: int, verb: str) -> None:
        if self._same is None or self._same[2] != verb:
            self._flush()
            self._same = (chunk, chunk, verb)
        self._same = (self._same[0], chunk, verb)

    def _flush(self) -> None:
        if self._same is not None:
            first, last, verb = self._same
            subject = f"chunk {first}" if first == last else f"chunks {first}-{last}"
            self._paper.line((f"{subject} {verb}", "dim"))
            self._same = None


def turns_of(history: Iterable[events.Event]) -> list[int]:
    """Returns the step of each turn, -1 for a user's message: compactions number turns, not steps.

    A step whose calls could not be parsed has two turns.
    """
    turns: list[int] = []
    answer_steps: list[int] = []
    """Step of the last reply, if that was an answer."""
    for event, next_event in pairwise(chain(history, (None,))):
        if isinstance(event, events.MessageSent):
            turns += [*answer_steps, -1]
        elif isinstance(event, events.Acted):
            answer_steps = [] if event.calls else [event.step]
            if event.calls:
                turns.append(event.step)
            elif next_event and not isinstance(next_event, events.Answered):
                turns += [event.step, event.step]  # the reply, and what the model was told
    return turns


class Steps(History):
    """Writes the history of a session: a paragraph for each step and each compaction, then the answer.

    Texts are shortened to one line each, unless `whole`. `turns` are those of the whole session.
    """

    def __init__(self, paper: Paper, turns: Sequence[int], *, whole: bool = False) -> None:
        super().__init__(paper)
        self._turns, self._whole = turns, whole
        self._misread = {step for step, next_step in pairwise(turns) if step == next_step >= 0}
        self._open: list[ToolCall] = []
        """Calls of the last step whose results are still to come."""

    def _event(self, event: events.Event) -> None:
        match event:
            case events.MessageSent():
                self._flush()
                self._paper.line("")
                self._text(event.text, "bold cyan", indent=0)
                if event.tools is not None:
                    self._text(f"tools from here on: {', '.join(event.tools)}", "dim", indent=2)
            case events.Acted():
                self._tell_act(event)
            case events.ToolReturned():
                if event.call in self._open:  # removes an equal call if the model wrote it twice
                    self._open.remove(event.call)
                self._text(format_call(event.call), "cyan", indent=2)
                self._text(event.output, "dim" if event.ok else "red", indent=4)
            case events.Compacted():
                self._tell_compaction(event.step, event.compaction)
            case events.Retried():
                self._paper.line((tell(event), "yellow"))
            case _:
                super()._event(event)

    def _tell_act(self, event: events.Acted) -> None:
        self._flush()
        self._open = list(event.calls)
        is_misread = event.step in self._misread
        if not event.calls and not is_misread and not self._whole:
            return  # the answer, which comes next
        prompt = f"  prompt {event.prompt_tokens:,} tokens"
        note = "  the call could not be parsed" if is_misread else ""
        self._paper.line((f"step {event.step}", "bold"), (prompt, "dim"), (note, "yellow"))
        if event.text.strip():
            self._text(event.text, "italic", indent=2)

    def _flush(self) -> None:
        for call in self._open:  # it never returned
            self._text(format_call(call), "cyan", indent=2)
            self._paper.line(("no result was committed", "yellow"), indent=4)
        self._open = []

    def _text(self, text: str, style: str, *, indent: int) -> None:
        if self._whole:
            self._paper.line((text, style), indent=indent)
            return
        lines = [line for line in text.splitlines() if line.strip()]
        more = f"  (+{plural(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
        self._paper.gist(lines[0] if lines else "(empty)", style, indent=indent, end=more)

    def _tell_compaction(self, step: int, compaction: Compaction) -> None:
        ways = " and ".join(TIERS[tier] for tier in compaction.tiers)
        sizes = f"{compaction.tokens_before:,} to {compaction.tokens_after:,} tokens"
        self._paper.line((f"compacted before step {step}", "bold magenta"), f"  {sizes}, by {ways}")
        rows = self._rows(compaction.changes)
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        for place, kind, size, handle in rows:
            line = f"{place:<{widths[0]}}  {kind:<{widths[1]}}  {size:>{widths[2]}}  {handle}"
            self._paper.line((line, "dim"), indent=2)
        for reason in compaction.retried:
            self._paper.line((f"sent again: {reason}", "yellow"), indent=2)
        if compaction.summary is None:
            return
        notes = (
            f"summary {compaction.stage}",
            "begun early" if compaction.early else "",
            "cut at a sentence end" if compaction.cut else "",
            tell_neutralised(compaction.neutralised) if compaction.neutralised else "",
        )
        self._paper.line((", ".join(filter(None, notes)), "magenta"), indent=2)
        self._paper.line((compaction.summary, "green"), indent=4)

    def _rows(self, changes: Iterable[Change]) -> list[tuple[str, str, str, str]]:
        """Makes rows of place, kind, size and handle; unless shown `whole`, steps that left entirely share one row."""
        rows: list[tuple[str, str, str, str]] = []
        for key, group in groupby(changes, self._together):
            members = list(group)
            numbers = [change.turn for change in members]
            turn_steps = [self._turns[n] if n < len(self._turns) else n for n in numbers]
            steps = [step for step in turn_steps if step >= 0]
            before = sum(change.tokens_before for change in members)
            after = sum(change.tokens_after for change in members)
            place = f"steps {steps[0]}-{steps[-1]}" if steps else "message"
            if steps and steps[0] == steps[-1]:
                place = f"step {steps[0]}"
            size = f"{before:,}{f' to {after:,}' if after else ''} tokens"
            rows.append((place, key[0], size, members[0].handle if len(members) == 1 else ""))
        return rows

    def _together(self, change: Change) -> tuple[str, int]:
        """Returns a key that is equal for changes to show in one row."""
        kind = change.what.replace("_", " ")
        is_whole = change.what in ("summarised", "dropped") and not self._whole
        return (kind, -1) if is_whole else (f"{kind} {change.tool or ''}".rstrip(), id(change))


def format_call(call: ToolCall) -> str:
    """Formats a call as in Python: `search(query="fog")`; arguments that aren't a JSON object are shown verbatim."""
    arguments = call.values()
    if not arguments and call.arguments.strip() not in ("", "{}"):
        return f"{call.name}({call.arguments})"
    pairs = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{call.name}({', '.join(pairs)})"
