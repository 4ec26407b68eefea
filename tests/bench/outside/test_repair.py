"""Repair: small repositories are read, changed and tested; pytest runs in a sandbox and can't be cheated easily."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.outside.cages import Open
from tests.bench.outside.repositories import FAULTY, TESTS, diff, instance, make
from typer.testing import Result

from memagent.messages import ToolCall
from memagent.tools import Toolset
from memagent_bench.outside import repair
from memagent_bench.outside.base import BadData
from memagent_bench.outside.patches import Edit, apply_edit, apply_patch, edits_of
from memagent_bench.outside.repair import Repair, RepairEnvironment, run_pytest
from memagent_bench.sessions.record import read_sessions


@pytest.fixture(autouse=True)
def sandboxes(sandbox: Open) -> None:
    """Skips where there are none."""
    sandbox("")


def opened(folder: Path, **more: Any) -> RepairEnvironment:
    (task,) = Repair().tasks(make(folder, **more))
    return task.open()


async def call(environment: RepairEnvironment, name: str, **arguments: Any) -> str:
    made = ToolCall(id="1", name=name, arguments=json.dumps(arguments))
    return (await Toolset(environment.tools).run(made)).text


async def test_an_issue_is_found_fixed_and_tested(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    assert "total() forgets the first price." in environment.task
    listed = await call(environment, "list_files")
    assert listed.split() == ["shop/__init__.py", "shop/prices.py", TESTS]
    assert await call(environment, "list_files", folder="./tests/") == TESTS
    assert await call(environment, "find", text="[1:]") == "shop/prices.py:7:     for price in prices[1:]:"  # fmt: skip
    assert await call(environment, "find", text="nowhere") == "(nothing found)"
    assert (await call(environment, "read_file", path="shop/prices.py", first=13)).startswith(
        "13: "
    )
    assert "1 passed" in await call(environment, "run_tests")
    wrong = await call(environment, "edit", path="shop/prices.py", search="prices", replace="x")
    assert "occurs 5 times in shop/prices.py" in wrong
    done = await call(environment, "edit", path="shop/prices.py", search="prices[1:]", replace="prices")  # fmt: skip
    assert done == "changed shop/prices.py"
    assert (environment.steps, environment.verdict()) == (8, 0)
    assert await asyncio.to_thread(environment.finish, "done")
    assert environment.verdict() == 1
    assert (tmp_path / "shop-1/shop/prices.py").read_text() == FAULTY


def test_what_is_not_fixed_does_not_pass(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    assert environment.finish("done") is False
    assert (environment.over, environment.verdict()) == (True, 0)


async def test_what_breaks_another_test_does_not_pass(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    broken = "prices[1:]:\n        pass\n    for price in prices or [9]"
    await call(environment, "edit", path="shop/prices.py", search="prices[1:]", replace=broken)
    assert "1 failed" in await call(environment, "run_tests")
    assert await asyncio.to_thread(environment.finish, "done") is False


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (TESTS, "decides, and can't be edited"),
        ("conftest.py", "decides, and can't be edited"),
        ("tests/conftest.py", "decides, and can't be edited"),
        ("../x.py", "is outside of the repository"),
        ("/x.py", "is outside of the repository"),
        ("shop/prices.py", "exists; give the text to replace"),
    ],
)
async def test_what_may_not_be_edited(tmp_path: Path, path: str, message: str) -> None:
    environment = opened(tmp_path)
    assert message in await call(environment, "edit", path=path, search="", replace="x")


async def test_new_files_and_their_size(tmp_path: Path) -> None:
    environment = opened(tmp_path)
    assert await call(environment, "edit", path="a/b.py", search="", replace="y = 1\n") == "changed a/b.py"  # fmt: skip
    assert await call(environment, "read_file", path="a/b.py") == "1: y = 1"
    huge = "x" * (33 << 20)
    assert "33,554,432 bytes" in await call(environment, "edit", path="c", search="", replace=huge)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("while True: os.fork()", "BlockingIOError"),
        ("open('/escaped', 'w')", "Read-only file system"),
        ("import socket; socket.create_connection(('1.1.1.1', 53))", "unreachable"),
        ("bytearray(1 << 40)", "MemoryError"),
        ("print('x' * 50_000_000); assert False", "xxx"),
    ],
)
def test_tests_that_misbehave_fail(body: str, told: str) -> None:
    source = f"import os\ndef test_it():\n    {body}\n"
    tested = run_pytest({"test_it.py": source}, ["test_it.py::test_it"])
    assert tested["passed"] == []
    assert told in tested["output"]
    assert len(tested["output"]) <= repair.OUTPUT


def test_a_change_that_hangs_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is wrong, and no error that nobody can be blamed for, after which a session is played again."""
    monkeypatch.setattr(repair, "LIMITS", repair.Limits(seconds=3))
    hangs = {"test_it.py": "def test_it():\n    while True: pass\n"}
    told = {"passed": [], "output": "pytest took longer than 3 seconds and was ended"}
    assert run_pytest(hangs, []) == told
    monkeypatch.setattr(repair, "_run", lambda files, tests: run_pytest(hangs, []))
    assert opened(tmp_path).finish("done") is False


