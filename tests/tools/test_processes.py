import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from memagent.errors import BadArguments, ConfigError, ToolError
from memagent.messages import ToolCall
from memagent.tools import Tool, Toolset, processes, tool
from memagent.tools.processes import ProcessCall, WorkerPool, place_of

MODULE = '''
import os, signal, subprocess, sys, time
from memagent.tools import tool

STATE = []

def square(n: int) -> int:
    return n * n

@tool(process=True, timeout=30)
def whoami() -> int:
    """Its process."""
    print("printed by a tool")
    return os.getpid()

def remember(n: int) -> list[int]:
    STATE.append(n)
    return STATE

def fail(why: str) -> None:
    raise ValueError(why)

def leave(code: int) -> None:
    sys.exit(code)

def drop(code: int) -> None:
    os._exit(code)

def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

def spin(note: str) -> None:
    child = subprocess.Popen(["sleep", "60"])
    with open(note, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    while True:
        pass

def start(note: str) -> int:
    child = subprocess.Popen(["sleep", "60"])
    with open(note, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    return child.pid

def start_and_drop(note: str) -> None:
    start(note)
    os._exit(7)

def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds

def read_input() -> str:
    return sys.stdin.read() + "|"

def big(n: int) -> str:
    return "ä\\ud800\\n" * n

def fork(how: str) -> str:
    child = os.fork()
    if child == 0:
        if how == "returns":
            return "from the child"
        if how == "outlives":
            os.setsid()
            time.sleep(60)
        sys.exit(0 if how == "ends" else 3)
    if how == "outlives":
        return str(child)
    return f"its child ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"

def fork_twice(note: str) -> None:
    first = os.fork()
    if first == 0:
        with open(note, "w") as file, open(note):  # they get the numbers of the pipes
            if os.fork() == 0:
                file.write("from the second")
                file.flush()
                sys.exit(0)
            os.wait()
        sys.exit(0)
    os.waitpid(first, 0)

def reply_twice() -> None:
    for pipe in range(3, 10):
        try:
            os.write(pipe, b'{"text": "a reply of its own", "id": "0"}\\n')
        except OSError:
            pass

class Box:
    @staticmethod
    def open(n: int) -> int:
        return n
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    name = f"tools_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(processes, "tool_pool", WorkerPool(processes.PROCESSES))
    yield importlib.import_module(name)
    processes.tool_pool.close()
    sys.modules.pop(name, None)


def in_process(function: Any) -> Tool:
    return tool(function, process=True)


def gone(pid: int, seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # One that was not ours to wait for stays as a zombie until its parent looks, who sees it when its threads have
        # ended too.
        with suppress(OSError):
            threads = [*Path(f"/proc/{pid}/task").iterdir()]
            if len(threads) == 1 and " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        time.sleep(0.02)
    return False


def written(note: Path, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not (note.exists() and " " in note.read_text()) and time.monotonic() < until:
        time.sleep(0.02)


async def test_it_runs_in_another_process_which_is_used_again(module: ModuleType) -> None:
    first = await module.whoami.run({})
    assert int(first) != os.getpid()
    assert await module.whoami.run({}) == first


async def test_arguments_are_checked_here_and_converted_there(module: ModuleType) -> None:
    square = in_process(module.square)
    assert await square.run({"n": "12"}) == "144"
    with pytest.raises(BadArguments, match="- n: missing"):
        await square.run({})


async def test_a_function_inside_a_class(module: ModuleType) -> None:
    assert await in_process(module.Box.open).run({"n": 1}) == "1"


async def test_the_same_function_twice_at_once_has_two_processes(module: ModuleType) -> None:
    first, second = await asyncio.gather(module.whoami.run({}), module.whoami.run({}))
    assert first != second


async def test_twenty_calls_at_once_take_turns(module: ModuleType) -> None:
    found = await asyncio.gather(*(module.whoami.run({}) for _ in range(20)))
    assert 1 <= len(set(found)) <= processes.PROCESSES


async def test_globals_live_on_in_the_process(module: ModuleType) -> None:
    remember = in_process(module.remember)
    assert [await remember.run({"n": 1}), await remember.run({"n": 2})] == ["[1]", "[1,2]"]
    assert module.STATE == []


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fail", {"why": "no page"}, "ValueError: no page"),
        ("leave", {"code": 3}, "SystemExit: 3"),
        ("drop", {"code": 7}, "the process that ran it ended with exit code 7"),
        (
            "be_killed",
            {},
            r"ended by signal 9 \(SIGKILL\), possibly for lack of memory",
        ),
    ],
    ids=["fail", "leave", "drop", "be_killed"],
)
async def test_what_goes_wrong_there_is_an_error_here(
    module: ModuleType, name: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ToolError, match=told):
        await asyncio.wait_for(in_process(getattr(module, name)).run(arguments), 30)
    assert await in_process(module.square).run({"n": 2}) == "4"


@pytest.mark.parametrize(("how", "told"), [("returns", 0), ("ends", 0), ("fails", 1)], ids=str)
async def test_a_forked_child_replies_to_no_call(module: ModuleType, how: str, told: int) -> None:
    square = in_process(module.square)
    assert await in_process(module.fork).run({"how": how}) == f"its child ended with {told}"
    assert [await square.run({"n": n}) for n in range(4)] == ["0", "1", "4", "9"]


async def test_a_forked_child_that_outlives_its_process_holds_up_nobody(module: ModuleType) -> None:
    child = int(await in_process(module.fork).run({"how": "outlives"}))
    try:
        with pytest.raises(ToolError, match="ended with exit code 7"):
            await asyncio.wait_for(in_process(module.drop).run({"code": 7}), 30)
    finally:
        os.kill(child, signal.SIGKILL)


async def test_a_child_of_a_forked_child_keeps_its_files(
    module: ModuleType, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    await in_process(module.fork_twice).run({"note": str(note)})
    assert note.read_text() == "from the second"


async def test_a_reply_to_no_call_is_never_the_result_of_one(module: ModuleType) -> None:
    for _ in range(2):
        with pytest.raises(ToolError, match="replied to another call"):
            await in_process(module.reply_twice).run({})
        assert await in_process(module.square).run({"n": 3}) == "9"


async def test_entries_of_the_path_that_are_not_texts_are_ignored(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: list[Any] = [*sys.path, tmp_path]
    monkeypatch.setattr(sys, "path", entries)
    assert await in_process(module.square).run({"n": 2}) == "4"


async def test_a_process_that_is_killed_between_calls_is_not_missed(module: ModuleType) -> None:
    first = int(await module.whoami.run({}))
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    assert int(await module.whoami.run({})) != first


async def test_what_a_process_started_ends_with_it(module: ModuleType, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with pytest.raises(ToolError, match="ended with exit code 7"):
        await in_process(module.start_and_drop).run({"note": str(note)})
    assert await asyncio.to_thread(gone, int(note.read_text().split()[1]))
    child = int(await in_process(module.start).run({"note": str(note)}))
    os.kill(int(note.read_text().split()[0]), signal.SIGKILL)
    await asyncio.sleep(0.2)
    await module.whoami.run({})  # notices
    assert await asyncio.to_thread(gone, child)


async def test_cancelling_kills_the_process_and_what_it_started(
    module: ModuleType, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    task = asyncio.create_task(in_process(module.spin).run({"note": str(note)}))
    await asyncio.to_thread(written, note)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pids = [int(pid) for pid in note.read_text().split()]
    assert [await asyncio.to_thread(gone, pid) for pid in pids] == [True, True]


async def test_a_call_that_takes_too_long_is_killed(module: ModuleType, tmp_path: Path) -> None:
    # Starts the process, which may take longer than the call does.
    await module.whoami.run({})
    note = tmp_path / "note"
    tools = Toolset([tool(module.spin, process=True, timeout=3)])
    arguments = json.dumps({"note": str(note)})
    output = await tools.run(ToolCall(id="1", name="spin", arguments=arguments))
    assert output.text.startswith("spin failed: it took longer than 3 seconds")
    pids = [int(pid) for pid in note.read_text().split()]
    assert [await asyncio.to_thread(gone, pid) for pid in pids] == [True, True]


async def test_a_call_that_is_given_up_while_it_waits_for_a_process_is_not_made(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.tool_pool.close()
    monkeypatch.setattr(processes, "tool_pool", WorkerPool(1))
    notes = [tmp_path / "first", tmp_path / "second"]
    first = asyncio.create_task(in_process(module.spin).run({"note": str(notes[0])}))
    await asyncio.to_thread(written, notes[0])
    second = asyncio.create_task(in_process(module.spin).run({"note": str(notes[1])}))
    await asyncio.sleep(0.1)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert await asyncio.wait_for(in_process(module.square).run({"n": 3}), 30) == "9"
    assert not notes[1].exists()


async def test_a_call_has_its_own_limit_from_when_a_process_is_at_it(module: ModuleType) -> None:
    pool = WorkerPool(1)
    wait = place_of(module.wait)
    try:
        await pool.run(ProcessCall(wait, {"seconds": 0.0}))
        # Two at once: the second waits for the only process, which does not count.
        calls = (pool.run(ProcessCall(wait, {"seconds": 0.6}, limit=1.0)) for _ in range(2))
        assert await asyncio.gather(*calls) == ["0.6", "0.6"]
        with pytest.raises(TimeoutError, match=r"longer than 0\.2 s"):
            await pool.run(ProcessCall(wait, {"seconds": 60.0}, limit=0.2))
    finally:
        await asyncio.to_thread(pool.close)


async def test_closing_ends_calls_under_way_and_refuses_others(
    module: ModuleType, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    spinning = asyncio.create_task(in_process(module.spin).run({"note": str(note)}))
    await asyncio.to_thread(written, note)
    await asyncio.to_thread(processes.tool_pool.close)
    with pytest.raises(ToolError, match="ended by signal 9"):
        await spinning
    assert all(gone(int(pid)) for pid in note.read_text().split())
    with pytest.raises(ToolError, match="its processes were closed"):
        await in_process(module.square).run({"n": 2})


async def test_what_is_made_first_is_made_in_each_process(module: ModuleType) -> None:
    first = ProcessCall(place_of(module.remember), {"n": 7})
    pool = WorkerPool(1, first)
    try:
        assert await pool.run(ProcessCall(first.place, {"n": 8})) == "[7,8]"
        assert await pool.run(ProcessCall(first.place, {"n": 9})) == "[7,8,9]"
    finally:
        await asyncio.to_thread(pool.close)
    broken = WorkerPool(1, ProcessCall(place_of(module.fail), {"why": "no page"}))
    with pytest.raises(ToolError, match="ValueError: no page"):
        await broken.run(first)
    broken.close()


async def test_what_a_function_prints_and_reads_does_not_disturb(
    module: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    await module.whoami.run({})
    assert await in_process(module.read_input).run({}) == "|"
    out, err = capfd.readouterr()
    assert (out, "printed by a tool" in err) == ("", True)


async def test_large_results_and_strange_characters_arrive(module: ModuleType) -> None:
    assert await in_process(module.big).run({"n": 300_000}) == "ä\ud800\n" * 300_000


async def test_a_name_that_now_means_another_function_is_refused(module: ModuleType) -> None:
    square = in_process(module.square)
    setattr(module, "square", module.fail)  # noqa: B010 - the module is made by this test
    with pytest.raises(ConfigError, match=r"square is not the tool's function"):
        await square.run({"n": 2})


def test_a_function_of_the_script_itself_is_refused() -> None:
    def here() -> None: ...

    here.__qualname__, here.__module__ = "here", "__main__"
    with pytest.raises(ConfigError, match=r"rerun the script.* separate module"):
        place_of(here)


def test_a_process_ends_with_its_parent_even_if_that_is_killed(
    module: ModuleType, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(tmp_path)!r})
from memagent.tools import tool
from {module.__name__} import spin
asyncio.run(tool(spin, process=True).run({{"note": {str(note)!r}}}))
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    written(note)
    parent.kill()
    parent.wait()
    worker, child = map(int, note.read_text().split())
    assert gone(worker)
    os.kill(
        child, signal.SIGKILL
    )  # what the function started outlives it: nobody is left to end it


def test_a_program_that_used_processes_ends_in_silence(module: ModuleType, tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(tmp_path)!r})
from memagent.tools import tool
from {module.__name__} import square, spin
print(asyncio.run(tool(square, process=True).run({{"n": 5}})))
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("25\n", "", 0)


def test_a_forked_process_starts_processes_of_its_own(module: ModuleType, tmp_path: Path) -> None:
    code = f"""
import asyncio, os, sys
sys.path.insert(0, {str(tmp_path)!r})
from {module.__name__} import whoami
mine = asyncio.run(whoami.run({{}}))
child = os.fork()
again = asyncio.run(whoami.run({{}}))
if child == 0:
    sys.exit(0 if again != mine else 5)
assert again == mine, (again, mine)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stderr.replace("printed by a tool\n", ""), ended.returncode) == ("", 0)
