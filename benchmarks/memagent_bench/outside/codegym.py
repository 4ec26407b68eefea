"""CodeGym: tool games made from coding problems. Each brings its own code, which runs in a sandbox.

Reads the files of the hub's copy (`task_*/` and `envs_*/`, parquet or JSON lines): a task has an `ability`
`codegym_v1@SOURCE__CLASS@PARAMETERS`, a prompt, and the code of its environment in `extra_info.gym_env`, or else in a
row of `envs_*` or a file `SOURCE__CLASS.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from memagent.errors import ToolError
from memagent.messages import ToolSpec
from memagent.texts import clip, describe_problem, quote
from memagent.threads import in_own_thread
from memagent.tools import Tool
from memagent_bench.games.transcript import call
from memagent_bench.outside.base import BadData, Solution, TaskEnvironment
from memagent_bench.outside.rows import SUFFIXES, find_files, read_rows
from memagent_bench.outside.sandbox import Limits, Sandbox, SandboxEnded

PREFIX = "codegym_v1@"
CODE = 1 << 20
"""Maximum bytes of an environment's code: the largest of the hub's copy has 31,500."""
MARK = "<|FunctionCall"
"""Marks the lines of a prompt that explain CodeGym's call format. memagent explains its own."""
PLAYER = Path(__file__).with_name("codegym_player.py")
DONE = "Done"
LIMITS = Limits()
TYPES = {
    "bool": "boolean",
    "dict": "object",
    "float": "number",
    "int": "integer",
    "list": "array",
    "str": "string",
}
"""Python's type names -> JSON schema's; other types accept anything."""


class Extra(BaseModel):
    """Fields of a task beside its prompt."""

    gym_env: str | None = None


class PromptMessage(BaseModel):
    """A message of the prompt."""

    role: str
    content: str


class TaskRow(BaseModel):
    """A task, as in the data."""

    ability: str = Field(pattern=rf"(?s)^{PREFIX}[^@]+@.*$")
    prompt: tuple[PromptMessage, ...]
    extra_info: Extra = Extra()

    @field_validator("extra_info", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value


class CodeRow(BaseModel):
    """An environment, as in the data."""

    env_code: str
    env_name: str
    source: str


class Parameter(BaseModel):
    """A parameter of a tool."""

    name: str
    type: str = ""
    needed: bool = True


class Offer(BaseModel):
    """A tool, as the environment describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    about: str = ""
    parameters: tuple[Parameter, ...] = ()

    def spec(self) -> ToolSpec:
        """Converts the tool to a `ToolSpec`."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {p.name: _schema(p.type) for p in self.parameters},
            "required": [p.name for p in self.parameters if p.needed],
        }
        return ToolSpec(name=self.name, description=self.about, parameters=schema)


class Offers(BaseModel):
    """All tools of an environment."""

    tools: tuple[Offer, ...]


@dataclass(frozen=True)
class CodeGym:
    """The suite."""

    name: str = "codegym"
    licence: str = "CodeGym is licensed CC BY-NC 4.0 (creativecommons.org/licenses/by-nc/4.0): no commercial use"
    runs_code: bool = True

    def files(self, data: Path) -> list[Path]:
        """See `Suite.files`."""
        return find_files(data, (*SUFFIXES, ".py"), "tasks of CodeGym")

    def tasks(self, data: Path) -> Iterator[CodeGymTask]:
        """See `Suite.tasks`."""
        codes = Codes(data)
        count = 0
        for path in find_files(data, SUFFIXES, "tasks of CodeGym"):
            for row in read_rows(path):
                if "env_code" in row.fields:
                    break  # a file of environments
                task = row.read(TaskRow)
                key = task.ability.removeprefix(PREFIX).split("@", 1)[0]
                yield CodeGymTask(f"{key}:{count}", row.where, task, codes)
                count += 1
        if not count:
            raise BadData(
                f"{str(data)!r} has environments and no tasks: fetch a folder task_* of CodeGym beside them"
            )


