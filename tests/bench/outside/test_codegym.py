"""CodeGym: environments of its form, written here, are played; whatever is wrong with them is named."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.bench.outside.cages import Open
from tests.bench.outside.gyms import TALLY, task, write
from tests.models.chat_server import Script, say
from typer.testing import Result

from memagent.errors import ConfigError, ToolError
from memagent.messages import ToolCall
from memagent.tools import Toolset
from memagent_bench.outside.base import BadData
from memagent_bench.outside.codegym import CodeGym, CodeGymEnvironment
from memagent_bench.outside.sandbox import SandboxEnded
from memagent_bench.sessions.record import Reason, read_sessions

pytestmark = pytest.mark.usefixtures("sandboxes")
ENVIRONMENT = {"env_code": TALLY, "env_name": "TallyEnv", "source": "Tests_1_I"}


@pytest.fixture
def sandboxes(sandbox: Open) -> None:
    """Skips where there are none."""
    sandbox("")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[CodeGymEnvironment]:
    """A task in progress."""
    write(tmp_path / "task.jsonl", task())
    (one,) = CodeGym().tasks(tmp_path)
    with closing(one.open()) as environment:
        yield environment


async def call(environment: CodeGymEnvironment, name: str, **arguments: Any) -> str:
    made = ToolCall(id="1", name=name, arguments=json.dumps(arguments))
    return (await Toolset(environment.tools).run(made)).text


async def test_tools_are_described_as_the_environment_describes_them(
    opened: CodeGymEnvironment,
) -> None:
    assert opened.task == "Add the numbers up.\nHand in the sum."
    specs = {tool.name: tool.spec for tool in opened.tools}
    assert list(specs) == ["Observe", "Read", "Add", "Misbehave", "Done"]
    assert specs["Read"].description.startswith("One number.")
    assert "Example" not in specs["Read"].description
    assert specs["Add"].parameters == {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["number"],
    }
    assert specs["Done"].parameters["properties"] == {"answer": {"type": "integer"}}
    assert [tool.name for tool in opened.tools if tool.final] == ["Done"]


async def test_a_task_is_played_to_its_end(opened: CodeGymEnvironment) -> None:
    assert await call(opened, "Observe") == "2"
    assert await call(opened, "Read", place=1) == "4"
    assert await call(opened, "Add", number=4, note="!") == "4!"
    assert "Error" in await call(opened, "Read", place=7)
    assert (opened.steps, opened.over, opened.verdict()) == (4, False, 0)
    assert "(the task isn't over)" in await call(opened, "Done")
    assert "Reference answer: 7" in await call(opened, "Done", answer=7)
    assert (opened.steps, opened.over, opened.verdict()) == (4, True, 1)
    assert "the task is over" in await call(opened, "Observe")
    assert opened.finish("8") is True


@pytest.mark.parametrize(("answer", "score"), [(" 7", 1), ("8", 0), ("seven", 0), ('{"a": 1}', 0)])
def test_an_answer_as_text_is_handed_in(
    opened: CodeGymEnvironment, answer: str, score: float
) -> None:
    assert opened.finish(answer) == (score == 1)
    assert (opened.over, opened.verdict()) == (True, score)


async def test_a_misbehaving_environment_is_ended_and_not_scored(
    opened: CodeGymEnvironment,
) -> None:
    assert "Read-only" in await call(opened, "Misbehave", code="open('/x', 'w')")
    assert "MemoryError" not in await call(opened, "Misbehave", code="len('x' * 900000)")
    text = await call(opened, "Misbehave", code="'x' * 5000000")
    assert "replied with more than 1,048,576 bytes and was ended" in text
    assert "was ended" in await call(opened, "Observe")
    with pytest.raises(SandboxEnded):
        opened.finish("7")


def test_an_answer_of_100_mb_is_wrong(opened: CodeGymEnvironment) -> None:
    assert opened.finish("7" * 100_000_000) is False


async def test_arguments_of_100_mb_are_refused(opened: CodeGymEnvironment) -> None:
    text = await call(opened, "Add", number=1, note="x" * 100_000_000)
    assert "the call has 100,000,0" in text
    assert await call(opened, "Observe") == "2"
    with pytest.raises(ToolError, match="send less"):
        opened._sandbox.ask("x" * 100_000_000)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("place", ["rows", "file"])
def test_code_may_lie_beside_the_task(tmp_path: Path, place: str) -> None:
    write(tmp_path / "task_en/train.jsonl", task(code=None))
    if place == "rows":
        write(tmp_path / "envs_en/train.jsonl", ENVIRONMENT)
    else:
        (tmp_path / "Tests_1_I__TallyEnv.py").write_text(TALLY)
    (one,) = CodeGym().tasks(tmp_path)
    with closing(one.open()) as environment:
        assert environment.solve().calls[0] == ("Observe", "{}")


def test_tasks_are_numbered_across_files(tmp_path: Path) -> None:
    for name in ("train-0.jsonl", "train-1.jsonl"):
        write(tmp_path / name, task())
    assert [one.id[-2:] for one in CodeGym().tasks(tmp_path)] == [":0", ":1"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("not json", r"task.jsonl', line 1 is not JSON"),
        ("[1]", r"line 1 is not a JSON object"),
        ("[" * 99_999, r"line 1 is not JSON"),
        ({"prompt": []}, r"line 1: ability .*has the fields prompt\. Fetch"),
        (task(ability="other@x"), r"line 1: ability"),
        (task(prompt="text"), r"line 1: prompt"),
        (task(extra_info=7), r"line 1: extra_info"),
        (task(extra_info="{"), r"line 1: extra_info"),
        (ENVIRONMENT, r"has environments and no tasks"),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, row: object, message: str) -> None:
    write(tmp_path / "task.jsonl", row)
    with pytest.raises(BadData, match=message):
        list(CodeGym().tasks(tmp_path))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = (", "SyntaxError"),
        ("x = 1", "AttributeError"),
        (
            "class TallyEnv:\n    from_env_str = staticmethod(lambda text: None)",
            "no such parameters",
        ),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        (TALLY.replace('"Done": 4', '"Read": 4'), "no tool 'Done'"),
        (TALLY.replace('"Done": 4', '"Done": 4, "Gone": 5'), "AttributeError"),
        ("while True: pass", "took longer than 10 seconds"),
        ("x" * (2 << 20), "1,048,576 at most"),
        (None, "no environment 'Tests_1_I__TallyEnv'; fetch the folder envs_"),
    ],
)
def test_an_environment_that_does_not_start_is_named(
    tmp_path: Path, code: str | None, message: str
) -> None:
    write(tmp_path / "task.jsonl", task(code=code))
    (one,) = CodeGym().tasks(tmp_path)
    with pytest.raises(BadData, match=message) as error:
        one.open()
    assert "task.jsonl" in str(error.value)


def test_files_of_a_gigabyte_cost_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "task.jsonl").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(BadData, match=r"line 1 has more than 67,108,864 bytes"):
        list(CodeGym().tasks(tmp_path))
    write(tmp_path / "task.jsonl", task(code=None))
    with (tmp_path / "Tests_1_I__TallyEnv.py").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(BadData, match=r"1,073,741,824 bytes"):
        next(CodeGym().tasks(tmp_path)).open()


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_no_data(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"give the folder that you fetched"):
        list(CodeGym().tasks(tmp_path / name))


def test_the_command_plays_them(invoke: Callable[..., Result], tmp_path: Path) -> None:
    write(tmp_path / "data/task.jsonl", task(), task(range(30)), task(code="x = ("))
    args = ("sessions", "--suite", "codegym", "--data", tmp_path / "data", "--out", tmp_path / "out")  # fmt: skip
    refused = invoke(*args)
    assert (refused.exit_code, "no commercial use" in refused.stderr) == (2, True)
    more = ("--accept-licence", "--systems", "full,summary", "--working-context", "2048")
    done = invoke(*args, *more, "--summaries", "9")
    assert done.exit_code == 6, done.output
    assert "licence: CodeGym is licensed CC BY-NC 4.0" in done.stderr
    assert "retries them" in done.stderr
    records = read_sessions(tmp_path / "out")
    scores = [(record.game[-1], record.arm.system, record.score) for record in records]
    assert scores == [
        *(("0", "full", 1), ("0", "summary", 1), ("1", "full", 1), ("1", "summary", 1)),
        *(("2", "full", None), ("2", "summary", None)),
    ]
    assert records[3].summaries > 0
    assert records[4].reason is Reason.BROKEN
    assert "SyntaxError" in records[4].detail


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--suite", "codegim"), "did you mean 'codegym'?"),
        (("--games", "nothing"), "there is no task 'nothing'"),
        (("--data", "nowhere"), "there is no 'nowhere'"),
        (("--player", "model"), "no model to play"),
        (("--difficulty", "30"), "--difficulty is for games"),
    ],
)
def test_wrong_options_are_named(
    invoke: Callable[..., Result], tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    write(tmp_path / "task.jsonl", task())
    args = ("sessions", "--suite", "codegym", "--data", tmp_path, "--accept-licence")
    done = invoke(*args, *options, "--out", tmp_path / "out")
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_a_model_plays_over_the_openai_door(
    invoke: Callable[..., Result], server: Script, tmp_path: Path
) -> None:
    write(tmp_path / "task.jsonl", task())
    moves = [
        ("Observe", {}),
        ("Read", {"place": 0}),
        ("Read", {"place": 1}),
        ("Done", {"answer": 7}),
    ]
    for place, (name, arguments) in enumerate(moves):
        function = {"name": name, "arguments": json.dumps(arguments)}
        called = [{"id": f"c{place}", "type": "function", "function": function}]
        server.replies.append(say(None, tool_calls=called, finish="tool_calls"))
    server.serve_models({"id": "x", "owned_by": "vllm", "max_model_len": 16384})
    done = invoke(
        *("sessions", "--suite", "codegym", "--data", tmp_path, "--accept-licence"),
        *("--player", "model", "--model", "openai:x", "--base-url", server.url),
        *("--tokenizer", "bytes", "--systems", "summary", "--summaries", "7"),
        *("--working-context", "8000"),
        *("--out", tmp_path / "out"),
    )
    assert done.exit_code == 0, done.output
    (record,) = read_sessions(tmp_path / "out")
    assert (record.score, record.steps, record.origin.player) == (1, 3, "model")
    offered = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    assert {"Observe", "Read", "Add", "Done"} <= {*offered}
    assert server.bodies[3]["messages"][-1]["content"] == "4"


def test_data_without_a_suite(invoke: Callable[..., Result], tmp_path: Path) -> None:
    done = invoke("sessions", "--data", tmp_path, "--out", tmp_path / "out")
    assert (done.exit_code, "--data is for --suite" in done.stderr) == (2, True)
