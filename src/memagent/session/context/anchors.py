"""Counts a prompt from an earlier one whose tokens are known, plus a bound on what was appended since.

Nearly every prompt of a session begins with an earlier one, whose tokens were reported by the server or counted
once. So a step only costs counting its new texts, however long the prompt is (ADR 0018).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memagent.budget import JOINT_SLACK
from memagent.messages import Message
from memagent.session.context.turns import list_parts
from memagent.tokens.byte_bound import byte_count, message_bound

BYTES_PER_TOKEN = 16
"""With every common vocabulary, texts take fewer bytes per token than this, except for long runs of one character. A
report of fewer tokens than it implies can't be for this prompt."""


@dataclass
class Anchor:
    """A prompt whose tokens are known, or bounded."""

    messages: tuple[Message, ...]
    tokens: int
    low: int = 0
    """Lower bound on its tokens, from the sizes of its texts."""
    counted: int | None = None
    """Its tokens according to the counter; None if that wasn't asked yet."""
    reported: bool = False
    """Whether the server reported `tokens`."""
    least: int = 0
    """Lower bound with any tokenizer, from reports and the bytes of texts, if nothing `hidden` is left out."""
    hidden: int = 0
    """Bytes of its messages' other fields: mostly earlier reasoning, which templates may leave out."""

    def change(
        self, messages: Sequence[Message], size: Callable[[str], int], *, exact: bool
    ) -> int | None:
        """Returns how many more tokens its messages take in a prompt; None if the prompt doesn't begin with them.

        Texts may have changed since. The tokens of the old ones are subtracted if the counter has the tokenizer
        (`exact`); otherwise the old ones are assumed to be still there.
        """
        if len(messages) < len(self.messages):
            return None
        more = 0
        for old, new in zip(self.messages, messages, strict=False):
            if old is new or old == new:
                continue
            author = (new.role, new.tool_call_id)
            if old.role == "assistant" or (old.role, old.tool_call_id) != author:
                return None
            if old.extra != new.extra:
                earlier, parts = list_parts(old), list_parts(new)
                if parts[: len(earlier)] != earlier:
                    return None
                extra: dict[str, Any] = {**new.extra, "content": parts[len(earlier) :]}
                more += message_bound(size, Message(role=new.role, content="", extra=extra))
            elif new.content.startswith(old.content):
                more += size(new.content[len(old.content) :])
            else:
                more += size(new.content) - (size(old.content) if exact else 0)
            more += JOINT_SLACK if exact else 0
        return more

    def begins(self, messages: Sequence[Message]) -> bool:
        """Returns whether a prompt begins with its messages, to which text may have been appended."""
        return self.change(messages, lambda text: 0, exact=False) == 0 and all(
            new.content.startswith(old.content)
            for old, new in zip(self.messages, messages, strict=False)
            if old is not new
        )


@dataclass(frozen=True)
class Anchors:
    """The prompts that later ones are counted from: the shortest, the latest, and the one being made."""

    known: tuple[Anchor, ...] = ()

    def bounds(
        self, messages: Sequence[Message], size: Callable[[str], int], *, exact: bool
    ) -> tuple[int, int] | None:
        """Returns lower and upper bound on the tokens of a prompt; None if it begins with none of these.

        The lower one is 0 if texts have changed, and isn't a bound without a tokenizer (`exact`).
        """
        ranges: list[tuple[int, int]] = []
        for anchor in reversed(self.known):
            if (change := anchor.change(messages, size, exact=exact)) is None:
                continue
            tail = messages[len(anchor.messages) :]
            bound = anchor.tokens + change + sum(message_bound(size, m) for m in tail)
            if not change and anchor.begins(messages):  # earlier anchors know less of it
                return anchor.low + sum(size(m.content) for m in tail), bound
            ranges.append((0, bound))
        return min(ranges, default=None)

    def at(self, messages: tuple[Message, ...], low: int, tokens: int) -> Anchors:
        """Returns the anchors plus the prompt that is being made."""
        return Anchors((*self.known, Anchor(messages, tokens, low=low)))

    def excess(
        self, messages: Sequence[Message], counter: Callable[[Sequence[Message]], int]
    ) -> int:
        """Returns by how many tokens a counter of whole prompts overstates this one, judging by a report. Blocks."""
        for anchor in reversed(self.known):
            if anchor.reported and anchor.change(messages, len, exact=True) is not None:
                if anchor.counted is None:
                    anchor.counted = counter(anchor.messages)
                return anchor.counted - anchor.tokens
        return 0

    def with_prompt(
        self, messages: tuple[Message, ...], low: int, bound: int, said: int, most: int
    ) -> Anchors:
        """Returns the anchors plus a prompt that was sent, of `low` to `bound` tokens, or as many as the server `said`.

        A report that can't be true is ignored: one over the model's window (`most`), or below what was appended to an
        earlier report. A `said` equal to `bound` isn't a report: it was filled in for a server that sends none.
        """
        last = ([Anchor((), 0)] + [a for a in self.known if a.begins(messages)])[-1]
        tail = messages[len(last.messages) :]
        hidden = last.hidden + sum(len(json.dumps(m.extra)) for m in tail if m.extra)
        least = last.least + sum(byte_count(m.content) for m in tail) // BYTES_PER_TOKEN
        first, *_ = self.known
        new = Anchor(messages, bound, low, least=least, hidden=hidden)
        if said != bound and max(1, least - last.hidden) <= said <= most:
            new.tokens = new.low = new.least = said
            new.reported = True
        if first.messages == messages:
            new.counted = first.counted
            return Anchors((new,))
        return Anchors((first, new))
