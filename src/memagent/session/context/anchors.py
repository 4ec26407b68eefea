"""Prompts counted by what a server reported: the last report, and a bound on what was appended since.

A counter without the model's chat template overstates tools and calls several times. A server reports what a prompt
took, and every later prompt begins with that one, so only what stands behind it has to be bounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.messages import Message
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound, byte_count

BYTES_PER_TOKEN = 16
"""Texts take fewer bytes a token with every vocabulary in use, but for long runs of one character: a report below that
is no count of this prompt."""


@dataclass(frozen=True)
class Report:
    """What a server said that a prompt took."""

    size: int
    """Messages of the prompt."""
    last: Message
    """The last of them: a later prompt may have more text in it."""
    tokens: int
    counted: int
    """By the counter, which may overstate it."""


@dataclass(frozen=True)
class Anchors:
    """The reports that later prompts may be counted from."""

    messages: tuple[Message, ...] = ()
    """Of the latest reported prompt, which begins with those of the others."""
    reports: tuple[Report, ...] = ()
    """Smaller prompts first."""

    def bound(self, messages: Sequence[Message], counted: int, counter: TokenCounter) -> int:
        """An upper bound on the tokens of a prompt. Blocks.

        A report counts for the messages that it was made for. Some of their texts may have changed since: what the old
        ones took is known where the counter has the tokenizer; else they are taken to be there still.

        Args:
            messages: of the prompt.
            counted: its tokens by the counter.
            counter: exact for texts, but for `ByteBound`.
        """
        fitting = self._fitting(messages, exact=counter.name != ByteBound.name)
        if not fitting:
            return counted
        slack, report = min(
            fitting, key=lambda found: (found[0], -found[1].size, -found[1].counted)
        )
        more = report.tokens - report.counted
        # The counter's own number is a bound too, unless it was too low for the report.
        return counted + min(more + slack, max(more, 0))

    def overstated(self, messages: tuple[Message, ...]) -> int:
        """Tokens by which the counter overstates a prompt that was reported; 0 where it was not."""
        for report in self.reports:
            if report.size == len(messages) and report.last == messages[-1]:
                return report.counted - report.tokens
        return 0

    def with_report(
        self, messages: tuple[Message, ...], tokens: int, counted: int, most: int
    ) -> Anchors:
        """The anchors with a report more; without it where it cannot be true.

        Args:
            messages: of the prompt that was sent.
            tokens: that the server said it took.
            counted: tokens by the counter.
            most: tokens that the model's window holds.
        """
        kept = tuple(report for slack, report in self._fitting(messages, exact=False) if not slack)
        least = [_least(messages)]
        for report in kept:
            # Templates may leave out earlier reasoning, which is what other fields mostly hold.
            spare = sum(_extra_bytes(message) for message in messages[: report.size])
            least.append(report.tokens + _least(messages[report.size :]) - spare)
        if not messages or not max(1, *least) <= tokens <= most:
            return self
        return Anchors(messages, (*kept, Report(len(messages), messages[-1], tokens, counted)))

    def _fitting(self, messages: Sequence[Message], *, exact: bool) -> list[tuple[int, Report]]:
        """The reports that a prompt can be counted from, each with the bytes of what is not there any more."""
        fitting: list[tuple[int, Report]] = []
        slack, place = 0, 0
        for report in self.reports:
            while place < report.size - 1 and place < len(messages):
                change = _change(self.messages[place], messages[place], exact=exact)
                if change is None:
                    return fitting
                slack, place = slack + change, place + 1
            if report.size > len(messages):
                break
            change = _change(report.last, messages[report.size - 1], exact=exact)
            if change is not None:
                fitting.append((slack + change, report))
        return fitting


def _change(old: Message, new: Message, *, exact: bool) -> int | None:
    """Bytes of a message's text that the prompt may not hold any more; None where another message is in its place."""
    if old is new or old == new:
        return 0
    if old.role == "assistant" or (old.role, old.tool_call_id) != (new.role, new.tool_call_id):
        return None
    return 0 if exact or new.content.startswith(old.content) else byte_count(old.content)


def _least(messages: Sequence[Message]) -> int:
    return sum(byte_count(message.content) for message in messages) // BYTES_PER_TOKEN


def _extra_bytes(message: Message) -> int:
    return len(json.dumps(message.extra)) if message.extra else 0
