"""Repair: locate an issue in a small repository, fix it and test the fix, as Agentless divides the work.

Reads a file of JSON lines or parquet in SWE-bench's form: `instance_id`, `problem_statement`, `repo` (a folder
beside the file), `FAIL_TO_PASS`, `PASS_TO_PASS` (ids of pytest), and if present `test_patch` and `patch` (unified
diffs). The repository's tests are foreign code: pytest runs in a sandbox, started by the process pool, so at most one
for each core.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from pydantic import BaseModel, Field, field_validator

from memagent.errors import ToolError
from memagent.threads import in_own_thread
from memagent.tools import Tool, tool
from memagent.tools.processes import ProcessCall, place_of, tool_pool
from memagent_bench.games.transcript import Call, call
from memagent_bench.outside.base import BadData, Solution, TaskEnvironment
from memagent_bench.outside.patches import Edit, apply_edit, apply_patch
from memagent_bench.outside.rows import SUFFIXES, find_files, read_rows
from memagent_bench.outside.sandbox import MIB, Limits, Sandbox, SandboxEnded

TESTER = Path(__file__).with_name("repair_tester.py")
LIMITS = Limits(seconds=120, cpu=120, memory=1024 * MIB, processes=32, scratch=256 * MIB, message=64 * MIB)  # fmt: skip
FILES, BYTES = 5_000, 32 * MIB
"""Maximum files of a repository, and maximum bytes in total: it is sent to the sandbox as one request."""
LINES, MATCHES, OUTPUT = 400, 50, 6_000
"""Lines of a file and matches shown by one call, and characters of pytest's output."""
ASK = """Fix this issue in a Python repository:

{problem}

First find the code that has to change (`list_files`, `find`, `read_file`), then change it (`edit`), then check with \
`run_tests` that nothing else broke. Hidden tests decide. Reply "done" when you have finished."""


