"""Runs of sessions: every one has its record, once, and what failed is told from what was lost."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import Script

from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ModelError,
    RunMismatch,
    ServerFailed,
    StoreCorrupt,
)
from memagent.messages import ChatRequest, Completion, ToolCall, Usage
from memagent.models.scripted import ScriptedModel
from memagent.models.spec import open_model
from memagent_bench.games import expert
from memagent_bench.sessions.arms import arms
from memagent_bench.sessions.bench import SessionBench
from memagent_bench.sessions.grid import Grid, Job
from memagent_bench.sessions.record import SESSIONS, Reason, SessionRecord, read_sessions
from memagent_bench.systems.base import Status


def grid(*, games: Sequence[str] = ("heaviest",), seeds: int = 2, systems: str = "full") -> Grid:
    ways = arms(systems.split(","), working_contexts=(2048,), summaries=(50,), kept=5)
    return Grid(games=games, difficulties=(12,), seeds=range(seeds), arms=ways)


def bench(out: Path, plan: Grid | None = None, **more: Any) -> SessionBench:
    return SessionBench(plan or grid(), out, **more)


async def run(made: SessionBench) -> list[SessionRecord]:
    async with made.open() as playing:
        return await playing.run(lambda *_: None)


async def test_all_systems_play_the_same_games(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = bench(
        tmp_path, grid(games=("deck", "heaviest"), systems="full,drop-oldest,mask,summary")
    )
    async with made.open() as playing:
        records = await playing.run(lambda _, done, total: told.append((done, total)))
    assert told == [(n, 16) for n in range(1, 17)]
    assert [record.key for record in records] == [tuple(job) for job in made.grid.jobs()]
    assert {record.score for record in records} == {1.0}
    for game, seed in {(record.game, record.seed) for record in records}:
        same = [r for r in records if (r.game, r.seed) == (game, seed)]
        assert len({r.answer for r in same}) == 1
        # Twelve steps fit all of them: nothing is dropped, so they pay the same, but for the tool of the summary's.
        assert len({r.usage.prompt_tokens for r in same if r.arm.system != "summary"}) == 1
        assert len({r.steps for r in same}) == 1
    assert records == read_sessions(tmp_path)


async def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    first = await run(bench(tmp_path, grid(seeds=1)))
    with (tmp_path / SESSIONS).open("a") as file:
        file.write('{"game": "hea')  # a killed writer's
    second = await run(bench(tmp_path, grid(seeds=3)))
    assert [record.seed for record in second] == [1, 2]
    assert read_sessions(tmp_path) == [*first, *second]
    assert await run(bench(tmp_path, grid(seeds=3))) == []


async def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    await run(bench(tmp_path, grid(seeds=1)))
    others: list[dict[str, Any]] = [
        {"window": 9000},
        {"protocol": "text"},
        {"tokenizer": "bytes"},
    ]
    for other in others:
        with pytest.raises(RunMismatch, match=next(iter(other)).replace("tokenizer", "counter")):
            await run(bench(tmp_path, **other))


async def test_other_request_fields_in_the_same_folder_are_refused(
    tmp_path: Path, server: Script
) -> None:
    server.be_vllm()

    async def opened(**more: Any) -> None:
        async with (
            aclosing(open_model("vllm:tiny", base_url=server.url, **more)) as model,
            bench(tmp_path, model=model).open(),
        ):
            pass

    await opened()
    with pytest.raises(RunMismatch, match="extra_body was None, is"):
        await opened(extra_body={"top_k": 1})


async def test_other_weights_in_the_same_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(bench(tmp_path, grid(seeds=1)))
    for digest in ("first", "first"):  # a folder without a digest gets one
        monkeypatch.setattr("memagent_bench.sessions.bench.weights_of", lambda _, d=digest: d)
        assert await run(bench(tmp_path, grid(seeds=1))) == []
    monkeypatch.setattr("memagent_bench.sessions.bench.weights_of", lambda _: "second")
    with pytest.raises(RunMismatch, match="weights was 'first', is 'second'"):
        await run(bench(tmp_path, grid(seeds=1)))


async def test_an_overflow_stands_and_a_failure_is_tried_again(tmp_path: Path) -> None:
    (lost,) = await run(bench(tmp_path / "over", grid(seeds=1), window=1000))
    assert (lost.score, lost.status, lost.reason) == (None, Status.STOPPED, Reason.OVERFLOW)
    assert "exceeds its window of 1000" in lost.detail
    assert 0 < lost.largest_prompt <= 1000
    assert lost.usage.calls == lost.steps > 0
    assert await run(bench(tmp_path / "over", grid(seeds=1), window=1000)) == []

    failing = True

    def reply(request: ChatRequest) -> Any:
        return ServerFailed("down", attempts=4) if failing else "paid"

    model = ScriptedModel(reply, window=None)
    (failed,) = await run(bench(tmp_path / "down", grid(seeds=1), model=model))
    assert (failed.score, failed.status, failed.reason) == (None, Status.FAILED, Reason.ERROR)
    assert failed.detail == "ServerFailed: down"
    assert failed.usage == Usage(retries=4)
    failing = False
    (done,) = await run(bench(tmp_path / "down", grid(seeds=1), model=model))
    assert done.score == 1
    assert read_sessions(tmp_path / "down") == [done]
    assert (tmp_path / "down" / SESSIONS).read_text().count("\n") == 2


async def test_a_wrong_answer_is_zero(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: "It is seven.", window=None)
    (record,) = await run(bench(tmp_path, grid(seeds=1), model=model, player="model"))
    assert (record.score, record.status, record.answer) == (0, Status.ANSWERED, "It is seven.")


async def test_a_model_that_plays_is_asked_itself(tmp_path: Path) -> None:
    player = expert("heaviest")

    def reply(request: ChatRequest) -> Completion | ToolCall | str:
        assert request.max_tokens > 1
        return player.reply(request.messages, request.kind)

    model = ScriptedModel(reply, window=None)
    (record,) = await run(bench(tmp_path, grid(seeds=1), model=model, player="model"))
    assert record.score == 1
    assert record.origin.player == "model"


async def test_a_model_that_only_fails_ends_the_run(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: ServerFailed("down"), window=None)
    with pytest.raises(ModelError, match="5 sessions failed in a row"):
        await run(bench(tmp_path, grid(seeds=9), model=model))
    assert len(read_sessions(tmp_path)) == 5
    refused = ScriptedModel(lambda _: AuthenticationFailed("who?"), window=None)
    with pytest.raises(AuthenticationFailed):
        await run(bench(tmp_path / "refused", model=refused))
    assert read_sessions(tmp_path / "refused") == []


async def test_a_setting_that_cannot_work_is_no_failure_of_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(
        lambda _: ConfigError("no such calls; use the text protocol"), window=None
    )
    with pytest.raises(ConfigError, match="use the text protocol"):
        await run(bench(tmp_path, grid(seeds=9), model=model))
    assert read_sessions(tmp_path) == []


async def test_several_at_once_make_the_same_records(tmp_path: Path) -> None:
    plan = grid(seeds=5, systems="full,summary")
    one = await run(bench(tmp_path / "one", plan))
    many = await run(bench(tmp_path / "many", plan, concurrency=4))

    def figures(records: list[SessionRecord]) -> set[tuple[object, ...]]:
        return {(r.key, r.score, r.steps, r.usage.prompt_tokens) for r in records}

    assert figures(one) == figures(many)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model to play"):
        bench(tmp_path, player="model")
    with pytest.raises(ConfigError, match="--window"):
        bench(tmp_path, window=100, model=ScriptedModel([]))


async def test_a_bad_difficulty_leaves_no_folder(tmp_path: Path) -> None:
    plan = Grid(games=("deck",), difficulties=(12, 7), seeds=(1,), arms=grid().arms)
    with pytest.raises(ConfigError, match=r"difficulty must be .* got 7"):
        await run(bench(tmp_path / "new", plan))
    assert not (tmp_path / "new").exists()


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    await run(bench(tmp_path, grid(seeds=1)))
    whole = json.loads((tmp_path / SESSIONS).read_bytes())
    for change in ({"difficulty": 0}, {"steps": -1}, {"seconds": -1.0}, {"status": "failed"}):
        (tmp_path / SESSIONS).write_text(f"{json.dumps(whole)}\n{json.dumps(whole | change)}\n")
        with pytest.raises(
            StoreCorrupt, match=f"line 2 is not a record .{next(iter(change))} must"
        ):
            await run(bench(tmp_path))
    (tmp_path / SESSIONS).write_text(json.dumps(whole) + '\n{"game": "hea"}\n')
    with pytest.raises(StoreCorrupt, match="line 2"):
        await run(bench(tmp_path))


async def test_records_say_where_they_come_from(tmp_path: Path) -> None:
    plan = grid(seeds=1)
    made = bench(tmp_path, plan)
    (record,) = await run(made)
    origin = record.origin
    assert (origin.player, origin.model, origin.server) == ("expert", "none", None)
    assert origin.counter == made.counter.name == "chatml:tiktoken:gpt2"
    bound = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert bound["prompts"] == origin.prompts
    assert record.key == tuple(Job("heaviest", 12, 0, plan.arms[0]))
