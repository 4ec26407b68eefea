"""What a loop emits: each step as a typed, committed event.

An event is handed out only after it is in the run store, with a `seq` that counts from 0 within its
run. A resumed run hands out the committed events again, verbatim, and goes on from there: whoever
remembers the last `seq` seen neither misses nor doubles one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from memagent.compaction import Compaction
from memagent.messages import Leaf, ToolCall, Usage
from memagent.trajectory import StopReason


class _Event(Leaf):
    seq: int = -1
    """Place in the run's event log; -1 until committed."""


class _QuestionEvent(_Event):
    question: int = 0
    """Index of the question (0 unless `ask_many`)."""


class RunStarted(_Event):
    """The run was made; nothing has been sent yet."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    model: str
    document: str
    questions: tuple[str, ...]
    counter: str
    """Name of the token counter."""
    window: int
    chunk_tokens: int
    memory_tokens: int


class ChunkRead(_Event):
    """A chunk was cut and is about to be shown to the model."""

    type: Literal["chunk_read"] = "chunk_read"
    chunk: int
    """Index from 0."""
    start: int
    """First character of the chunk in the document."""
    end: int
    """One past the last character."""
    tokens: int
    last: bool
    """True for the document's last chunk."""


class Neutralised(_Event):
    """Look-alikes of prompt fields or control tokens in a chunk were made harmless."""

    type: Literal["neutralised"] = "neutralised"
    chunk: int
    count: int


class MemoryUpdated(_QuestionEvent):
    """The model rewrote the memory."""

    type: Literal["memory_updated"] = "memory_updated"
    chunk: int
    memory: str
    tokens: int
    usage: Usage


class MemoryKept(_QuestionEvent):
    """The model answered with the keep literal: the memory is carried verbatim."""

    type: Literal["memory_kept"] = "memory_kept"
    chunk: int
    usage: Usage


class MemoryTruncated(_QuestionEvent):
    """A memory was over its budget, or cut off, and was cut at a sentence end."""

    type: Literal["memory_truncated"] = "memory_truncated"
    chunk: int
    tokens_before: int
    tokens_after: int


class Settled(_QuestionEvent):
    """The model answered with the done literal: the rest of the document is not read."""

    type: Literal["settled"] = "settled"
    chunk: int


class MemoryDegenerate(_QuestionEvent):
    """A new memory still said nothing when it had been asked for again (see `MemoryAgent(degenerate=)`)."""

    type: Literal["degenerate"] = "degenerate"
    chunk: int
    problem: str
    kept: bool
    """The memory before it was kept; else it was taken as it is."""


class Retried(_QuestionEvent):
    """A call was sent again; `chunk` is None for the answer call."""

    type: Literal["retried"] = "retried"
    chunk: int | None
    reason: str
    waited: float = 0.0
    """Seconds slept before sending again."""


class Answered(_QuestionEvent):
    """The final answer of one question."""

    type: Literal["answered"] = "answered"
    answer: str
    form_found: bool
    """False when the prompt set's answer form (a box, say) was not in the reply: the whole reply is the answer."""
    truncated: bool
    """True when the reply was cut off by its token limit."""
    partial: bool = False
    """True when a usage limit stopped the reading, and the answer is from the memory so far (`Limits.answer`)."""
    usage: Usage


class Stopped(_QuestionEvent):
    """The run ended without an answer, on a limit or an unusable reply; it can be resumed."""

    type: Literal["stopped"] = "stopped"
    reason: StopReason
    detail: str
    usage: Usage
    """What the last call's unusable replies cost."""


class SessionStarted(_Event):
    """A tool session was made; nothing has been sent yet."""

    type: Literal["session_started"] = "session_started"
    run_id: str
    model: str
    task: str
    tools: tuple[str, ...]
    """Names of the tools that the model is offered."""
    counter: str
    """Name of the token counter."""
    working_context: int
    """Most tokens of prompt plus output of a call."""


class Acted(_Event):
    """The model said what to do next."""

    type: Literal["acted"] = "acted"
    step: int
    text: str
    """What it said beside its calls."""
    calls: tuple[ToolCall, ...]
    prompt_tokens: int
    """Tokens of the prompt as they were counted before it was sent."""
    usage: Usage


class ToolReturned(_Event):
    """A tool's output, or why there is none."""

    type: Literal["tool_returned"] = "tool_returned"
    step: int
    call: ToolCall
    output: str
    ok: bool
    """False: the call was malformed, or the tool failed."""
    neutralised: int = 0
    """Look-alikes of tags and control tokens in the output that were made harmless before the model saw it."""


class ToolInterrupted(_Event):
    """A call was under way when a session ended, and may have had its effect: it was not repeated."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    step: int
    call: ToolCall


class Compacted(_Event):
    """The working context was made smaller."""

    type: Literal["compacted"] = "compacted"
    step: int
    """How many steps were made before."""
    compaction: Compaction


Event = Annotated[
    RunStarted
    | ChunkRead
    | Neutralised
    | MemoryUpdated
    | MemoryDegenerate
    | MemoryKept
    | MemoryTruncated
    | Settled
    | Retried
    | Answered
    | Stopped
    | SessionStarted
    | Acted
    | ToolReturned
    | ToolInterrupted
    | Compacted,
    Field(discriminator="type"),
]

event_adapter: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes any event as JSON."""