class Instance(BaseModel):
    """A row of the data."""

    instance_id: str
    problem_statement: str
    repo: str
    FAIL_TO_PASS: tuple[str, ...] = Field(min_length=1)
    PASS_TO_PASS: tuple[str, ...] = ()
    test_patch: str = ""
    patch: str = ""

    @field_validator("FAIL_TO_PASS", "PASS_TO_PASS", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value


class PytestOutcome(TypedDict):
    """The result of a pytest run."""

    passed: list[str]
    """Ids of the tests that passed."""
    output: str
    """Last characters of its output."""


@dataclass(frozen=True)
class Repair:
    """The suite."""

    name: str = "repair"
    licence: str = ""
    runs_code: bool = True

    def files(self, data: Path) -> list[Path]:
        """See `Suite.files`."""
        folder = data if data.is_dir() else data.parent
        # Repositories have files of their own.
        paths = [path for path in find_files(data, SUFFIXES, "instances") if path.parent == folder]
        if not paths:
            raise BadData(
                f"{str(data)!r} has its JSON lines in a folder below: give that folder (--data)"
            )
        return paths

    def tasks(self, data: Path) -> Iterator[RepairTask]:
        """See `Suite.tasks`."""
        folder = data if data.is_dir() else data.parent
        for path in self.files(data):
            for row in read_rows(path):
                yield RepairTask(row.where, row.read(Instance), folder)


@dataclass(frozen=True)
class RepairTask:
    """An issue."""

    where: str
    instance: Instance
    folder: Path

    @property
    def id(self) -> str:
        """Id of the instance."""
        return self.instance.instance_id

    def open(self) -> RepairEnvironment:
        """See `Task.open`."""
        root = (self.folder / self.instance.repo).resolve()
        if not root.is_relative_to(self.folder.resolve()) or not root.is_dir():
            raise BadData(
                f"{self.where}: there is no folder {self.instance.repo!r} in {str(self.folder)!r}"
            )
        files = _read_files(root, self.where)
        hidden, _ = apply_patch(files, self.instance.test_patch, self.where, "test_patch")
        return RepairEnvironment(self.where, self.instance, files, hidden)


class RepairEnvironment(TaskEnvironment):
    """An issue in progress. The repository is a mapping in memory; nothing is written to disk."""

    def __init__(
        self, where: str, instance: Instance, files: Mapping[str, str], hidden: Mapping[str, str]
    ) -> None:
        super().__init__(ASK.format(problem=instance.problem_statement), tuple(self._offers()))
        self._where, self._instance, self._files = where, instance, dict(files)
        changed = {path for path, text in hidden.items() if files.get(path) != text}
        named = {
            test.partition("::")[0] for test in (*instance.FAIL_TO_PASS, *instance.PASS_TO_PASS)
        }
        self._tests = {path: hidden[path] for path in (changed | named) & hidden.keys()}
        """Files of the deciding tests, which can't be edited."""

    def _offers(self) -> Iterator[Tool]:
        async def list_files(folder: str = "") -> str:
            """Lists the files of a folder and those below it; all by default."""
            return self._list(folder)

        async def find(text: str) -> str:
            """Finds the lines that contain a text."""
            return self._find(text)

        async def read_file(path: str, first: int = 1) -> str:
            """Shows up to 400 lines of a file, numbered.

            Args:
                path: the file.
                first: number of the first line.
            """
            return self._read(path, first)

        async def edit(path: str, search: str, replace: str) -> str:
            """Replaces a text that occurs exactly once in a file; an empty `search` makes a new file."""
            return self._edit(Edit(path, search, replace))

        async def run_tests() -> str:
            """Runs the repository's own tests."""
            self.take_step()
            visible = [
                test
                for test in self._instance.PASS_TO_PASS
                if test.partition("::")[0] in self._files
            ]
            tested = await in_own_thread(partial(_run, self._files, visible))
            return tested["output"]

        for function in (list_files, find, read_file):
            yield tool(function, read_only=True)
        yield tool(edit)
        yield tool(run_tests, idempotent=True, timeout=2 * LIMITS.seconds)

    def _list(self, folder: str) -> str:
        self.take_step()
        inside = f"{folder.strip('./')}/" if folder.strip("./") else ""
        return (
            "\n".join(sorted(path for path in self._files if path.startswith(inside))) or "(none)"
        )

    def _find(self, text: str) -> str:
        self.take_step()
        lines = [
            f"{path}:{number}: {line[:300]}"
            for path, content in sorted(self._files.items())
            if text in content
            for number, line in enumerate(content.splitlines(), 1)
            if text in line
        ]
        more = f"\n[{len(lines) - MATCHES} more]" if len(lines) > MATCHES else ""
        return "\n".join(lines[:MATCHES]) + more or "(nothing found)"

    def _read(self, path: str, first: int) -> str:
        self.take_step()
        if path not in self._files:
            raise ToolError(f"there is no file {path!r}; list_files shows them")
        lines = self._files[path].splitlines()
        page = [f"{n}: {line}" for n, line in enumerate(lines, 1) if first <= n < first + LINES]
        more = len(lines) - first - LINES + 1
        return "\n".join(page) + (f"\n[{more} more lines]" if more > 0 else "") or "(empty)"

    def _edit(self, edit: Edit) -> str:
        self.take_step()
        place = PurePosixPath(edit.path)
        if place.is_absolute() or ".." in place.parts:
            raise ToolError(f"{edit.path!r} is outside of the repository")
        if edit.path in self._tests or place.name == "conftest.py":
            raise ToolError(f"{edit.path!r} decides, and can't be edited")
        if sum(map(len, self._files.values())) + len(edit.replace) > BYTES:
            raise ToolError(f"the repository would have more than {BYTES:,} bytes")
        try:
            self._files = apply_edit(self._files, edit)
        except ValueError as error:
            raise ToolError(str(error)) from error
        return f"changed {edit.path}"

    def _judge(self, answer: str) -> float:
        """Returns 1 if all required tests pass, whatever the answer says."""
        wanted = [*self._instance.FAIL_TO_PASS, *self._instance.PASS_TO_PASS]
        tested = _run({**self._files, **self._tests}, wanted)
        return float({*wanted} <= {*tested["passed"]})

    def solve(self) -> Solution:
        """Reads what the reference patch changes, applies it, and runs the tests."""
        _, edits = apply_patch(self._files, self._instance.patch, self._where, "patch")
        if not edits:
            raise BadData(
                f"{self._where} has no patch, so there is no reference solution: use --player model"
            )
        calls = list[Call]()
        for path in dict.fromkeys(edit.path for edit in edits if edit.search):
            calls.append(call("read_file", path=path))
        calls += [call("edit", path=e.path, search=e.search, replace=e.replace) for e in edits]
        return Solution((*calls, call("run_tests")), "done")


def run_pytest(files: dict[str, str], tests: list[str]) -> PytestOutcome:
    """Runs a repository's tests in a sandbox; none passes if they take too long. Blocks; keeps a core busy.

    Args:
        files: texts by path.
        tests: pytest ids.

    Raises:
        ToolError: the repository is too large, or pytest gave no result.
        NoSandbox: there is no sandbox.
    """
    sandbox = Sandbox(TESTER.read_text(), LIMITS, "pytest")
    try:
        reply = sandbox.ask({"files": files, "tests": tests, "output": OUTPUT})
    except SandboxEnded as error:  # not the judge's error: the edits caused it
        return PytestOutcome(passed=[], output=str(error))
    finally:
        sandbox.close()
    passed, output = reply.get("passed"), reply.get("output")
    if not isinstance(passed, list) or not isinstance(output, str):
        raise ToolError("pytest gave no result")
    return PytestOutcome(passed=[str(test) for test in passed], output=output)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _run(files: Mapping[str, str], tests: list[str]) -> PytestOutcome:
    place = place_of(run_pytest)
    request = ProcessCall(place, {"files": dict(files), "tests": tests}, limit=2 * LIMITS.seconds)
    try:
        return json.loads(tool_pool.run_sync(request))
    except TimeoutError as error:
        raise ToolError(str(error)) from error


def _read_files(root: Path, where: str) -> dict[str, str]:
    """Reads the texts of a folder, without links, hidden folders and files that aren't UTF-8."""
    files, size = dict[str, str](), 0
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_symlink() or not path.is_file() or any(p.startswith(".") for p in name.parts):
            continue
        size += path.stat().st_size
        if size > BYTES or len(files) == FILES:
            raise BadData(
                f"{where}: the repository {str(root)!r} has more than {FILES:,} files or {BYTES:,} bytes; take a "
                f"smaller part of it"
            )
        try:
            files[name.as_posix()] = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
    return files
