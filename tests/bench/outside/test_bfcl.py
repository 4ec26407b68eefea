"""BFCL multi-turn: several messages in one conversation, tools that change state, the package's own checker."""

import ast
import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.bench.outside import talks
from tests.bench.outside.cages import Open
from tests.bench.outside.gyms import write
from tests.models.chat_server import Script, say
from typer.testing import Result

from memagent.errors import ConfigError
from memagent.messages import ToolCall
from memagent.tools import Toolset
from memagent_bench.outside.base import BadData
from memagent_bench.outside.bfcl import Bfcl, BfclEnvironment
from memagent_bench.sessions.record import read_sessions

PACKAGE = Path(__file__).parents[3] / "build/bfcl"


@pytest.fixture(autouse=True)
def sandboxes(sandbox: Open) -> None:
    """Skips where there are none."""
    sandbox("")


async def call(environment: BfclEnvironment, name: str, **arguments: Any) -> str:
    made = ToolCall(id="1", name=name, arguments=json.dumps(arguments))
    return (await Toolset(environment.tools).run(made)).text


@pytest.mark.parametrize(("second", "right"), [(3, True), (4, False)])
async def test_a_conversation_is_played_and_checked(
    tmp_path: Path, second: int, right: bool
) -> None:
    (task,) = Bfcl().tasks(talks.make(tmp_path))
    with closing(await asyncio.to_thread(task.open)) as environment:
        assert (task.id, environment.task) == ("multi_turn_base_0", "Add 2.")
        (add,) = environment.tools
        number = {"type": "number", "description": "What to add."}
        assert add.spec.parameters == {
            "type": "object",
            "properties": {
                "number": number,
                "note": {},
                "parts": {"type": "array", "items": number},
            },
            "required": ["number"],
        }
        assert (
            await call(environment, "add", number=2, note="it's") == '{"total": 3, "note": "it\'s"}'
        )
        assert environment.follow() == "Add 3."
        assert json.loads(await call(environment, "add", number=second))["total"] == 3 + second
        assert environment.follow() is None
        assert await asyncio.to_thread(environment.finish, "done") is right
        assert (environment.steps, environment.verdict()) == (2, float(right))


async def test_a_turn_without_calls_is_wrong(tmp_path: Path) -> None:
    (task,) = Bfcl().tasks(talks.make(tmp_path))
    with closing(await asyncio.to_thread(task.open)) as environment:
        environment.follow()
        await call(environment, "add", number=5)
        assert await asyncio.to_thread(environment.finish, "done") is False


@pytest.mark.parametrize("system", ["full", "summary"])
def test_a_model_talks_over_the_openai_door(
    invoke: Callable[..., Result], server: Script, tmp_path: Path, system: str
) -> None:
    for number in (2, 3):
        function = {"name": "add", "arguments": json.dumps({"number": number})}
        called = [{"id": f"c{number}", "type": "function", "function": function}]
        server.replies += [say(None, tool_calls=called, finish="tool_calls"), say("Done.")]
    server.serve_models({"id": "x", "owned_by": "vllm", "max_model_len": 16384})
    done = invoke(
        *("sessions", "--suite", "bfcl", "--data", talks.make(tmp_path / "data")),
        *("--player", "model", "--model", "openai:x", "--base-url", server.url),
        *("--tokenizer", "bytes", "--systems", system, "--summaries", "7"),
        *("--working-context", "8000", "--out", tmp_path / "out"),
    )
    assert done.exit_code == 0, done.output
    (record,) = read_sessions(tmp_path / "out")
    assert (record.score, record.steps) == (1, 2)
    said = [(m["role"], m["content"]) for m in server.bodies[2]["messages"][-2:]]
    assert said == [("assistant", "Done."), ("user", "Add 3.")]


