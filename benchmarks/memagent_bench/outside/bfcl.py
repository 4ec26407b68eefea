"""BFCL v4, multi-turn: a user asks several things in a row, and tools change the state of small programs.

Reads a folder with the package `bfcl-eval`, which has questions, tools and checker: `pip install --no-deps
--target DIR bfcl-eval mpmath`. Its own pins don't matter then, since the multi-turn part imports nothing else. Its code
runs in a sandbox. In the category miss_func some tools come only with a later message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from memagent.errors import ConfigError, ToolError
from memagent.messages import ToolSpec
from memagent.texts import clip, describe_problem
from memagent.threads import in_own_thread
from memagent.tools import Tool
from memagent_bench.outside.base import BadData, Solution, TaskEnvironment
from memagent_bench.outside.rows import find_files, read_rows
from memagent_bench.outside.sandbox import MIB, Limits, Sandbox

PLAYER = Path(__file__).with_name("bfcl_player.py")
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
LIMITS = Limits(seconds=30, message=8 * MIB)
"""Limits of the sandbox: long contexts are files of some hundred kilobytes."""
TYPES = {"dict": "object", "float": "number", "tuple": "array"}
"""BFCL's type names -> JSON schema's."""


class QuestionMessage(BaseModel):
    """A message of the user."""

    content: str


class Entry(BaseModel):
    """A row of the questions."""

    id: str
    question: tuple[tuple[QuestionMessage, ...], ...] = Field(min_length=1)
    involved_classes: tuple[str, ...]
    missed_function: dict[int, tuple[str, ...]] = {}
    """Message index -> names of the tools that come with it. The field's name is BFCL's own."""


class Doc(BaseModel):
    """A tool, as BFCL describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str
    parameters: dict[str, Any]


class Docs(BaseModel):
    """The tools of a task."""

    tools: tuple[Doc, ...] = Field(min_length=1)
    added: str = ""
    """What the user says when tools are added."""


@dataclass(frozen=True)
class Bfcl:
    """The suite."""

    name: str = "bfcl"
    licence: str = ""
    runs_code: bool = True

    def files(self, data: Path) -> list[Path]:
        """See `Suite.files`: the whole package, since its code is the judge."""
        return find_files(data / "bfcl_eval", (".json", ".py"), "BFCL")

    def tasks(self, data: Path) -> Iterator[BfclTask]:
        """See `Suite.tasks`."""
        files = [data / f"bfcl_eval/data/BFCL_v4_multi_turn_{name}.json" for name in CATEGORIES]
        if not any(file.is_file() for file in files):
            raise BadData(
                f"{str(data)!r} has no bfcl_eval with BFCL v4: pip install --no-deps --target {data} bfcl-eval mpmath"
            )
        for file in filter(Path.is_file, files):
            for row in read_rows(file):
                yield BfclTask(row.where, row.read(Entry), file.name, data)


@dataclass(frozen=True)
class BfclTask:
    """A conversation."""

    where: str
    entry: Entry
    file: str
    data: Path

    @property
    def id(self) -> str:
        """Id of the entry."""
        return self.entry.id

    def open(self) -> BfclEnvironment:
        """See `Task.open`."""
        folder = self.data.resolve()
        what = f"the task {self.id!r} of {self.where}"
        sandbox = Sandbox(PLAYER.read_text(), LIMITS, what, read=(folder,))
        reply: dict[str, Any] = {}
        try:
            reply = sandbox.ask({"folder": str(folder), "file": self.file, "id": self.id})
            docs = Docs.model_validate(reply)
        except (ToolError, ValidationError) as error:
            sandbox.close()
            problem = describe_problem(error) if isinstance(error, ValidationError) else str(error)
            raise BadData(
                f"{what} does not start: {reply.get('problem', problem)}; install bfcl-eval and mpmath anew, where "
                f"others may read them too"
            ) from error
        except BaseException:
            sandbox.close()
            raise
        return BfclEnvironment(self.entry, docs, sandbox)


class BfclEnvironment(TaskEnvironment):
    """A conversation in progress."""

    def __init__(self, entry: Entry, docs: Docs, sandbox: Sandbox) -> None:
        self._asked = ["\n".join(message.content for message in turn) for turn in entry.question]
        self._docs, self._missed, self._sandbox, self._turn = docs, entry.missed_function, sandbox, 0  # fmt: skip
        super().__init__(self._asked[0], self._offer_all())

    def _offer_all(self) -> tuple[Tool, ...]:
        missing = {name for n, names in self._missed.items() if n > self._turn for name in names}
        return tuple(self._offer(doc) for doc in self._docs.tools if doc.name not in missing)

    def _offer(self, doc: Doc) -> Tool:
        spec = ToolSpec(
            name=doc.name, description=doc.description, parameters=_schema(doc.parameters)
        )

        async def run(arguments: Mapping[str, Any]) -> str:
            return await in_own_thread(partial(self._call, doc.name, arguments))

        return Tool(spec, run, timeout=2 * LIMITS.seconds)

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.take_step()
        reply = self._sandbox.ask({"call": name, "arguments": arguments, "turn": self._turn})
        if not isinstance(text := reply.get("text"), str):
            raise ToolError(f"{self._sandbox.what} failed: {clip(str(reply), 500)}")
        return text

    def follow(self) -> str | None:
        """Returns what the user says next, when `tools` may change; None after the last turn. Doesn't block."""
        self._turn += 1
        if self._turn == len(self._asked):
            return None
        if self._turn not in self._missed:
            return self._asked[self._turn]
        self.tools = self._offer_all()
        return self._asked[self._turn] or self._docs.added

    def _judge(self, answer: str) -> float:
        """Runs BFCL's own checker: states and results after each turn. The words of an answer don't count."""
        reply = self._sandbox.ask({"check": True})
        if not isinstance(valid := reply.get("valid"), bool):
            raise ToolError(f"{self._sandbox.what} cannot be checked: {clip(str(reply), 500)}")
        return float(valid)

    def solve(self) -> Solution:
        """Raises ConfigError: no reference solution plays several turns."""
        raise ConfigError(
            "bfcl has no reference player: name a model (--player model --model SPEC)"
        )

    def close(self) -> None:
        """Ends the sandbox."""
        self._sandbox.close()


def _schema(value: Any) -> Any:
    """Converts a schema to JSON schema's type names, at any depth."""
    if isinstance(value, list):
        return [_schema(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    schema: dict[str, Any] = {key: _schema(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = TYPES.get(kind, kind)
        if kind == "any":
            del schema["type"]
    return json.loads(json.dumps(schema))
