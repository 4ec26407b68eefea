"""What an agent returns: results and estimates, readable in a terminal and a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memagent.documents import Source, open_document
from memagent.errors import DocumentRequired
from memagent.messages import Usage
from memagent.texts import plural
from memagent.threads import run_sync
from memagent.trajectory import StopReason, Trajectory

if TYPE_CHECKING:
    from memagent.quotes import Quote


@dataclass(frozen=True, repr=False, kw_only=True)
class RunResult:
    """The result of a run. It can be pickled, and converted to a dictionary."""

    answer: str | None
    """None if the run stopped before the answer; `stop_reason` says why."""
    stop_reason: StopReason
    usage: Usage
    run_id: str
    trajectory: Trajectory = field(repr=False)
    """The run's conversations, read from the run store when indexed."""
    detail: str = ""
    """Why the run stopped, or that the answer was cut off; empty if it ended with a whole answer."""
    truncated: bool = False
    """Whether its token limit cut off the answer, or in a session, reasoning that ended it without an answer."""
    partial: bool = False
    """Whether the answer is based on what was read before a usage limit stopped the run (`Limits.answer`)."""
    cost: float | None = None
    """Cost in the currency of the prices in `Limits`; None without prices."""

    _asks: ClassVar[str]
    """The field that holds the question or task."""
    _counted: ClassVar[dict[str, str]]
    """Fields shown in a line about the result, besides the answer, and their singular names."""

    @property
    def asked(self) -> str:
        """The question or task."""
        return getattr(self, self._asks)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as JSON values, without trajectory and source."""
        flat = {k: v for k, v in vars(self).items() if k not in ("trajectory", "source")}
        if (output := flat.get("output")) is not None:
            flat["output"] = output.model_dump(mode="json", by_alias=True)
        return flat | {"stop_reason": self.stop_reason.value, "usage": self.usage.model_dump()}

    def __repr__(self) -> str:
        counts = [f"{name}={getattr(self, name)!r}" for name in self._counted]
        costs = [
            f"{name}={getattr(self.usage, name)!r}"
            for name in ("calls", "prompt_tokens", "completion_tokens", "retries", "retry_tokens")
            if getattr(self.usage, name) or not name.startswith("retr")
        ]
        facts = ", ".join([f"stop_reason={self.stop_reason.value!r}", *counts, *costs])
        return f"{type(self).__name__}(answer={self._describe_answer(repr)}, {facts}, run_id={self.run_id!r})"

    def _describe_answer(self, form: Any = str) -> str:
        text = f"None ({self.detail})" if self.answer is None else form(self.answer)
        return text + " (cut off)" * self.truncated + " (from the memory so far)" * self.partial

    def _repr_html_(self) -> str:
        usage = self.usage
        counts = [plural(getattr(self, name), word) for name, word in self._counted.items()]
        tokens = f"{usage.prompt_tokens:,} prompt + {usage.completion_tokens:,} completion tokens"
        facts = [self.stop_reason.value, *counts, plural(usage.calls, "call"), tokens]
        if usage.retries:
            facts.append(f"{usage.retries:,} retries ({usage.retry_tokens:,} tokens)")
        return (
            f"<div><p><b>{escape(self.asked)}</b></p><p>{escape(self._describe_answer())}</p>{self._body()}"
            f"<small>{escape(' · '.join([*facts, f'run {self.run_id}']))}</small></div>"
        )

    def _body(self) -> str:
        return ""


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(RunResult):
    """The outcome of one question about a document."""

    question: str
    memory: str
    """The last memory; empty before the first update."""
    chunks: int
    """Chunks read for this question."""
    rereads: int = 0
    """How many chunks were read again because the memory didn't settle the question (`MemoryAgent(reread=)`)."""
    source: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """How to reopen the document, if it is a file: `path` and `options`; how far it was read, with a digest: `mark`."""
    _asks: ClassVar[str] = "question"
    _counted: ClassVar[dict[str, str]] = {"chunks": "chunk"}

    def quotes(self, document: Source | None = None) -> list[Quote]:
        """Reads the document again, and finds the sentences that share the words of the answer, then of the memory.

        Args:
            document: the same document; needed unless it was a path.

        Raises:
            DocumentRequired: the document was not a path.
            RunMismatch: it has changed since.
            DocumentError: it can't be read.
        """
        from memagent.quotes import align

        if document is None:
            if self.source.get("path") is None:
                raise DocumentRequired(
                    f"the document of run {self.run_id!r} was not a path: pass it to quotes() again"
                )
            document = open_document(Path(self.source["path"]), **self.source["options"])
        texts, mark = (self.answer or "", self.memory), self.source.get("mark")
        return run_sync(align(open_document(document), texts, mark))

    def _body(self) -> str:
        style = "white-space:pre-wrap"
        return f"<details><summary>memory</summary><pre style='{style}'>{escape(self.memory)}</pre></details>"


@dataclass(frozen=True, repr=False, kw_only=True)
class SessionResult(RunResult):
    """The outcome of a tool session's task or of a later message, to which `steps`, `summaries` and `usage` belong.

    The trajectory is that of the whole session: a conversation for each working context, in order.
    """

    task: str
    """The task, or the message."""
    steps: int
    """Replies that called tools."""
    summaries: int
    output: Any = None
    """The answer as an instance of the output type; None without one."""
    _asks: ClassVar[str] = "task"
    _counted: ClassVar[dict[str, str]] = {"steps": "step", "summaries": "summary"}


@dataclass(frozen=True)
class Estimate:
    """What a reading will cost, computed before any call. Retries cost extra."""

    chunks: int
    document_tokens: int
    """Total tokens of all chunks."""
    calls_min: int
    """Equal to `calls_max` unless the exit gate is on (one chunk may settle it), or chunks are reread or read ahead."""
    calls_max: int
    prompt_tokens: int
    """Upper bound on the prompt tokens of all calls."""
    completion_tokens: int
    """Upper bound on the generated tokens of all calls."""
    window: int
    """Tokens of the window, which no call exceeds."""
    counter: str
    """Name of the token counter; `utf8-bytes` overstates tokens about fourfold."""

    def __repr__(self) -> str:
        calls = plural(self.calls_max, "call")
        if self.calls_min != self.calls_max:
            calls = f"{self.calls_min:,} to {calls}"
        return (
            f"Estimate({calls} over {plural(self.chunks, 'chunk')}, at most {self.prompt_tokens:,} prompt and "
            f"{self.completion_tokens:,} completion tokens, window {self.window:,}, counted by {self.counter})"
        )
