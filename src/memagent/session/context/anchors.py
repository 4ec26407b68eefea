"""Prompts counted from one whose tokens are known, and a bound on what was appended since.

Nearly every prompt of a session begins with an earlier one. What that took was reported by the server, or counted
once; so a step costs no more than counting its new texts, however long the prompt is (ADR 0018).
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
"""With every common vocabulary, texts take fewer bytes per token, except for long runs of one character: a lower
report can't be for this prompt."""


@dataclass
class Anchor:
    """A prompt whose tokens are known, or bounded."""

    messages: tuple[Message, ...]
    tokens: int
    low: int = 0
    """Tokens that it takes at least, by the sizes of its texts."""
    counted: int | None = None
    """By the counter; None where it was not asked yet."""
    reported: bool = False
    """The server said so."""
    least: int = 0
    """The same but for `hidden`, whatever the tokenizer: as far as reports tell."""
    hidden: int = 0
    """Bytes of other fields in it: templates may leave out earlier reasoning, which is what they mostly hold."""

    def change(
        self, messages: Sequence[Message], size: Callable[[str], int], *, exact: bool
    ) -> int | None:
        """Tokens that its messages take more in a prompt; None where that does not begin with them.

        Texts may have changed since. What the old ones took is known where the counter has the tokenizer (`exact`);
        else they are taken to be there still.
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
        """Whether a prompt holds all of its texts and more."""
        return self.change(messages, lambda text: 0, exact=False) == 0 and all(
            new.content.startswith(old.content)
            for old, new in zip(self.messages, messages, strict=False)
            if old is not new
        )


@dataclass(frozen=True)
class Anchors:
    """The prompts that later ones are counted from: the shortest, the latest, and that which is being made."""

    known: tuple[Anchor, ...] = ()

    def bounds(
        self, messages: Sequence[Message], size: Callable[[str], int], *, exact: bool
    ) -> tuple[int, int] | None:
        """Lower and upper bound on the tokens of a prompt; None where it begins with none of these.

        The lower one is 0 without a tokenizer (`exact`).
        """
        ranges: list[tuple[int, int]] = []
        for anchor in reversed(self.known):
            if (change := anchor.change(messages, size, exact=exact)) is None:
                continue
            tail = messages[len(anchor.messages) :]
            bound = anchor.tokens + change + sum(message_bound(size, m) for m in tail)
            if not change and anchor.begins(messages):  # an earlier one says less of it
                return anchor.low + sum(size(m.content) for m in tail), bound
            ranges.append((0, bound))
        return min(ranges, default=None)

    def at(self, messages: tuple[Message, ...], low: int, tokens: int) -> Anchors:
        """The anchors with the prompt that is being made."""
        return Anchors((*self.known, Anchor(messages, tokens, low=low)))

    def excess(
        self, messages: Sequence[Message], counter: Callable[[Sequence[Message]], int]
    ) -> int:
        """Tokens by which a counter of whole prompts overstates this one, as far as a report tells. Blocks."""
        for anchor in reversed(self.known):
            if anchor.reported and anchor.change(messages, len, exact=True) is not None:
                if anchor.counted is None:
                    anchor.counted = counter(anchor.messages)
                return anchor.counted - anchor.tokens
        return 0

    def with_prompt(
        self, messages: tuple[Message, ...], low: int, bound: int, said: int, most: int
    ) -> Anchors:
        """The anchors with a prompt that was sent, of `low` to `bound` tokens, or of those that the server says.

        What it says is not believed where it cannot be true: it is over the model's window (`most`), or below what was
        appended to an earlier report. Who counts for a silent server says the bound itself.
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
