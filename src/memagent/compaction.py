"""What a compaction did, as data to store and show."""

from typing import Literal

from memagent.messages import Leaf, Message, Usage
from memagent.trajectory import Conversation

Tier = Literal["stale", "clip", "summary"]
"""The ways to make room, cheapest first."""


What = Literal["stale", "duplicate", "clipped", "dropped", "summarised", "shown_again"]
"""What became of a text. `stale`: a later call had the same tool and arguments; `duplicate`: a later result is the same
text; `clipped`: only its head and tail are left; `dropped`, only in runs of earlier versions: the turn was removed
without being summarised; `summarised`: the turn was shown to the summariser; `shown_again`: the turn follows the
summary, clipped if necessary."""


class Change(Leaf):
    """One text that left the context or was shortened."""

    turn: int
    """The turn, counted from 0 over the whole session."""
    what: What
    tool: str | None = None
    """For a single result: the tool that returned it."""
    call: str | None = None
    """For a single result: the id of its call, as the model sees it."""
    tokens_before: int
    tokens_after: int
    """0 if nothing replaces it (a summary replaces all turns together)."""
    handle: str
    """The archive's handle of the whole text."""


class Compaction(Leaf):
    """What one compaction did."""

    tiers: tuple[Tier, ...]
    """The tiers used, in order."""
    changes: tuple[Change, ...]
    tokens_before: int
    """Tokens of the prompt before it."""
    tokens_after: int
    """Tokens of the prompt after it."""
    stage: int
    """Summaries written so far, including this one; 0 before the first."""
    summary: str | None = None
    """The new summary; None if the cheaper tiers sufficed."""
    cut: bool = False
    """The summary exceeded its token limit and was cut at a sentence end."""
    early: bool = False
    """The summary was started before it was due."""
    neutralised: int = 0
    """Look-alikes of tags and control tokens neutralised in the summary."""
    retried: tuple[str, ...] = ()
    """Why calls were retried: the fault in the reply, or the error."""
    usage: Usage = Usage()
    """Cost of the summary calls; failed ones since the previous compaction are counted separately."""
    conversations: tuple[Conversation, ...] = ()
    """The summary calls used, with their replies; several if the turns didn't fit a single call."""

    def segments(self, before: tuple[Message, ...]) -> list[Conversation]:
        """Returns the conversations that the compaction ended: the context's, and those of the summary calls.

        A summary that follows everything the model said ends that conversation. Otherwise (a turn was left out, or
        there were several passes) the context is a separate conversation, so that nothing sampled is lost.
        """
        contexts = conversation_of(before)
        for context, summary in zip(contexts, self.conversations, strict=False):
            if summary.messages[: len(context.messages)] == context.messages:
                return list(self.conversations)
        return [*contexts, *self.conversations] or [Conversation(messages=before, kind="act")]


def conversation_of(messages: tuple[Message, ...]) -> tuple[Conversation, ...]:
    """Returns the context as a conversation, up to the model's last message, since it saw nothing after that.

    Empty if the model said nothing.
    """
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return (Conversation(messages=messages[: replies[-1] + 1], kind="act"),) if replies else ()
