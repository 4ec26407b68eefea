"""What a run leaves behind: conversations, their outcome, and why it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent.messages import CallKind, Leaf, Message, TokenIds


class StopReason(StrEnum):
    """Why a run ended."""

    ANSWERED = "answered"
    """The whole document was read and the question answered."""
    SETTLED = "settled"
    """The model said done before the end of the document (exit gate), and then answered."""
    OUT_OF_STEPS = "out_of_steps"
    """A tool session made as many steps as it may, without an answer."""
    OUT_OF_SUMMARIES = "out_of_summaries"
    """A tool session wrote as many summaries as it may, and its working context is full again."""
    NO_PROGRESS = "no_progress"
    """A tool session made the same calls with the same results over and over, also after it was told; resumable."""
    LIMIT = "limit"
    """A usage limit was reached; there is no answer yet, and the run can be resumed."""
    UNUSABLE_REPLY = "unusable_reply"
    """The model's reply stayed empty, or inside its reasoning, after two retries; resumable, with the memory intact."""


class Conversation(Leaf):
    """An append-only chain of messages in one context."""

    messages: tuple[Message, ...]
    kind: CallKind = "other"
    chunk: int | None = None
    """Index of the chunk that was shown, None for an answer call or outside a reading."""
    tokens: TokenIds | None = None
    """The last call's exact ids, where the engine gives them."""
    turns: tuple[TokenIds, ...] = ()
    """Of a recorded conversation: the ids of each of its calls in order, each prompt without what the calls before it
    showed and sampled. One after the other, the prompts and samples of all turns are the whole conversation, as
    `tokens` has it. Empty where a call gave no ids, and from then on."""


@dataclass(frozen=True)
class Trajectory:
    """The conversations of one run, its outcome and its stop reason.

    `conversations` may be backed by the run store: it is a sequence that reads from disk as it is
    indexed, so a trajectory of a million chunks costs no memory until it is walked.
    """

    conversations: Sequence[Conversation]
    outcome: str | None
    """The answer, None where the run stopped without one."""
    stop_reason: StopReason
