"""What a loop emits: each step as a typed, committed event.

An event is delivered only after it is in the run store, with a `seq` that counts from 0 within its
run. A resumed run delivers the committed events again, verbatim, then continues: a consumer that
remembers the last `seq` it saw neither misses nor repeats one.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from memagent.compaction import Compaction
from memagent.messages import Leaf, ToolCall, Usage
from memagent.trajectory import StopReason

CUT_OFF = "the reply was cut off by its token limit"


class _Event(Leaf):
    seq: int = -1
    """Position in the run's event log; -1 until committed."""


class _QuestionEvent(_Event):
    question: int = 0
    """Index of the question (0 unless `ask_many`)."""


class RunStarted(_Event):
    """The run was created; nothing has been sent yet."""

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
    origin: str | None = None
    """The run that this one branched from."""
    before: int = 0
    """The chunk before which it branched. Events about earlier chunks are copies of the origin's, without usage."""


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
    place: str = ""
    """Where the chunk comes from, such as `p. 3 to p. 5`, if the document's format has places."""


class Neutralised(_Event):
    """Look-alikes of prompt fields or control tokens in a chunk were neutralised."""

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
    """A memory exceeded its budget or was cut off, and was cut at a sentence end."""

    type: Literal["memory_truncated"] = "memory_truncated"
    chunk: int
    tokens_before: int
    tokens_after: int


class RowsFound(_QuestionEvent):
    """A reply of an extraction was read; its valid new rows are stored."""

    type: Literal["rows_found"] = "rows_found"
    chunk: int
    rows: int
    """New rows."""
    duplicates: int
    """Rows equal to earlier ones."""
    invalid: int
    """Rows rejected for good (`Extraction.invalid`)."""
    total: int
    """Rows found so far."""


class Settled(_QuestionEvent):
    """The model answered with the done literal: the rest of the document is not read."""

    type: Literal["settled"] = "settled"
    chunk: int


class Rereading(_QuestionEvent):
    """The memory didn't settle the question: later events about its chunks and memory are of chunks read again."""

    type: Literal["rereading"] = "rereading"
    chunks: tuple[int, ...]
    """The chunks that rank highest for the question's words."""
    recalled: tuple[str, ...]
    """Sentences of past memories that were appended to the memory."""
    usage: Usage
    """Cost of the answer call that found it unsettled."""


class MemoryDegenerate(_QuestionEvent):
    """A new memory was still degenerate after retries (see `MemoryAgent(degenerate=)`)."""

    type: Literal["degenerate"] = "degenerate"
    chunk: int
    problem: str
    kept: bool
    """Whether the old memory was kept; otherwise the new one was accepted."""


class Retried(_QuestionEvent):
    """A call was retried; `chunk` is None for the answer call."""

    type: Literal["retried"] = "retried"
    chunk: int | None
    reason: str
    waited: float = 0.0
    """Seconds slept before the retry."""


class Answered(_QuestionEvent):
    """The final answer of one question."""

    type: Literal["answered"] = "answered"
    answer: str
    form_found: bool
    """False if the reply lacks the prompt set's answer form (a box, say): the whole reply is the answer."""
    truncated: bool
    """True if the reply was cut off by its token limit."""
    partial: bool = False
    """True if a usage limit stopped the reading and the answer is from the memory so far (`Limits.answer`)."""
    usage: Usage


class Stopped(_QuestionEvent):
    """The run ended without an answer, on a limit or an unusable reply; it can be resumed."""

    type: Literal["stopped"] = "stopped"
    reason: StopReason
    detail: str
    usage: Usage
    """Cost of the last call's unusable replies."""


class SessionStarted(_Event):
    """A tool session was created; nothing has been sent yet."""

    type: Literal["session_started"] = "session_started"
    run_id: str
    model: str
    task: str
    tools: tuple[str, ...]
    """Names of the tools offered to the model."""
    counter: str
    """Name of the token counter."""
    working_context: int
    """Maximum tokens of prompt plus output per call."""


class MessageSent(_Event):
    """The user sent another message in a session; the first one is the task of `SessionStarted`."""

    type: Literal["message_sent"] = "message_sent"
    number: int
    """Number of the message; the task is 0."""
    text: str
    tools: tuple[str, ...] | None = None
    """Names of the tools from this message on; None if they didn't change."""


class Acted(_Event):
    """The model chose what to do next."""

    type: Literal["acted"] = "acted"
    step: int
    text: str
    """The reply's text, without its calls."""
    calls: tuple[ToolCall, ...]
    prompt_tokens: int
    """Tokens of the prompt, counted before it was sent."""
    usage: Usage


class ToolReturned(_Event):
    """A tool's output, or why there is none."""

    type: Literal["tool_returned"] = "tool_returned"
    step: int
    call: ToolCall
    output: str
    ok: bool
    """False if the call was malformed or the tool failed."""
    neutralised: int = 0
    """Look-alikes of tags and control tokens neutralised in the output before the model saw it."""


class ToolInterrupted(_Event):
    """A call was in progress when a session ended and may have taken effect, so it was not repeated."""

    type: Literal["tool_interrupted"] = "tool_interrupted"
    step: int
    call: ToolCall


class Compacted(_Event):
    """The working context was compacted."""

    type: Literal["compacted"] = "compacted"
    step: int
    """Number of steps made before the compaction."""
    compaction: Compaction


Event = Annotated[
    RunStarted
    | ChunkRead
    | Neutralised
    | MemoryUpdated
    | Rereading
    | MemoryDegenerate
    | MemoryKept
    | MemoryTruncated
    | RowsFound
    | Settled
    | Retried
    | Answered
    | Stopped
    | SessionStarted
    | MessageSent
    | Acted
    | ToolReturned
    | ToolInterrupted
    | Compacted,
    Field(discriminator="type"),
]

event_adapter: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes any event as JSON."""


def memory_after(event: Event, memory: str) -> str:
    """Returns a question's memory after an event about that question, given the memory before it."""
    if isinstance(event, Rereading):
        return "\n".join((memory, *event.recalled)).lstrip("\n")
    return event.memory if isinstance(event, MemoryUpdated) else memory
