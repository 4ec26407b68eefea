"""Which questions a model answers without reading."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.bench.longqa import data as made
from tests.train.data.files import COUNTER, data, jsonl, rows, settings

from memagent.errors import ConfigError, ModelError
from memagent.messages import ChatRequest
from memagent.models.scripted import ScriptedModel
from memagent_train.data.no_context import Tries, open_questions, try_without_context
from memagent_train.data.sources import QuestionSource
from memagent_train.data.tried_questions import TriedQuestion, read_tried
from memagent_train.errors import DataError, DiskFull


def source(path: Path, **more: object) -> QuestionSource:
    given = settings({"kind": "jsonl", "files": [path], **more})
    return open_questions(given, 0, counter=COUNTER)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "a.jsonl", rows(6))


def knowing(*houses: int, window: int | None = 8192) -> ScriptedModel:
    """A model that knows the windows of some houses; of house 3 only at every other try."""

    def reply(request: ChatRequest) -> str:
        found = re.search(r"windows has house (\d+)", request.messages[0].content)
        house = int(found[1]) if found else -1
        sure = house in houses and (house != 3 or (request.seed or 0) % 3 == 0)
        return f"<think>hm</think>{3 * house}" if sure else "no idea"

    return ScriptedModel(reply, window=window)


async def tried_in(path: Path) -> dict[int, TriedQuestion]:
    return (await asyncio.to_thread(read_tried, path)).tried


async def test_questions_that_are_known_are_left_out(table: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "tried.jsonl", list[tuple[int, int]]()
    model = knowing(1, 4)
    opened = await asyncio.to_thread(source, table)
    tally = await try_without_context(
        opened, model, out, Tries(tries=3), done=lambda *n: told.append(n)
    )
    assert (tally.questions, tally.right, tally.tries) == (6, 6, 18)
    assert told == [(i, 6) for i in range(7)]
    assert len({request.seed for request in model.requests}) == 18
    assert not any("has 3 windows" in request.messages[0].content for request in model.requests)
    left = await asyncio.to_thread(data, {"kind": "jsonl", "files": [table], "no_context": out})
    assert {left.sample(i).index for i in range(len(left))} == {0, 2, 3, 5}


async def test_it_goes_on_where_it_was_ended(table: Path, tmp_path: Path) -> None:
    out, opened = tmp_path / "tried.jsonl", await asyncio.to_thread(source, table)
    whole = tmp_path / "whole.jsonl"
    how = Tries(tries=4, concurrency=1)
    await try_without_context(opened, knowing(3, 4), whole, how)
    calls = 0

    async def failing(request: ChatRequest) -> str:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise ModelError("the server is gone")
        return (await knowing(3, 4).complete(request)).text

    with pytest.raises(ModelError):
        await try_without_context(opened, ScriptedModel(failing), out, how)
    assert len(await tried_in(out)) == 2
    with out.open("ab") as file:
        file.write(b'{"index": 2, "ri')
    with pytest.raises(DataError, match="lacks 4 of 6"):
        await asyncio.to_thread(data, {"kind": "jsonl", "files": [table], "no_context": out})
    model = knowing(3, 4)
    tally = await try_without_context(opened, model, out, how)
    assert (tally.questions, len(model.requests)) == (6, 16)
    assert await tried_in(out) == await tried_in(whole)
    assert 0 < (await tried_in(out))[3].right < 4
    again = knowing()
    await try_without_context(opened, again, out, how)
    assert again.requests == []


async def test_cancelling_keeps_what_is_done(table: Path, tmp_path: Path) -> None:
    out, opened = tmp_path / "tried.jsonl", await asyncio.to_thread(source, table)

    reached = asyncio.Event()

    async def slow(request: ChatRequest) -> str:
        if "house 4" in request.messages[0].content:
            reached.set()
            await asyncio.sleep(3600)
        return "3"

    trying = asyncio.create_task(
        try_without_context(opened, ScriptedModel(slow), out, Tries(tries=1, concurrency=1))
    )
    await reached.wait()
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert sorted(await tried_in(out)) == [0, 1, 2, 3]
    model = knowing()
    await try_without_context(opened, model, out, Tries(tries=1, concurrency=2))
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tries": 5}, "tries was 4, is 5"),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"model": "other"}, "model was 'scripted', is 'other'"),
        ({"rows": 5}, "data was"),
    ],
)
async def test_another_file_is_needed_for_other_settings(
    change: dict[str, object], said: str, table: Path, tmp_path: Path
) -> None:
    out, opened = tmp_path / "tried.jsonl", await asyncio.to_thread(source, table)
    await try_without_context(opened, knowing(), out, Tries())
    before = out.read_bytes()
    model = ScriptedModel([], name=str(change.pop("model", "scripted")))
    if number := change.pop("rows", None):
        opened = await asyncio.to_thread(source, table, count=number)
    with pytest.raises(DataError, match=said):
        await try_without_context(opened, model, out, Tries(**change))  # type: ignore[arg-type]
    assert out.read_bytes() == before


async def test_two_at_once_are_refused(table: Path, tmp_path: Path) -> None:
    out, opened = tmp_path / "tried.jsonl", await asyncio.to_thread(source, table)
    started = asyncio.Event()

    async def waiting(request: ChatRequest) -> str:
        started.set()
        await asyncio.sleep(3600)
        return ""

    first = asyncio.create_task(try_without_context(opened, ScriptedModel(waiting), out))
    await started.wait()
    with pytest.raises(DataError, match="another process is writing"):
        await try_without_context(opened, knowing(), out)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_faults_of_the_file_are_told(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await asyncio.to_thread(source, table)
    with pytest.raises(DataError, match="cannot write"):
        await try_without_context(opened, knowing(), table / "out.jsonl")
    (odd := tmp_path / "odd.jsonl").write_text("something else\n")
    with pytest.raises(DataError, match="not a file of answers"):
        await try_without_context(opened, knowing(), odd)
    (full := tmp_path / "full.jsonl").symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="No space left"):
        await try_without_context(opened, knowing(), full)


async def test_questions_of_files_are_tried_too(tmp_path: Path) -> None:
    file = made.write(tmp_path / "h.json", made.hotpot())
    given = settings({"kind": "ruler"}, {"kind": "hotpotqa", "files": [file], "lengths": 1024})
    opened = await asyncio.to_thread(open_questions, given, 1, counter=COUNTER)

    def reply(request: ChatRequest) -> str:
        return "41" if "Bo Carter" in request.messages[0].content else "I cannot say"

    await try_without_context(opened, ScriptedModel(reply), tmp_path / "out.jsonl", Tries(tries=1))
    tried = await tried_in(tmp_path / "out.jsonl")
    assert tried[1] == TriedQuestion(index=1, right=1, tries=1)
    assert sum(one.right for one in tried.values()) == 1


def test_sources_without_such_questions_are_refused(table: Path) -> None:
    given = settings(
        {"kind": "ruler"}, {"kind": "jsonl", "files": [table], "no_context": "/not/there"}
    )
    with pytest.raises(ConfigError, match="kind 'ruler'"):
        open_questions(given, 0, counter=COUNTER)
    with pytest.raises(ConfigError, match="no source 2"):
        open_questions(given, 2, counter=COUNTER)
    assert len(open_questions(given, 1, counter=COUNTER)) == 6


async def test_nothing_to_try_is_refused(table: Path, tmp_path: Path) -> None:
    opened = await asyncio.to_thread(source, table)
    for how in (Tries(tries=0), Tries(concurrency=0)):
        with pytest.raises(ConfigError, match="must be at least 1"):
            await try_without_context(opened, knowing(), tmp_path / "out.jsonl", how)


async def test_values_are_known_when_all_are_listed(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{**rows(1)[0], "answers": ["red", "blue"]}])
    opened = await asyncio.to_thread(source, path, scorer="values")
    for reply, right in {"red": 0, "blue, red": 2}.items():
        out = tmp_path / f"{right}.jsonl"
        tally = await try_without_context(opened, ScriptedModel([reply] * 2), out, Tries(tries=2))
        assert tally.right == right
