"""The faces of the agent: sync, async, streams, many runs at once, settings that are wrong."""

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memagent
from memagent import Limits, MemoryAgent, RunStore, Sampling, ScriptedModel
from memagent.errors import (
    ConfigError,
    DocumentError,
    EmptyDocument,
    NoModel,
    PromptSetError,
    QuestionTooLong,
    RunNotFound,
    WindowTooSmall,
    WindowUnknown,
)
from memagent.models.spec import open_model

TEXT = "The prince left for Moscow. " * 200


def scripted(window: int | None = 2048) -> ScriptedModel:
    return ScriptedModel(lambda request: f"{request.kind}.", window=window)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[MemoryAgent]:
    agent = MemoryAgent(scripted(), store=tmp_path / "runs.sqlite")
    yield agent
    agent.close()


def test_the_public_names_are_those_that_are_announced() -> None:
    for name in memagent.__all__:
        assert getattr(memagent, name).__module__.startswith("memagent")
        assert name in dir(memagent)
    with pytest.raises(AttributeError, match="no attribute 'Memory'"):
        memagent.Memory  # noqa: B018


def test_sync_and_async_give_the_same(agent: MemoryAgent) -> None:
    sync = agent.ask(TEXT, "Who?")
    later = asyncio.run(agent.aask(TEXT, "Who?"))
    assert (sync.answer, sync.memory, sync.usage) == (later.answer, later.memory, later.usage)
    assert sync.run_id != later.run_id


async def test_one_agent_serves_many_tasks_at_once(agent: MemoryAgent) -> None:
    results = await asyncio.gather(*(agent.aask(TEXT, f"Who {i}?") for i in range(20)))
    assert [result.question for result in results] == [f"Who {i}?" for i in range(20)]
    assert len({result.run_id for result in results}) == 20
    # The sync API works beside it, as in a notebook.
    assert (await asyncio.to_thread(agent.ask, TEXT, "Who?")).answer == "answer."


@pytest.mark.parametrize("source", ["text", "bytes", "path", "iterator", "file"])
def test_every_kind_of_source_reads_the_same(
    agent: MemoryAgent, tmp_path: Path, source: str
) -> None:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    with path.open("rb") as file:
        documents: dict[str, Any] = {
            "text": TEXT,
            "bytes": TEXT.encode(),
            "path": path,
            "iterator": (TEXT[start : start + 7] for start in range(0, len(TEXT), 7)),
            "file": file,
        }
        result = agent.ask(documents[source], "Who?", run_id="same")
    assert result.chunks == agent.estimate(TEXT, "Who?").chunks
    assert (
        agent.ask(TEXT, "Who?", run_id="same").usage == result.usage
    )  # one binding for all of them


def test_an_open_file_is_read_whole_each_time(agent: MemoryAgent) -> None:
    file = io.BytesIO(TEXT.encode())
    whole = agent.ask(TEXT, "Who?")
    assert agent.estimate(file, "Who?").chunks == whole.chunks
    limited = MemoryAgent(scripted(), store=agent.store, limits=Limits(calls=1))
    limited.ask(file, "Who?", run_id="r1")
    assert agent.ask(file, "Who?").chunks == whole.chunks
    assert agent.resume("r1", file).usage == whole.usage  # type: ignore[union-attr]


async def test_an_async_iterator_is_a_source_too(agent: MemoryAgent) -> None:
    async def lines():
        for start in range(0, len(TEXT), 100):
            yield TEXT[start : start + 100]

    assert (await agent.aask(lines(), "Who?")).answer == "answer."


def test_estimates_are_exact_in_calls(agent: MemoryAgent) -> None:
    estimate = agent.estimate(TEXT, "Who?")
    result = agent.ask(TEXT, "Who?")
    assert estimate.calls_min == estimate.calls_max == result.usage.calls
    assert result.usage.prompt_tokens <= estimate.prompt_tokens
    assert result.usage.completion_tokens <= estimate.completion_tokens
    many = agent.estimate(TEXT, ["Who?", "Why?", "How?"])
    assert many.calls_max == 3 * estimate.calls_max
    assert (
        sum(r.usage.calls for r in agent.ask_many(TEXT, ["Who?", "Why?", "How?"])) == many.calls_max
    )


def test_an_estimate_does_not_use_up_an_iterator(agent: MemoryAgent) -> None:
    pieces = iter([TEXT])
    with pytest.raises(DocumentError, match="use it up"):
        agent.estimate(pieces, "Who?")
    assert agent.ask(pieces, "Who?").answer == "answer."


@pytest.mark.parametrize("document", ["", "  \n ", b""])
def test_an_empty_document_is_refused_and_nothing_is_sent(
    agent: MemoryAgent, document: Any
) -> None:
    with pytest.raises(EmptyDocument) as error:
        agent.ask(document, "Who?")
    assert error.value.run_id is None
    assert agent.store.runs() == []  # there is nothing to resume
    model = agent.model
    while not isinstance(model, ScriptedModel):
        model = model.inner  # type: ignore[attr-defined]
    assert model.requests == []