class Codes:
    """Environments whose code isn't in the task itself."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def find(self, key: str, where: str) -> tuple[str, str]:
        """Returns the location of an environment and its code.

        Raises:
            BadData: there is none.
        """
        folder = self._data if self._data.is_dir() else self._data.parent
        for path in folder.rglob(f"{key}.py"):
            if (size := path.stat().st_size) > CODE:
                raise BadData(
                    f"{str(path)!r} has {size:,} bytes, and an environment has at most {CODE:,}; fetch it again"
                )
            return repr(str(path)), path.read_text("utf-8", "replace")
        for path in find_files(self._data, SUFFIXES, "environments of CodeGym"):
            for row in read_rows(path):
                if "env_code" not in row.fields:
                    break
                code = row.read(CodeRow)
                if f"{code.source}__{code.env_name}" == key:
                    return row.where, code.env_code
        raise BadData(
            f"{where}: there is no environment {key!r}; fetch the folder envs_* of CodeGym into {str(folder)!r}"
        )


@dataclass(frozen=True)
class CodeGymTask:
    """A task."""

    id: str
    where: str
    row: TaskRow
    codes: Codes

    def open(self) -> CodeGymEnvironment:
        """See `Task.open`."""
        key, parameters = self.row.ability.removeprefix(PREFIX).split("@", 1)
        code = self.row.extra_info.gym_env
        where, code = (self.where, code) if code else self.codes.find(key, self.where)
        if len(code) > CODE:
            raise BadData(
                f"{where}: the environment's code has {len(code):,} characters, {CODE:,} at most"
            )
        name = key.rsplit("__", 1)[-1]
        start = {"code": code, "name": name, "parameters": f"{name}@{parameters}"}
        sandbox = Sandbox(PLAYER.read_text(), LIMITS, f"the environment {key!r} of {where}")
        try:
            offers = _read_offers(sandbox.ask(start), sandbox.what)
        except ToolError as error:
            sandbox.close()
            raise BadData(f"{error}; leave the task out") from error
        except BaseException:
            sandbox.close()
            raise
        prompt = "\n".join(message.content for message in self.row.prompt if message.role == "user")
        return CodeGymEnvironment(_task(prompt), offers, sandbox)


class CodeGymEnvironment(TaskEnvironment):
    """A task of CodeGym in progress."""

    def __init__(self, task: str, offers: Offers, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        super().__init__(task, tuple(self._offer(offer.spec()) for offer in offers.tools))

    def _offer(self, spec: ToolSpec) -> Tool:
        async def run(arguments: Mapping[str, Any]) -> str:
            return await in_own_thread(partial(self._call, spec.name, arguments))

        return Tool(spec, run, final=spec.name == DONE, timeout=2 * LIMITS.seconds)

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name != DONE or self.over:
            self.take_step()
        reply = self._sandbox.ask({"call": {"name": name, "parameters": arguments}})
        text = _text(reply, self._sandbox.what)
        if reply.get("finished") is True:
            self._score = float(reply.get("reward") == 1)
        elif name == DONE:
            raise ToolError(f"{text} (the task isn't over)")
        return text

    def _judge(self, answer: str) -> float:
        """Has the environment judge, which compares values with its own: a number must be submitted as one."""
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):
            value = answer.strip()
        try:
            self._call(DONE, {"answer": value})
        except SandboxEnded:
            raise
        except ToolError:
            return 0.0  # the answer can't be compared with the right one
        return self.verdict()

    def solve(self) -> Solution:
        """Returns the calls of the environment's own `solve` on a copy of it."""
        reply = self._sandbox.ask({"solve": True})
        try:
            calls = tuple(call(step["name"], **step["parameters"]) for step in reply["calls"])
        except (KeyError, TypeError) as error:
            raise BadData(f"{self._sandbox.what} has no solution: {_problem(reply)}") from error
        return Solution(calls, "")

    def close(self) -> None:
        """Ends the sandbox."""
        self._sandbox.close()


def _task(prompt: str) -> str:
    return "\n".join(line for line in prompt.splitlines() if MARK not in line).strip()


def _schema(kind: str) -> dict[str, str]:
    name = kind.strip().lower().partition("[")[0]
    return {"type": TYPES[name]} if name in TYPES else {}


def _read_offers(reply: dict[str, Any], what: str) -> Offers:
    try:
        offers = Offers.model_validate(reply)
    except ValidationError as error:
        problem = _problem(reply) if "problem" in reply else describe_problem(error)
        raise BadData(
            f"{what} does not start: {problem}; leave the task out, or fetch it again"
        ) from error
    if DONE not in {offer.name for offer in offers.tools}:
        raise BadData(f"{what} has no tool {DONE!r}, so it can't be answered; leave the task out")
    return offers


def _text(reply: dict[str, Any], what: str) -> str:
    text = reply.get("text")
    if not isinstance(text, str):
        raise ToolError(f"{what} failed: {_problem(reply)}")
    return text


def _problem(reply: Mapping[str, Any]) -> str:
    return clip(str(reply.get("problem", quote(reply))), 500)