@pytest.mark.parametrize("system", ["full", "summary", "drop-oldest"])
def test_a_tool_comes_with_a_later_message(
    invoke: Callable[..., Result], server: Script, tmp_path: Path, system: str
) -> None:
    function = {"name": "add", "arguments": '{"number": 2}'}
    called = [{"id": "c2", "type": "function", "function": function}]
    server.replies += [say("I can't."), say(None, tool_calls=called, finish="tool_calls"), say("Done.")]  # fmt: skip
    server.serve_models({"id": "x", "owned_by": "vllm", "max_model_len": 16384})
    done = invoke(
        *("sessions", "--suite", "bfcl", "--data", talks.make_missing(tmp_path / "data")),
        *("--player", "model", "--model", "openai:x", "--base-url", server.url),
        *("--tokenizer", "bytes", "--systems", system, "--summaries", "7"),
        *("--working-context", "8000", "--out", tmp_path / "out"),
    )
    assert done.exit_code == 0, done.output
    (record,) = read_sessions(tmp_path / "out")
    assert (record.score, record.steps) == (1, 1)
    offered = [{tool["function"]["name"] for tool in body["tools"]} for body in server.bodies]
    assert ["add" in names for names in offered] == [False, True, True]
    assert all("subtract" in names for names in offered)
    assert server.bodies[1]["messages"][-1] == {"role": "user", "content": talks.ADDED}


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("BFCL_v4_multi_turn_base.json", [{"id": "x"}], "line 1: question"),
        ("BFCL_v4_multi_turn_base.json", [talks.entry(question=[])], "line 1: question"),
        ("BFCL_v4_multi_turn_base.json", ["{"], "line 1 is not JSON"),
        ("possible_answer/BFCL_v4_multi_turn_base.json", [], "does not start: StopIteration"),
        ("multi_turn_func_doc/counter.json", [], "does not start: tools"),
        ("multi_turn_func_doc/counter.json", [talks.doc("a b")], "does not start: tools.0.name"),
    ],
)
def test_damaged_data_are_named(tmp_path: Path, name: str, rows: list[Any], message: str) -> None:
    write(talks.make(tmp_path) / "bfcl_eval/data" / name, *rows)
    with pytest.raises(BadData, match=message):
        [task.open() for task in Bfcl().tasks(tmp_path)]


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"pip install --no-deps --target .* bfcl-eval mpmath"):
        list(Bfcl().tasks(tmp_path))


def test_there_is_no_reference_player(tmp_path: Path) -> None:
    (task,) = Bfcl().tasks(talks.make(tmp_path))
    with closing(task.open()) as environment, pytest.raises(ConfigError, match="--player model"):
        environment.solve()


@pytest.mark.extra
@pytest.mark.timeout(900)
def test_the_reference_calls_of_the_real_tasks_are_right() -> None:
    tasks = list(Bfcl().tasks(PACKAGE))
    assert len(tasks) == 800
    answers = {
        row["id"]: row["ground_truth"]
        for file in (PACKAGE / "bfcl_eval/data/possible_answer").glob("*multi_turn*")
        for row in map(json.loads, file.read_text().splitlines())
    }
    for task in tasks[::20]:
        with closing(task.open()) as environment:
            _follow(environment, answers[task.id])
            assert environment.finish("done"), task.id


def _follow(environment: BfclEnvironment, truth: list[list[str]]) -> None:
    for turn in truth:
        specs = [tool.spec for tool in environment.tools]
        parameters: dict[str, list[str]] = {
            spec.name: list(cast("dict[str, Any]", spec.parameters["properties"])) for spec in specs
        }
        for written in turn:
            made = ast.parse(written, mode="eval").body
            assert isinstance(made, ast.Call)
            assert isinstance(made.func, ast.Name)
            name = made.func.id
            places = [ast.literal_eval(value) for value in made.args]
            given: dict[str, Any] = dict(zip(parameters[name], places, strict=False))
            given |= {word.arg or "": ast.literal_eval(word.value) for word in made.keywords}
            asyncio.run(call(environment, name, **given))
        environment.follow()
