"""The agents that the contract is checked with."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tests.session.adding import PROMPTS, TASK, adder, adding_tools, as_text

from memagent import ChatRequest, MemoryAgent, RunStore, ScriptedModel, ToolAgent
from memagent.events import Event
from memagent.run.agent import Agent
from memagent.run.stream import EventStream

TEXT = "".join(f"Line {number} tells of the number {number * number}.\n" for number in range(90))
ITEMS = 7
Respond = Callable[[ChatRequest], Any]
OnEvent = Callable[[Event], None]


def hashing(request: ChatRequest) -> str:
    """A deterministic model whose reply depends on all it was shown, the seed too."""
    shown = "".join(message.content for message in request.messages) + str(request.seed)
    return f"{request.kind} {hashlib.sha256(shown.encode()).hexdigest()[:12]}."


class Told(BaseModel):
    """A row of the text."""

    line: int
    number: int


def list_lines(request: ChatRequest) -> str:
    """Writes every third line as a row; those of a number that ends in 4 are wrong until they are asked for again."""
    again = "did not follow the schema" in request.parts["memory"]
    found = re.findall(r"Line (\d+) tells of the number (\d+)", request.parts["chunk"])
    rows = [
        json.dumps({"line": int(line), "number": int(number) if again else f"{number}{'?' * bad}"})
        for line, number in found
        if int(line) % 3 == 0
        for bad in [number.endswith("4")]
    ]
    return "\n".join(rows) or "[]"


@cache
def parallel() -> Any:
    """The example of an agent of one's own."""
    path = Path(__file__).parents[2] / "examples" / "08_parallel_agent.py"
    spec = importlib.util.spec_from_file_location("parallel_agent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Job:
    """A kind of agent, and a job for it."""

    name: str
    respond: Respond
    """What its model says."""
    make: Callable[..., Agent]
    """Makes one over a model; options are those of every agent."""
    open: Callable[..., EventStream[Any]]
    """Begins the job: the agent, and `run_id`; `asked` is asked instead of the usual."""
    window: int
    run: Callable[..., Any] | None = None
    """Does the job for a sync caller: the agent, `run_id` and `on_event`."""
    again: str = "agent.resume('r')"
    """The call that resumes run `r`."""

    def agent(self, store: RunStore | None, respond: Respond | None = None, **options: Any) -> Any:
        """An agent over a scripted model."""
        model = ScriptedModel(respond or self.respond, window=self.window)
        return self.make(model, store=store, **options)


def read(agent: Any, run_id: str, asked: Any = "Which number?") -> EventStream[Any]:
    return agent.stream(TEXT, asked, run_id=run_id)


def read_many(agent: Any, run_id: str, asked: Any = "Which number?") -> EventStream[Any]:
    return agent.stream(TEXT, [asked, "Which line?", "And why?"], run_id=run_id)


def work(agent: Any, run_id: str, asked: Any = TASK) -> EventStream[Any]:
    return agent.stream(asked, run_id=run_id)


def list_rows(agent: Any, run_id: str, asked: Any = "every third line") -> EventStream[Any]:
    return agent.extract_stream(TEXT, Told, asked, run_id=run_id)


def extract(agent: MemoryAgent, run_id: str, on_event: OnEvent) -> Any:
    return agent.extract(TEXT, Told, "every third line", run_id=run_id, on_event=on_event)


def ask(agent: MemoryAgent, run_id: str, on_event: OnEvent) -> Any:
    return agent.ask(TEXT, "Which number?", run_id=run_id, on_event=on_event)


def ask_many(agent: MemoryAgent, run_id: str, on_event: OnEvent) -> Any:
    questions = ["Which number?", "Which line?", "And why?"]
    return agent.ask_many(TEXT, questions, run_id=run_id, on_event=on_event)


def run_task(agent: ToolAgent, run_id: str, on_event: OnEvent) -> Any:
    return agent.run(TASK, run_id=run_id, on_event=on_event)


def tools(protocol: str) -> Callable[..., ToolAgent]:
    def make(model: ScriptedModel, **options: Any) -> ToolAgent:
        settings = {"max_summaries": 50, "prompts": PROMPTS, "protocol": protocol}
        return ToolAgent(model, adding_tools(), **(settings | options))

    return make


def parallel_agent(model: ScriptedModel, **options: Any) -> Agent:
    sizes = {"memory_tokens": 150, "chunk_tokens": 620}
    return parallel().ParallelAgent(model, **(sizes | options))


AGENTS = (
    Job("memory", hashing, MemoryAgent, read, 2048, ask, "agent.resume('r', document)"),
    Job(
        "memory-many",
        hashing,
        MemoryAgent,
        read_many,
        2048,
        ask_many,
        "agent.resume('r', document)",
    ),
    Job(
        "extract",
        list_lines,
        MemoryAgent,
        list_rows,
        2600,
        extract,
        "agent.extract(..., run_id='r')",
    ),
    Job("tools-native", adder(ITEMS), tools("native"), work, 6400, run_task),
    Job("tools-text", as_text(adder(ITEMS)), tools("text"), work, 5200, run_task),
    Job("own", hashing, parallel_agent, read, 2048),
)
