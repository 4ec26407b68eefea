"""Counts prompts from a server's reports: the last report, plus a bound on what was appended since.

A counter without the model's chat template overstates tools and calls severalfold. A server reports a prompt's
tokens, and every later prompt starts with that one, so only what follows must be bounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.messages import Message
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound, byte_count

BYTES_PER_TOKEN = 16
"""With every common vocabulary, texts take fewer bytes per token, except for long runs of one character: a lower
report can't be for this prompt."""


@dataclass(frozen=True)
class Report:
    """A server's report of a prompt's tokens."""

    messages: tuple[Message, ...]
    tokens: int
    counted: int
    """The counter's count, which may be too high."""

    def slack(self, messages: Sequence[Message], *, exact: bool) -> int | None:
        """Bytes of it that a prompt may no longer contain; None if the prompt doesn't start with it."""
        if len(messages) < len(self.messages):
            return None
        slack = 0
        for old, new in zip(self.messages, messages, strict=False):
            if (change := _change(old, new, exact=exact)) is None:
                return None
            slack += change
        return slack


@dataclass(frozen=True)
class Anchors:
    """The reports from which later prompts are counted: the latest, and that of the shortest prompt."""

    reports: tuple[Report, ...] = ()

    def bound(self, messages: Sequence[Message], counted: int, counter: TokenCounter) -> int:
        """An upper bound on the tokens of a prompt that the counter counts as `counted`. Blocks.

        A report covers the messages that it was made for. Some of their texts may have changed since: if the counter
        has the tokenizer, the old ones' tokens are known; otherwise they are assumed to be still there.
        """
        exact = counter.name != ByteBound.name
        slacks = ((report.slack(messages, exact=exact), report) for report in self.reports)
        fitting = [(slack, report) for slack, report in slacks if slack is not None]
        if not fitting:
            return counted
        slack, report = min(fitting, key=lambda found: (found[0], -len(found[1].messages)))
        more = report.tokens - report.counted
        # The counter's own number is a bound too, unless it was below the report.
        return counted + min(more + slack, max(more, 0))

    def count_excess(self, messages: tuple[Message, ...]) -> int:
        """Tokens by which the counter overstates a reported prompt; 0 if there is no report."""
        found = (report for report in self.reports if report.messages == messages)
        return next((report.counted - report.tokens for report in found), 0)

    def with_report(
        self, messages: tuple[Message, ...], tokens: int, counted: int, most: int
    ) -> Anchors:
        """The anchors plus a report, unless it can't be true: it exceeds the model's window (`most`), say."""
        kept = [report for report in self.reports if report.slack(messages, exact=False) == 0]
        least = max(1, _least(messages))
        for report in kept:
            # Templates may leave out earlier reasoning, which is what the other fields usually contain.
            spare = sum(len(json.dumps(m.extra)) for m in report.messages if m.extra)
            least = max(least, report.tokens + _least(messages[len(report.messages) :]) - spare)
        if not least <= tokens <= most:
            return self
        return Anchors((*kept[:1], Report(messages, tokens, counted)))


def _change(old: Message, new: Message, *, exact: bool) -> int | None:
    """Bytes of a message's text that the prompt may no longer contain; None if another message is in its place."""
    if old is new or old == new:
        return 0
    if old.role == "assistant" or (old.role, old.tool_call_id) != (new.role, new.tool_call_id):
        return None
    return 0 if exact or new.content.startswith(old.content) else byte_count(old.content)


def _least(messages: Sequence[Message]) -> int:
    return sum(byte_count(message.content) for message in messages) // BYTES_PER_TOKEN
