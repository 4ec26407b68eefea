"""What a compaction did, as data that can be kept and shown."""

from __future__ import annotations

from typing import Literal

from memagent.messages import Leaf, Message, Usage
from memagent.trajectory import Conversation

Tier = Literal["stale", "clip", "summary"]
"""The ways to make room, cheapest first."""


What = Literal["stale", "duplicate", "clipped", "dropped", "summarised", "shown_again"]
"""What became of a text. `stale`: a later call had the same tool and arguments; `duplicate`: a later result is the same
text; `clipped`: its head and tail are left; `dropped`, in runs of earlier versions: the turn left without being
summarised; `summarised`: the turn was shown to the summariser; `shown_again`: the turn stands, clipped if it had to be,
behind the summary."""


class Change(Leaf):
    """One text that left the context, or was made shorter."""

    turn: int
    """Which turn, counted from 0 over the whole session."""
    what: What
    tool: str | None = None
    """Of a single result: the tool that gave it."""
    call: str | None = None
    """Of a single result: the id of its call, as the model sees it."""
    tokens_before: int
    tokens_after: int
    """0 where nothing stands in its place (a summary stands for all turns together)."""
    handle: str
    """Where the whole text is in the archive."""


class Compaction(Leaf):
    """What one compaction did."""

    tiers: tuple[Tier, ...]
    """Those that counted, in order."""
    changes: tuple[Change, ...]
    tokens_before: int
    """Tokens of the prompt before it."""
    tokens_after: int
    """Tokens of the prompt after it."""
    stage: int
    """Summaries written so far, this one included: 0 until the first."""
    summary: str | None = None
    """The new summary; None where the cheaper tiers sufficed."""
    cut: bool = False
    """The summary was over its tokens, and was cut where a sentence ends."""
    early: bool = False
    """The summary was begun before it was due."""
    neutralised: int = 0
    """Look-alikes of tags and control tokens in the summary that were made harmless."""
    retried: tuple[str, ...] = ()
    """Why calls were sent again: what was wrong with the reply, or the error."""
    usage: Usage = Usage()
    """What the summary calls cost, those since the compaction before that led to nothing apart."""
    conversations: tuple[Conversation, ...] = ()
    """Each summary call that was used, with its reply; more than one where the turns did not fit a single call."""

    def segments(self, before: tuple[Message, ...]) -> list[Conversation]:
        """The conversations that it ended: what was in the context, and how it was summarised.

        A summary behind all that the model said is the end of that conversation. Else (a turn was left out, or there
        were several passes) the context stands by itself, so that nothing that was sampled is lost.
        """
        own = conversation_of(before)
        for context, summary in zip(own, self.conversations, strict=False):
            if summary.messages[: len(context.messages)] == context.messages:
                return list(self.conversations)
        return [*own, *self.conversations] or [Conversation(messages=before, kind="act")]


def conversation_of(messages: tuple[Message, ...]) -> tuple[Conversation, ...]:
    """The conversation that a context is: up to the model's last words, since it saw nothing of what stands behind.

    Without any words of the model there is none.
    """
    said = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return (Conversation(messages=messages[: said[-1] + 1], kind="act"),) if said else ()
