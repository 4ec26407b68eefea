"""One wish for a usable reply, and the reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from memagent.events import Event, Retried
from memagent.messages import CallKind, Completion, Message, ToolSpec, Usage
from memagent.trajectory import Conversation

NEAR = 64
"""Tokens below the limit from which a prompt is counted whole instead of bounded by its parts (ADR 0014)."""
T = TypeVar("T")
Record = tuple[Mapping[str, Any], Sequence[Event]]
"""What is committed beside a reply, and what is said of it."""


class Unusable(Exception):
    """All replies of one exchange were unusable; the message says how."""


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A usable reply."""

    value: T
    """What `Exchange.read` made of it."""
    completion: Completion
    usage: Usage
    """Of the exchange in this session: with what led to nothing before."""
    messages: tuple[Message, ...]
    """What it replies to."""
    kind: CallKind
    attempt: int
    """Unusable replies before it, in earlier sessions too: after the first, requests ask for no reasoning."""

    def conversation(self, chunk: int | None = None) -> Conversation:
        """Prompt and reply as one conversation.

        Args:
            chunk: index of the chunk that the prompt shows.
        """
        said = Message(role="assistant", content=self.completion.text, extra=self.completion.extra)
        return Conversation(
            messages=(*self.messages, said),
            kind=self.kind,
            chunk=chunk,
            tokens=self.completion.tokens,
        )


@dataclass
class Exchange(Generic[T]):
    """One wish for a usable reply.

    What it costs adds up in `usage` and `retried`, whatever happens.
    """

    key: str
    """Names it in the run's log, and makes its seed: `update-12/q0`."""
    kind: CallKind
    messages: tuple[Message, ...]
    read: Callable[[Completion], T]
    """What the reply says; raises `UnusableReply` if it is none."""
    most: int
    """Most tokens of output."""
    least: int | None = None
    """Fewest tokens of output that are worth sending the call for; default half of `most`."""
    bound: int | None = None
    """Upper bound on the tokens of the prompt, where its parts were counted; None: it is counted whole."""
    count: Callable[..., int] | None = None
    """Counts the messages in place of the counter where more is known of the prompt. Takes `thinking`; may block."""
    near: int = NEAR
    """Tokens below the limit from which `bound` is not relied on, and the prompt counted whole."""
    stop: tuple[str, ...] = ()
    """Strings that end the reply."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["none"] | None = None
    """`none`: the tools stand in the prompt, and may not be called; they are left out once a reply calls one."""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    record: Callable[[Reply[T]], Record] | None = None
    """What is committed with the reply, in the same transaction. It runs in a thread and may block."""
    rejects: Callable[[T], str | None] | None = None
    """Why a reply is committed and yet asked for again, under another key: it counts as wasted. None: it doesn't."""
    doubts: Callable[[T], str | None] | None = None
    """Why a usable reply is asked for again while attempts are left; the last one is taken. None: it isn't."""
    keeps_failure: bool = False
    """A failure is committed too, and met again by a replay."""
    attempts: int = 0
    """Attempts made before under another key."""
    warm: bool = False
    """A reply was doubted."""
    turn: Awaitable[None] | None = None
    """Awaited before a usable reply is taken: what comes of earlier exchanges may make this one pointless."""
    question: int = 0
    chunk: int | None = None
    """For the events of what was sent again."""
    usage: Usage = field(default_factory=Usage)
    """What it cost in this session; of a reply that was committed before, what that took."""
    wasted: int = 0
    """Unusable replies in this session."""
    replied: Usage | None = None
    """What the reply cost that waits for its turn."""
    unsaved: Usage = field(default_factory=Usage)
    """The part of it that is not committed yet."""
    retried: list[Event] = field(default_factory=list[Event])
    """Events that are not committed yet."""
    reasons: list[str] = field(default_factory=list[str])
    """Why it was sent again in this session."""

    def charge(self, usage: Usage) -> None:
        """Adds to what it cost."""
        self.usage += usage
        self.unsaved += usage

    def note(self, reason: str, waited: float = 0.0) -> None:
        """Says that the call is sent again."""
        again = Retried(question=self.question, chunk=self.chunk, reason=reason, waited=waited)
        self.retried.append(again)
        self.reasons.append(reason)
