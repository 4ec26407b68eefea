"""One request for a usable reply, and the reply."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from memagent.events import Event, Retried
from memagent.messages import CallKind, Completion, Message, ToolSpec, Usage
from memagent.trajectory import Conversation

NEAR = 64
"""Margin in tokens below the limit within which a prompt is counted instead of bounded by its parts (ADR 0014)."""
T = TypeVar("T")
Record = tuple[Mapping[str, Any], Sequence[Event]]
"""What is committed with a reply, and the events about it."""


class Unusable(Exception):
    """All replies of one exchange were unusable; the message says how."""

    def __init__(self, detail: str, cut_off: bool) -> None:
        super().__init__(detail)
        self.cut_off = cut_off
        """Whether the last one was cut off by its token limit."""


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A usable reply."""

    value: T
    """The result of `Exchange.read`."""
    completion: Completion
    usage: Usage
    """Usage of the exchange in this session, including failed attempts."""
    messages: tuple[Message, ...]
    """The messages it replies to."""
    kind: CallKind
    attempt: int
    """Unusable replies before it, including earlier sessions: after the first, requests disable reasoning."""
    doubt: str | None = None
    """Why it was doubted, if it was accepted all the same: no attempt gave a better one (see `Exchange.doubts`)."""

    def conversation(self, chunk: int | None = None) -> Conversation:
        """Returns prompt and reply as one conversation; `chunk` is the index of the chunk that the prompt shows."""
        turn = Message(role="assistant", content=self.completion.text, extra=self.completion.extra)
        return Conversation(
            messages=(*self.messages, turn),
            kind=self.kind,
            chunk=chunk,
            tokens=self.completion.tokens,
        )


@dataclass
class Exchange(Generic[T]):
    """One request for a usable reply.

    Its cost accumulates in `usage` and `retried`, whatever happens.
    """

    key: str
    """Its key in the run's log, from which its seed is derived: `update-12/q0`."""
    kind: CallKind
    messages: tuple[Message, ...]
    read: Callable[[Completion], T]
    """Parses the reply; raises `UnusableReply`."""
    most: int
    """Maximum tokens of output."""
    least: int | None = None
    """Minimum tokens of output that make the call worthwhile; default half of `most`."""
    bound: int | None = None
    """Upper bound on the prompt's tokens, if its parts were counted; None: count the whole prompt."""
    count: Callable[..., int] | None = None
    """Counts the messages instead of the counter if more is known about the prompt. Takes `thinking`; may block."""
    near: int = NEAR
    """Margin in tokens below the limit within which `bound` isn't relied on and the prompt is counted."""
    stop: tuple[str, ...] = ()
    """Strings that end the reply."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["none"] | None = None
    """`none`: the tools are in the prompt but may not be called; they are left out once a reply calls one."""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    record: Callable[[Reply[T]], Record] | None = None
    """Returns what to commit with the reply, in the same transaction. Runs in a thread and may block."""
    rejects: Callable[[T], str | None] | None = None
    """Returns why a reply, though committed, counts as wasted and is requested again under another key, or None."""
    doubts: Callable[[T], str | None] | None = None
    """Returns why to ask for a usable reply again while attempts remain (then the last usable is taken), or None."""
    keeps_failure: bool = False
    """Whether a failure is committed too, and raised again by a replay."""
    attempts: int = 0
    """Attempts made before under another key."""
    warm: bool = False
    """Whether a reply was doubted."""
    turn: asyncio.Future[None] | None = None
    """Awaited before a usable reply is taken: the outcome of earlier exchanges may make it obsolete."""
    also: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Bodies of further effects by key, committed in the same transaction; filled by `record`."""
    question: int = 0
    chunk: int | None = None
    """The chunk for the events about retries."""
    usage: Usage = field(default_factory=Usage)
    """Its cost in this session; for a reply committed earlier, the cost recorded then."""
    wasted: int = 0
    """Number of unusable replies that are not committed yet."""
    uncharged: Usage | None = None
    """The cost of a call not charged yet: its prompt's while it is in flight, then its reply's until its turn."""
    unsaved: Usage = field(default_factory=Usage)
    """The uncommitted part of `usage`."""
    retried: list[Event] = field(default_factory=list[Event])
    """Events that are not committed yet."""
    reasons: list[str] = field(default_factory=list[str])
    """Why it was retried in this session."""

    def charge(self, usage: Usage) -> None:
        """Adds to its cost."""
        self.usage += usage
        self.unsaved += usage
        self.uncharged = None

    def note(self, reason: str, waited: float = 0.0) -> None:
        """Records that the call is retried."""
        event = Retried(question=self.question, chunk=self.chunk, reason=reason, waited=waited)
        self.retried.append(event)
        self.reasons.append(reason)
