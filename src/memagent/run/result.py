"""What an agent hands back: results and estimates, good to look at in a terminal and a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from memagent.messages import Usage
from memagent.trajectory import StopReason, Trajectory


@dataclass(frozen=True)
class Result:
    """The outcome of one question."""

    question: str
    answer: str | None
    """None where the run stopped before the answer; `stop_reason` says why."""
    memory: str
    """The last memory, empty before the first update."""
    stop_reason: StopReason
    usage: Usage
    """Of this question alone."""
    chunks: int
    """Chunks that were read for this question."""
    run_id: str
    trajectory: Trajectory = field(repr=False)
    detail: str = ""
    """A sentence on why there is no answer, empty where there is one."""

    def __repr__(self) -> str:
        usage = self.usage
        said = repr(self.answer) if self.answer is not None else f"None ({self.detail})"
        return (
            f"Result(answer={said}, stop_reason={self.stop_reason.value!r}, chunks={self.chunks}, "
            f"calls={usage.calls}, prompt_tokens={usage.prompt_tokens}, "
            f"completion_tokens={usage.completion_tokens}, run_id={self.run_id!r})"
        )

    def _repr_html_(self) -> str:
        usage = self.usage
        answer = self.answer if self.answer is not None else f"no answer: {self.detail}"
        facts = (
            f"{self.stop_reason.value} · {self.chunks:,} chunks · {usage.calls:,} calls · "
            f"{usage.prompt_tokens:,} prompt + {usage.completion_tokens:,} completion tokens · run {self.run_id}"
        )
        return (
            f"<div><p><b>{escape(self.question)}</b></p><p>{escape(answer)}</p>"
            f"<details><summary>memory</summary><pre style='white-space:pre-wrap'>{escape(self.memory)}</pre>"
            f"</details><small>{escape(facts)}</small></div>"
        )


@dataclass(frozen=True)
class SessionResult:
    """The outcome of a tool session."""

    task: str
    answer: str | None
    """None where the session stopped without one; `stop_reason` says why."""
    stop_reason: StopReason
    usage: Usage
    steps: int
    """Replies of the model that called tools."""
    summaries: int
    run_id: str
    trajectory: Trajectory = field(repr=False)
    """A conversation for each working context that came to its end, in order."""
    detail: str = ""
    """A sentence on why there is no answer, empty where there is one."""
    truncated: bool = False
    """The answer was cut off by its token limit."""

    def __repr__(self) -> str:
        usage = self.usage
        said = repr(self.answer) if self.answer is not None else f"None ({self.detail})"
        said += " (cut off)" if self.truncated else ""
        return (
            f"SessionResult(answer={said}, stop_reason={self.stop_reason.value!r}, steps={self.steps}, "
            f"summaries={self.summaries}, calls={usage.calls}, prompt_tokens={usage.prompt_tokens}, "
            f"completion_tokens={usage.completion_tokens}, run_id={self.run_id!r})"
        )

    def _repr_html_(self) -> str:
        usage = self.usage
        answer = self.answer if self.answer is not None else f"no answer: {self.detail}"
        answer += " (cut off)" if self.truncated else ""
        facts = (
            f"{self.stop_reason.value} · {self.steps:,} steps · {self.summaries:,} summaries · {usage.calls:,} calls · "
            f"{usage.prompt_tokens:,} prompt + {usage.completion_tokens:,} completion tokens · run {self.run_id}"
        )
        return (
            f"<div><p><b>{escape(self.task)}</b></p><p>{escape(answer)}</p>"
            f"<small>{escape(facts)}</small></div>"
        )


@dataclass(frozen=True)
class Estimate:
    """What a reading will cost, known before any call. Retries come on top."""

    chunks: int
    document_tokens: int
    """Tokens of all chunks together."""
    calls_min: int
    """Equal to `calls_max` unless the exit gate is open: then one chunk may settle a question."""
    calls_max: int
    prompt_tokens: int
    """Upper bound on the prompt tokens of all calls."""
    completion_tokens: int
    """Upper bound on the generated tokens of all calls."""
    window: int
    """Tokens of the window that the calls stay within."""
    counter: str
    """Name of the token counter; `utf8-bytes` overstates tokens about four times."""

    def __repr__(self) -> str:
        calls = (
            f"{self.calls_max:,}"
            if self.calls_min == self.calls_max
            else f"{self.calls_min:,} to {self.calls_max:,}"
        )
        return (
            f"Estimate({calls} calls over {self.chunks:,} chunks, at most {self.prompt_tokens:,} prompt and "
            f"{self.completion_tokens:,} completion tokens, window {self.window:,}, counted by {self.counter})"
        )