@pytest.mark.parametrize("question", ["", "  ", "\n"])
def test_an_empty_question_is_refused(agent: MemoryAgent, question: str) -> None:
    with pytest.raises(ConfigError, match=r"the question must be a non-empty text, got"):
        agent.ask(TEXT, question)
    with pytest.raises(ConfigError, match="give at least one"):
        agent.ask_many(TEXT, [])


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"window": 0}, ConfigError, r"window must be greater than 0, got 0"),
        ({"memory_tokens": -1}, ConfigError, r"memory_tokens must be .*, got -1"),
        ({"cuts": "word"}, ConfigError, r"cuts must be 'sentence' or 'exact', got 'word'"),
        ({"gate": "on"}, ConfigError, r"gate must be .*, got 'on'"),
        ({"trust": True}, ConfigError, r"trust must be .*, got True"),
        ({"window": "many"}, ConfigError, r"window must be .*, got 'many'"),
        ({"prompts": "nope"}, PromptSetError, r"'nope'"),
        (
            {"concurrency": 0},
            ConfigError,
            r"concurrency must be a whole number of at least 1, got 0",
        ),
    ],
)
def test_wrong_settings_fail_at_once(
    settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        MemoryAgent(scripted(), **settings)


@pytest.mark.parametrize(
    ("settings", "question", "error"),
    [
        ({"window": 4096}, "Who?", ConfigError),
        ({"window": 300}, "Who?", WindowTooSmall),
        ({"chunk_tokens": 4000}, "Who?", WindowTooSmall),
        ({}, "Who? " * 400, QuestionTooLong),
    ],
)
def test_budgets_that_cannot_be_fail_before_the_first_call(
    tmp_path: Path, settings: dict[str, Any], question: str, error: type[Exception]
) -> None:
    agent = MemoryAgent(scripted(), store=tmp_path / "runs.sqlite", **settings)
    with pytest.raises(error):
        agent.ask(TEXT, question)
    assert agent.store.runs() == []
    agent.close()


def test_an_unknown_window_is_asked_for(tmp_path: Path) -> None:
    agent = MemoryAgent(scripted(window=None), store=None)
    with pytest.raises(WindowUnknown, match="--window"):
        agent.ask(TEXT, "Who?")
    assert MemoryAgent(scripted(window=None), window=2048, store=None).ask(TEXT, "Who?").answer


def test_no_model_says_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoModel, match="MEMAGENT_MODEL"):
        MemoryAgent()
    monkeypatch.setenv("MEMAGENT_MODEL", "extractive")
    assert MemoryAgent(store=None).ask(TEXT, "Where did the prince go?").answer


def test_a_window_larger_than_8192_is_used_only_when_asked_for() -> None:
    plan = asyncio.run(MemoryAgent(scripted(32768), store=None).plan(("Who?",)))
    assert plan.budget.window == 8192
    large = MemoryAgent(scripted(32768), window=32768, store=None)
    assert asyncio.run(large.plan(("Who?",))).budget.window == 32768


def test_runs_keep_settings_and_never_a_secret(tmp_path: Path) -> None:
    agent = MemoryAgent(
        open_model(
            "vllm:some/model",
            base_url="http://user:pa55word@localhost:1234/v1",
            tokenizer="bytes",
        ),
        window=4096,
        sampling=Sampling(temperature=0),
        store=tmp_path / "runs.sqlite",
    )
    recipe = json.dumps(agent.recipe())
    assert "pa55word" not in recipe
    assert json.loads(recipe)["base_url"] == "http://localhost:1234/v1"
    assert json.loads(recipe)["sampling"] == {"temperature": 0.0, "top_p": 0.95}
    assert "pa55word" not in repr(agent.model)
    keyed = MemoryAgent(open_model("vllm:some/model", api_key="sk-verysecret"), store=None)
    assert "sk-verysecret" not in json.dumps(keyed.recipe()) + repr(keyed.model)


def test_resume_of_many_questions_gives_a_list(agent: MemoryAgent) -> None:
    agent.ask_many(TEXT, ["Who?", "Why?"], run_id="r1")
    results = agent.resume("r1")
    assert isinstance(results, list)
    assert [result.question for result in results] == ["Who?", "Why?"]
    with pytest.raises(RunNotFound, match="'r9'"):
        agent.resume("r9")


def test_a_run_is_resumed_with_its_own_window(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    limits = Limits(calls=2)
    first = MemoryAgent(scripted(2048), store=store, limits=limits).ask(TEXT, "Who?", run_id="r1")
    grown = MemoryAgent(scripted(8192), store=store)
    result = grown.ask(TEXT, "Who?", run_id="r1")
    assert (first.answer, result.answer) == (None, "answer.")
    assert (
        result.usage.calls == MemoryAgent(scripted(2048), store=None).ask(TEXT, "Who?").usage.calls
    )
    with pytest.raises(ConfigError, match="window=2048 exceeds the 1500"):
        MemoryAgent(scripted(1500), store=store).resume("r1")
    store.close()


@pytest.mark.parametrize("kind", ["text", "file"])
def test_the_note_on_an_interrupted_run_names_what_resumes_it(tmp_path: Path, kind: str) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    document: Any = TEXT if kind == "text" else tmp_path / "text.txt"

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    agent = MemoryAgent(scripted(), store=tmp_path / "runs.sqlite")
    with pytest.raises(KeyboardInterrupt) as error:
        agent.ask(document, "Who?", run_id="r", on_event=stop)
    (note,) = error.value.__notes__
    call = note.removeprefix("Resume the run with ").removesuffix(".")
    assert call == ("agent.resume('r', document)" if kind == "text" else "agent.resume('r')")
    assert eval(call, {"agent": agent, "document": TEXT}).answer
