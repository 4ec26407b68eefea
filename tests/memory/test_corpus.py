"""`MemoryAgent.map`: many documents, each with a run of its own."""

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from memagent import ChatRequest, MemoryAgent, RunStore, Sampling, ScriptedModel
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    DocumentNotFound,
    EmptyDocument,
    MemagentError,
    ServerFailed,
)

QUESTION = "Who lives here?"


def reply(request: ChatRequest) -> str:
    shown = request.parts.get("chunk") or request.parts["memory"]
    return next(word for word in shown.split() if word.istitle()).strip(".")


def agent(store: RunStore | None, replies: Any = reply, **settings: Any) -> MemoryAgent:
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies, window=2048)
    return MemoryAgent(model, store=store, **settings)


NAMES = ["Anna", "Boris", "Clara", "Dmitri", "Emma", "Felix"]


def folder(path: Path) -> list[Path]:
    path.mkdir()
    for name in NAMES:
        (path / f"{name.lower()}.txt").write_text(f"in this house lives {name} alone.\n" * 30)
    return sorted(path.iterdir())


def test_every_document_gets_its_answer(store: RunStore, tmp_path: Path) -> None:
    found = list(agent(store).map(folder(tmp_path / "docs"), QUESTION))
    assert sorted(item.index for item in found) == list(range(6))
    for item in found:
        assert item.error is None
        assert item.result is not None
        assert item.result.answer == NAMES[item.index]
        assert Path(item.name).stem == NAMES[item.index].lower()
        assert item.result.run_id == item.run_id
    assert len({item.run_id for item in found}) == 6


def test_results_come_as_they_come(store: RunStore) -> None:
    others = threading.Event()

    async def uneven(request: ChatRequest) -> str:
        if "Anna" in str(request.parts):
            await asyncio.to_thread(others.wait, 30)
        return reply(request)

    texts = [f"in this house lives {name}." for name in NAMES]
    items = agent(store, uneven).map(texts, QUESTION, concurrency=2)
    found = [next(items) for _ in NAMES[1:]]
    others.set()
    found += items
    assert [item.index for item in found][-1] == 0
    assert [item.name for item in found][-1] == "document 0"


def test_results_come_while_the_next_document_is_waited_for(store: RunStore) -> None:
    known = threading.Event()

    def documents() -> Iterator[str]:
        for name in NAMES[:3]:
            yield f"in this house lives {name}."
            assert known.wait(10)
            known.clear()

    for item in agent(store).map(documents(), QUESTION):
        assert item.error is None
        known.set()


def test_an_event_loop_ends_while_the_next_document_is_waited_for(store: RunStore) -> None:
    known = threading.Event()

    def documents() -> Iterator[str]:
        yield "in this house lives Anna."
        known.wait(20)

    async def leave() -> None:
        async with asyncio.timeout(1):
            async for _ in agent(store).amap(documents(), QUESTION):
                pass

    start = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    assert time.monotonic() - start < 10
    known.set()


@pytest.mark.timeout(60)
def test_documents_may_be_chosen_with_the_agent_itself(store: RunStore) -> None:
    texts = [f"in this house lives {name}." for name in NAMES]
    reader = agent(store)
    short = (text for text in texts if reader.estimate(text, QUESTION).chunks == 1)
    assert len(list(reader.map(short, QUESTION))) == 6


def test_an_iterator_that_ended_is_not_asked_again(store: RunStore) -> None:
    class Last:
        asked = 0

        def __iter__(self) -> Iterator[str]:
            return self

        def __next__(self) -> str:
            self.asked += 1
            if self.asked == 1:
                return "in this house lives Anna."
            raise StopIteration

    assert len(list(agent(store).map(last := Last(), QUESTION))) == 1
    assert last.asked == 2


