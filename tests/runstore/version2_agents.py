"""The agents of the runs that version 2 began (tests/data/version2)."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import Any

from tests.runstore.version2 import DATA, Finished
from tests.session.adding import StrictModel, adder, adding_tools, as_text

from memagent import ChatRequest, MemoryAgent, RunStore, ScriptedModel, ToolAgent, ToolCall
from memagent.models.scripted import Reply
from memagent.prompts import PromptSet
from memagent.prompts.session import SessionPrompts
from memagent.run.result import Result, SessionResult
from memagent.tools import Tool, tool

TEXT = "".join(
    f"Line {n} tells of <section> {n * n % 997}, слово, 🙂 and </memory>.\n" for n in range(24)
)
"""What the memory runs read. Every chunk holds look-alikes of the prompt's tags."""
QUESTIONS = {"one": ["What is told?"], "three": ["What is told?", "Who tells it?", "Why?"]}
"""By the first part of the run's id."""
TASK = "Add up the items."
ITEMS = 14
MUCH: dict[str, Any] = {"max_steps": 1000, "max_summaries": 1000}

# --- memory runs


def digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def noting(request: ChatRequest) -> str:
    """Notes what the prompt shows. In runs with gates some chunks add nothing, and one settles the second question."""
    parts = request.parts
    noted = digest(parts["question"], parts["memory"], parts.get("chunk", ""))
    if request.kind == "answer":
        return f"Answer {noted}."
    if "keep" in parts and int(noted[0], 16) % 3 == 0:
        return parts["keep"]
    if "[done]" in request.messages[-1].content and int(noted[:2], 16) % 40 == 1:
        return f"Settled {noted}.\n[done]"
    return f"Noted {noted}."


def wordy(request: ChatRequest) -> str:
    """Notes more than the memory holds."""
    said = noting(request)
    return said if request.kind == "answer" else " ".join([said] * 20)


def memory_agent(
    run: str,
    store: RunStore | Path,
    replies: Callable[[ChatRequest], Any] | None = None,
    **settings: Any,
) -> MemoryAgent:
    """The agent of a memory run.

    Args:
        run: its id.
        store: where it is.
        replies: of the model; by default those with which the run is finished.
        settings: others than the run's.
    """
    if "gate" not in settings:
        settings["gate"] = "both" if "gates" in run else "off"
    replies = replies or (wordy if "wordy" in run else noting)
    return MemoryAgent(
        ScriptedModel(replies, window=760),
        prompts=PromptSet.parse((DATA / "plain.toml").read_bytes()),
        chunk_tokens=250,
        memory_tokens=100,
        degenerate="take",  # as version 2 did
        store=store,
        **settings,
    )


# --- tool sessions


class Notes:
    """What `note` kept, in this process."""

    def __init__(self) -> None:
        self.items = [0]

    def last(self) -> int:
        return self.items[-1]


def say(text: str) -> str:
    """Says the answer."""
    return f"It is said: {text}"


def finals(request: ChatRequest) -> Reply:
    """Answers by a tool."""
    return ToolCall(id="f1", name="say", arguments='{"text": "all of it"}')


def staring(request: ChatRequest) -> Reply:
    """Looks at the first item again and again, and then adds up."""
    looked = sum(message.role == "assistant" for message in request.messages)
    is_begun = "total through" in request.messages[1].content
    if request.kind == "act" and looked < 36 and not is_begun:
        return ToolCall(id=f"l{looked}", name="look", arguments='{"item": 1}')
    return adder(30)(request)


def tool_agent(
    run: str,
    store: RunStore | Path,
    replies: Callable[[ChatRequest], Any] | None = None,
    *,
    note: Callable[[int], object] | None = None,
    **settings: Any,
) -> ToolAgent:
    """The agent of a tool session.

    Args:
        run: its id.
        store: where it is.
        replies: of the model; by default those with which the run is finished.
        note: what the tool does.
        settings: others than the run's.
    """
    replies = replies or (
        finals
        if "final" in run
        else staring
        if "stale" in run
        else adder(30 if "roomy" in run else ITEMS)
    )
    is_text, notes = "text" in run, Notes()

    async def reply(request: ChatRequest) -> Reply:
        said = replies(request)
        said = await said if isawaitable(said) else said
        return as_text(lambda _: said)(request) if is_text and isinstance(said, tuple) else said

    tools: list[Tool] = adding_tools(
        note=note or notes.items.append, noted=notes.last, idempotent="once" not in run
    )
    if "final" in run:
        tools.append(replace(tool(say), final=True))
    return ToolAgent(
        StrictModel(reply, window=12_000),
        tools,
        working_context=12_000 if "roomy" in run or "final" in run else 4_400 if is_text else 6_000,
        protocol="text" if is_text else "native",
        early=0.6 if "early" in run else None,
        prompts=SessionPrompts.parse((DATA / "session.toml").read_bytes()),
        store=store,
        **{**MUCH, **settings},
    )


def finish(case: Finished, store: RunStore | Path) -> Sequence[Result | SessionResult]:
    """Finishes a run as version 2 did, or hands out what came of it: one result a question."""
    if case.agent == "tools":
        return [tool_agent(case.run, store).run(TASK, run_id=case.run)]
    questions = QUESTIONS[case.run.split("-")[0]]
    return memory_agent(case.run, store).ask_many(TEXT, questions, run_id=case.run)
