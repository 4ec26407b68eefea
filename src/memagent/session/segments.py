"""The conversations that a session's contexts were."""

from __future__ import annotations

from memagent.compaction import Compaction
from memagent.messages import Message
from memagent.trajectory import Conversation


def conversation_of(messages: tuple[Message, ...]) -> tuple[Conversation, ...]:
    """The conversation that a context is: up to the model's last words, since it saw nothing of what stands behind.

    Without any words of the model there is none.
    """
    said = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return (Conversation(messages=messages[: said[-1] + 1], kind="act"),) if said else ()


def segments(before: tuple[Message, ...], done: Compaction) -> list[Conversation]:
    """The conversations that a compaction ended: what was in the context, and how it was summarised.

    A summary behind all that the model said is the end of that conversation. Else (a turn was left out, or there were
    several passes) the context stands by itself, so that nothing that was sampled is lost.
    """
    own = conversation_of(before)
    for context, summary in zip(own, done.conversations, strict=False):
        if summary.messages[: len(context.messages)] == context.messages:
            return list(done.conversations)
    return [*own, *done.conversations] or [Conversation(messages=before, kind="act")]