@pytest.mark.parametrize("concurrency", [1, 3])
def test_so_many_documents_are_read_at_once(store: RunStore, concurrency: int) -> None:
    running = most = taken = 0

    async def slow(request: ChatRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return reply(request)

    def documents() -> Iterator[str]:
        nonlocal taken
        for name in NAMES:
            taken += 1
            yield f"in this house lives {name}."

    reader = agent(store, slow)
    for done, _ in enumerate(reader.map(documents(), QUESTION, concurrency=concurrency), start=1):
        assert taken <= done + concurrency
    assert most == concurrency


def test_a_document_that_fails_leaves_the_others_alone(store: RunStore, tmp_path: Path) -> None:
    paths: list[Any] = [*folder(tmp_path / "docs"), tmp_path / "gone.txt", b"", tmp_path]
    fails = True

    def failing(request: ChatRequest) -> str:
        if fails and "Clara" in str(request.parts):
            raise ServerFailed("it broke")
        return reply(request)

    reader = agent(store, failing)
    found = {item.index: item for item in reader.map(paths, QUESTION)}
    assert len(found) == 9
    errors = {place: type(item.error) for place, item in found.items() if item.error is not None}
    assert set(errors) == {2, 6, 7, 8}
    assert (errors[2], errors[7]) == (ServerFailed, EmptyDocument)
    assert found[6].name == str(tmp_path / "gone.txt")
    assert found[6].to_dict()["error"].startswith("DocumentNotFound: ")
    fails = False
    again = {item.index: item.result for item in reader.map(paths[:6], QUESTION)}
    assert [again[n].answer for n in range(6) if again[n] is not None] == NAMES  # type: ignore[union-attr]


def test_equal_documents_are_read_once(store: RunStore) -> None:
    async def slow(request: ChatRequest) -> str:
        await asyncio.sleep(0.01)
        return reply(request)

    reader = agent(store, model := ScriptedModel(slow, window=2048))
    found = list(reader.map(["in this house lives Anna."] * 3, QUESTION))
    assert [item.result and item.result.answer for item in found] == ["Anna"] * 3
    assert len(model.requests) == 2


@pytest.mark.parametrize("path", ["~$report.docx", "~nobody-here/*.md"])
def test_a_path_that_begins_with_a_tilde_is_an_error_of_its_own(store: RunStore, path: str) -> None:
    found = list(agent(store).map([Path(path), "in this house lives Anna."], QUESTION))
    assert {item.index: type(item.error) for item in found if item.error} == {0: DocumentNotFound}


def test_the_servers_address_and_reading_ahead_change_no_run(store: RunStore) -> None:
    def served(url: str | None, ahead: int) -> MemoryAgent:
        model = ScriptedModel(reply, window=2048)
        model.recipe = {"model": model.name, "base_url": url, "tokenizer": None}  # type: ignore[attr-defined]
        return agent(store, model, read_ahead=ahead, sampling=Sampling(temperature=0))

    readers = [served(None, 1), served("http://one/v1", 1), served("http://two/v1", 2)]
    texts = ["in this house lives Anna."]
    assert len({item.run_id for each in readers for item in each.map(texts, QUESTION)}) == 1


def test_what_is_finished_is_not_asked_again(store: RunStore, tmp_path: Path) -> None:
    paths = folder(tmp_path / "docs")
    first = {item.run_id for item in agent(store).map(paths, QUESTION)}
    reader = agent(store, model := ScriptedModel(reply, window=2048))
    assert {item.run_id for item in reader.map(paths, QUESTION)} == first
    assert model.requests == []
    other = {item.run_id for item in reader.map(paths, "Another question?")}
    assert not other & first
    warm = agent(store, model, seed=3)
    assert not {item.run_id for item in warm.map(paths, QUESTION)} & (first | other)


def test_a_document_that_changed_is_read_anew(store: RunStore, tmp_path: Path) -> None:
    paths = folder(tmp_path / "docs")

    async def part() -> None:
        def slow(request: ChatRequest) -> str:
            if "boris" in str(request.parts).lower():
                raise ServerFailed("it broke")
            return reply(request)

        async with aclosing(agent(store, slow).amap(paths, QUESTION)) as items:
            assert len([item async for item in items if item.error is None]) == 5

    asyncio.run(part())
    paths[1].write_text("in this house lives Bogdan. " * 40)  # half read
    paths[2].write_text("in this house lives Carmen. " * 40)  # finished
    found = {item.index: item for item in agent(store).map([*paths, tmp_path / "docs"], QUESTION)}
    results = [found[place].result for place in range(6)]
    assert [result and result.answer for result in results] == [
        "Anna",
        "Bogdan",
        "Carmen",
        "Dmitri",
        "Emma",
        "Felix",
    ]
    paths[0].write_text("in this house lives Agnes. " * 40)
    reader = agent(store, model := ScriptedModel(reply, window=2048))
    (folded,) = reader.map([tmp_path / "docs"], QUESTION)
    assert folded.run_id != found[6].run_id
    assert folded.error is None
    assert model.requests


def test_what_would_fail_for_all_ends_it(store: RunStore) -> None:
    def refused(request: ChatRequest) -> str:
        raise AuthenticationFailed("no such key")

    with pytest.raises(AuthenticationFailed):
        list(agent(store, refused).map(["in this house lives Anna."] * 5, QUESTION))


def test_leaving_early_stops_the_rest_and_a_second_call_finishes(store: RunStore) -> None:
    texts = [f"in this house lives {name}." for name in NAMES]
    asked: list[str] = []

    async def slow(request: ChatRequest) -> str:
        asked.append(str(request.parts))
        await asyncio.sleep(0.01 if "Anna" in str(request.parts) else 5)
        return reply(request)

    for item in agent(store, slow).map(texts, QUESTION, concurrency=2):
        assert item.index == 0
        break
    assert len(asked) <= 4
    found = list(agent(store).map(texts, QUESTION))
    assert sorted(item.result.answer for item in found if item.result) == NAMES  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("documents", "settings"),
    [
        ("one text", {}),
        (Path("one.txt"), {}),
        (["text"], {"concurrency": 0}),
        (["text"], {"run_id": "../x"}),
    ],
    ids=["a text", "a path", "no concurrency", "a bad name"],
)
def test_bad_arguments_are_refused(store: RunStore, documents: Any, settings: Any) -> None:
    with pytest.raises(ConfigError):
        list(agent(store).map(documents, QUESTION, **settings))


def test_several_questions_are_refused(store: RunStore) -> None:
    with pytest.raises(ConfigError, match="one question"):
        list(agent(store).map([], ["several"]))  # type: ignore[arg-type]


def test_no_document_is_no_result(store: RunStore) -> None:
    assert list(agent(store).map([], QUESTION)) == []


def test_memory_stays_flat(tmp_path: Path) -> None:
    def documents(count: int) -> Iterator[str]:
        for number in range(count):
            yield f"in house {number} lives Anna."

    def peak(count: int) -> int:
        reader = agent(RunStore(tmp_path / f"{count}.sqlite"), ScriptedModel(reply, window=2048))
        tracemalloc.start()
        for _ in reader.map(documents(count), QUESTION):
            reader.model.inner.requests.clear()  # type: ignore[attr-defined]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(5)
    assert peak(300) < 1.5 * peak(60) + 200_000


def test_errors_are_of_this_package(store: RunStore) -> None:
    (found,) = agent(store).map([b"\x00\x01\x02 binary \x00"], QUESTION)
    assert isinstance(found.error, MemagentError)
