"""What a run produces: conversations, their outcome, and why it stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memagent.messages import CallKind, Leaf, Message, TokenIds


class StopReason(StrEnum):
    """Why a run ended."""

    ANSWERED = "answered"
    """The whole document was read and the question answered."""
    SETTLED = "settled"
    """The model said done before the end of the document (exit gate), then answered."""
    OUT_OF_STEPS = "out_of_steps"
    """A tool session used up its steps without an answer."""
    OUT_OF_SUMMARIES = "out_of_summaries"
    """A tool session used up its summaries, and its working context is full again."""
    NO_PROGRESS = "no_progress"
    """A tool session made the same calls with the same results over and over, even after being told; resumable."""
    LIMIT = "limit"
    """A usage limit was reached; there is no answer yet, and the run can be resumed."""
    UNUSABLE_REPLY = "unusable_reply"
    """The model refused, or its reply was empty or all reasoning, even after two retries; resumable, memory intact."""


class Conversation(Leaf):
    """An append-only chain of messages in one context."""

    messages: tuple[Message, ...]
    kind: CallKind = "other"
    chunk: int | None = None
    """Index of the chunk that was shown; None for an answer call or outside a reading."""
    tokens: TokenIds | None = None
    """The last call's exact ids, if the engine returns them."""
    turns: tuple[TokenIds, ...] = ()
    """In a recorded conversation: the ids of each call in order, each prompt without what earlier calls
    showed and sampled. Concatenated, the prompts and samples of all turns are the whole conversation, as
    in `tokens`. Empty once a call returns no ids."""

    def dump(self) -> dict[str, Any]:
        """Returns the conversation as JSON values, as stored."""
        return self.model_dump(mode="json", exclude_defaults=True)


@dataclass(frozen=True)
class Trajectory:
    """The conversations of one run, its outcome and its stop reason.

    `conversations` may be backed by the run store: a sequence that reads from disk when
    indexed, so a trajectory of a million chunks takes no memory until you iterate over it.
    """

    conversations: Sequence[Conversation]
    outcome: str | None
    """The answer; None if the run stopped without one."""
    stop_reason: StopReason
