"""The function of examples/open_webui against an endpoint, called as Open WebUI calls it.

`make test-open-webui` has a real Open WebUI call it, which also gives it the files.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.serve.conftest import MODEL, Serve
from tests.serve.engine import Engine, read_or_echo
from tests.serve.test_reading import DOCUMENT, FACT, QUESTION, chunks

FILE = Path(__file__).parents[2] / "examples" / "open_webui" / "pipe.py"
BOOK = {"type": "file", "id": "1", "name": "book.txt"}
WRAPPED = {"role": "user", "content": f"### Task: use the context.\n{QUESTION}"}
METADATA = {"base_user_prompt": QUESTION}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("function_memagent", FILE)
    assert spec
    assert spec.loader
    spec.loader.exec_module(module := module_from_spec(spec))

    async def read_file(_: Any, __: Any) -> str:
        return DOCUMENT

    monkeypatch.setattr(module, "read_file", read_file)
    return module


@pytest.fixture
def pipe(module: ModuleType, serve: Serve, engine: Engine) -> Any:
    engine.default = read_or_echo
    pipe = module.Pipe()
    pipe.valves = module.Pipe.Valves(url=serve(reading={"gate": "update"}, keys=("k",)), key="k")
    return pipe


async def test_it_lists_what_the_endpoint_has(pipe: Any) -> None:
    assert await pipe.pipes() == [{"id": MODEL, "name": MODEL}]


async def test_a_file_is_read_and_the_status_says_how_far(pipe: Any, engine: Engine) -> None:
    events: list[dict[str, Any]] = []

    async def emit(event: dict[str, Any]) -> None:
        events.append(event)

    tools = [{"type": "function", "function": {"name": "get_current_timestamp"}}]
    body = {"model": f"memagent.{MODEL}", "messages": [WRAPPED], "stream": True, "tools": tools}
    given = {"__files__": [BOOK], "__metadata__": METADATA, "__event_emitter__": emit}
    lines = [line async for line in await pipe.pipe(body, **given)]
    assert FACT in "".join(lines)
    assert all(line.startswith("data: {") for line in lines)
    assert chunks(engine) > 3
    shown = [event["data"] for event in events if event["type"] == "status"]
    assert shown[0] == {"description": "reading", "done": False}
    assert shown[-1]["description"].startswith("chunk ")
    assert [data["done"] for data in shown].index(True) == len(shown) - 1


async def test_what_open_webui_found_in_other_attachments_is_read_too(
    pipe: Any, engine: Engine
) -> None:
    knowledge = {"type": "collection", "id": "2", "name": "Knowledge"}
    excerpt = {**WRAPPED, "content": f"<source>From the collection.</source>\n{QUESTION}"}
    body = {"model": f"memagent.{MODEL}", "messages": [excerpt]}
    for files, is_sent in (([BOOK, knowledge], True), ([BOOK], False), ([knowledge], True)):
        engine.bodies.clear()
        await pipe.pipe(body, __files__=files, __metadata__=METADATA)
        assert ("From the collection." in str(engine.bodies)) is is_sent


async def test_titles_are_made_without_the_files(pipe: Any, engine: Engine) -> None:
    body = {"model": f"memagent.{MODEL}", "messages": [{"role": "user", "content": "A title?"}]}
    reply = await pipe.pipe(body, __files__=[BOOK], __task__="title_generation")
    assert reply["choices"][0]["message"]["content"] == "A title?"
    assert chunks(engine) == 0


async def test_what_is_wrong_is_said(pipe: Any, module: ModuleType) -> None:
    body = {"model": f"memagent.{MODEL}", "messages": [WRAPPED], "stream": True}
    pipe.valves.key = "another"
    with pytest.raises(RuntimeError, match="answered 401"):
        await pipe.pipe(body)
    pipe.valves = module.Pipe.Valves(url="http://127.0.0.1:9/v1")
    with pytest.raises(RuntimeError, match="start `memagent serve`"):
        await pipe.pipe(body)
