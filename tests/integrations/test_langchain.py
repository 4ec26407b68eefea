"""A `MemoryAgent` in LangChain's chains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memagent import ChatRequest, MemoryAgent
from memagent.errors import ConfigError, ModelError
from memagent.models.scripted import ScriptedModel

pytestmark = pytest.mark.extra

QUESTION = "What is the code of the gate?"
FILLER = "The sky over the harbour was grey. " * 600


def text(code: int) -> str:
    """Several chunks, with a code."""
    return f"{FILLER}The code of the gate is {code}. {FILLER}"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[MemoryAgent]:
    with MemoryAgent("extractive", window=2048, store=tmp_path / "runs.sqlite") as agent:
        yield agent


def runnable(agent: MemoryAgent) -> Any:
    from memagent.integrations.langchain import as_runnable

    return as_runnable(agent)


def test_the_output_is_the_result(agent: MemoryAgent) -> None:
    found = runnable(agent).invoke({"document": text(7), "question": QUESTION})
    assert found["answer"] == "The code of the gate is 7."
    assert found["stop_reason"] == "answered"
    assert found["usage"]["calls"] > 2


async def test_it_reads_files_in_async_code(agent: MemoryAgent, tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text(text(8))
    asked = {"document": path, "question": QUESTION, "run_id": "eight"}
    first = await runnable(agent).ainvoke(asked)
    assert first["answer"] == "The code of the gate is 8."
    assert await runnable(agent).ainvoke(asked) == first
    assert first["run_id"] == "eight"


def test_a_batch_keeps_its_order(agent: MemoryAgent) -> None:
    asked = [{"document": text(code), "question": QUESTION} for code in range(5)]
    found = runnable(agent).batch(asked, {"max_concurrency": 2})
    assert [row["answer"] for row in found] == [f"The code of the gate is {n}." for n in range(5)]


def test_it_reads_loaded_documents_in_a_chain(agent: MemoryAgent) -> None:
    from langchain_core.documents import Document
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough

    loaded = [Document(FILLER), Document("The code of the gate is 9.")]
    chain = (
        {"document": lambda _: loaded, "question": RunnablePassthrough()}
        | runnable(agent)
        | ChatPromptTemplate.from_template("Translate: {answer}")
    )
    said = chain.invoke(QUESTION)
    assert said.to_string() == "Human: Translate: The code of the gate is 9."
    one = runnable(agent).invoke({"document": loaded[1], "question": QUESTION})
    assert one["answer"] == "The code of the gate is 9."
    for several in (tuple(loaded), iter(loaded)):
        found = runnable(agent).invoke({"document": several, "question": QUESTION})
        assert found["answer"] == "The code of the gate is 9."


def test_it_reads_documents_while_they_are_loaded() -> None:
    from langchain_core.documents import Document

    loaded: list[Document] = []
    chunks: list[str] = []

    def load() -> Iterator[Document]:
        for number in range(400):
            loaded.append(Document(f"Note {number}. " + FILLER[:900]))
            yield loaded[-1]

    def reply(request: ChatRequest) -> str:
        assert chunks or len(loaded) < 200  # blocks are larger than chunks
        chunks.append(request.parts.get("chunk", ""))
        return "nothing"

    with MemoryAgent(ScriptedModel(reply, window=4096), store=None) as agent:
        found = runnable(agent).invoke({"document": load(), "question": QUESTION})
    assert found["chunks"] > 20
    assert len(loaded) == 400
    assert "\n\nNote 1." in chunks[0]


async def test_streams_and_callbacks_see_it(agent: MemoryAgent) -> None:
    asked = {"document": text(3), "question": QUESTION}
    streamed = [part["answer"] async for part in runnable(agent).astream(asked)]
    assert streamed == ["The code of the gate is 3."]
    seen = [event async for event in runnable(agent).astream_events(asked, version="v2")]
    assert seen[0]["event"] == "on_chain_start"
    assert {event["name"] for event in seen} == {"MemoryAgent"}


def test_errors_are_raised() -> None:
    broken = runnable(MemoryAgent(ScriptedModel([ModelError("gone")] * 9), store=None))
    with pytest.raises(ModelError, match="gone"):
        broken.invoke({"document": "Text.", "question": QUESTION})


@pytest.mark.parametrize(
    "given", [{"text": "a", "question": "b"}, {"document": "a"}, "hello", ["document", "question"]]
)
def test_other_keys_are_refused(agent: MemoryAgent, given: Any) -> None:
    with pytest.raises(ConfigError, match="keys must be document, question"):
        runnable(agent).invoke(given)