def test_what_cannot_be_collected_fails() -> None:
    assert "SyntaxError" in run_pytest({"test_it.py": "x = ("}, [])["output"]
    assert run_pytest({}, ["nowhere.py::test_it"])["passed"] == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"repo": "gone"}, "line 1: there is no folder 'gone'"),
        ({"repo": "../.."}, r"there is no folder '\.\./\.\.'"),
        ({"test_patch": "nonsense"}, "line 1: the patch isn't a unified diff"),
        ({"test_patch": diff("gone.py", "a\n", "b\n")}, "does not fit .* no file gone.py"),
        ({"test_patch": diff(TESTS, "a\n" * 9, "b\n")[:-5]}, "cut off"),
        ({"FAIL_TO_PASS": "["}, "line 1: FAIL_TO_PASS"),
        ({"FAIL_TO_PASS": []}, "line 1: FAIL_TO_PASS"),
        ({"problem_statement": None}, "line 1: problem_statement"),
    ],
)
def test_damaged_data_are_named(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(BadData, match=message) as error:
        opened(tmp_path, **more)
    assert "instances.jsonl" in str(error.value)


def test_a_repository_of_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    make(tmp_path)
    with (tmp_path / "shop-1/big.txt").open("wb") as file:
        file.truncate(1 << 30)
    (task,) = Repair().tasks(tmp_path)
    with pytest.raises(BadData, match="more than 5,000 files or 33,554,432 bytes"):
        task.open()


def test_no_patch_no_reference_solution(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"line 1 has no patch, .* --player model"):
        opened(tmp_path, patch="").solve()


def test_patches() -> None:
    old = "".join(f"line {n}\n" for n in range(40))
    new = old.replace("line 3\n", "").replace("line 30\n", "line 30\nmore\n")
    files = {"a.py": old}
    made = [*edits_of(diff("a.py", old, new) + diff("b.py", "", "new\n"), "x")]
    assert [edit.path for edit in made] == ["a.py", "a.py", "b.py"]
    for edit in made:
        files = apply_edit(files, edit)
    assert files == {"a.py": new, "b.py": "new\n"}
    assert list(edits_of("", "x")) == []
    with pytest.raises(BadData, match=r"deletes 'a.py'"):
        list(edits_of("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "x"))
    with pytest.raises(ValueError, match="occurs 0 times"):
        apply_edit(files, Edit("a.py", "nothing", ""))
    with pytest.raises(ValueError, match="occurs 2 times"):
        apply_edit({"a.py": "x\n" * 3}, Edit("a.py", "x\nx\n", ""))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("x\n" * 9, "x\n" * 4 + "y\n" + "x\n" * 5, id="the same lines around it"),
        pytest.param("x\n" * 20, "y\n" + "x\n" * 18 + "y\n", id="two places"),
        pytest.param("x\ny", "x\nz", id="no line end"),
        pytest.param("x\ny", "x\ny\n", id="a line end added"),
        pytest.param("x\ny\n", "x\ny", id="a line end removed"),
        pytest.param("x\n\f\nx\ny\n", "x\n\f\nx\nz\n", id="a form feed"),
        pytest.param("x\n", "x\ny\n", id="at the end"),
    ],
)
def test_patches_are_applied_where_they_say(old: str, new: str) -> None:
    files = {"my dir/a.py": old}
    after, edits = apply_patch(files, diff("my dir/a.py", old, new), "x", "patch")
    assert after == {"my dir/a.py": new}
    for edit in edits:
        files = apply_edit(files, Edit(edit.path, edit.search, edit.replace))
    assert files == after


def test_the_command_plays_them(invoke: Callable[..., Result], tmp_path: Path) -> None:
    make(tmp_path / "data")
    rows = [instance(), instance(instance_id="shop-2", FAIL_TO_PASS=[f"{TESTS}::test_gone"])]
    (tmp_path / "data/instances.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = invoke(
        *("sessions", "--suite", "repair", "--data", tmp_path / "data", "--out", tmp_path / "out"),
        *("--systems", "full", "--concurrency", "2"),
    )
    assert done.exit_code == 0, done.output
    scores = {
        record.game: (record.score, record.steps) for record in read_sessions(tmp_path / "out")
    }
    assert scores == {"shop-1": (1, 3), "shop-2": (0, 3)}
