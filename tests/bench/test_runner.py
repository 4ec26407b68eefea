"""Every sample under every system ends in one record, whatever ends the work in between."""

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.bench.fakes import (
    Listening,
    Raising,
    Toy,
    benchmark,
    grid,
    model,
    number_of,
    opening,
    read,
    run,
    toys,
)

from memagent import ChatRequest, RunStore, Usage
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ContextOverflow,
    ModelError,
    RunBusy,
    RunMismatch,
    StoreCorrupt,
    StoreFull,
)
from memagent.models.limit import Limits
from memagent.tasks import Sample
from memagent_bench.drafts import Drafts
from memagent_bench.folder import RUNS, SETTINGS, SPENT
from memagent_bench.grid import Job
from memagent_bench.records import RESULTS, every_record, read_records
from memagent_bench.systems.base import Outcome, Status
from memagent_bench.systems.registry import open_system
from memagent_bench.watch import Board

TWO_TASKS = toys("a", "b")


async def test_every_sample_under_every_system_has_one_record(tmp_path: Path) -> None:
    asked = grid(
        tasks=TWO_TASKS, lengths=(2000, 1000), samples=3, systems=("memory", "direct", "bm25")
    )
    summary = await run(benchmark(tmp_path, model=model(), grid=asked))
    assert (summary.missing, summary.impossible, summary.cut, summary.limit) == ([], {}, 0, None)
    records = await asyncio.to_thread(read_records, tmp_path)
    assert len(records) == 2 * 2 * 3 * 3
    assert len({record.key for record in records}) == len(records)
    assert {r.length for r in records[:9]} == {1000}, "short ones first: they give early results"
    for record in records:
        if record.system == "memory":
            assert record.score == 1.0
            assert record.chunks is not None
            assert record.usage.calls == record.chunks + 1 == record.predicted_calls
            assert record.provenance.chunker == "exact:400:utf8-bytes"
        wanted = number_of(record.task, record.length, record.index)
        assert record.outputs == (str(wanted),)
        assert record.scores[record.scorer] == record.score
    documents = {(r.task, r.length, r.index): r.document for r in records}
    assert all(r.document == documents[r.task, r.length, r.index] for r in records)
    assert len(set(documents.values())) == 12


async def test_a_second_session_does_only_what_is_left(tmp_path: Path) -> None:
    first = model()
    await run(benchmark(tmp_path, model=first, grid=grid(samples=2)))
    before = await asyncio.to_thread(read_records, tmp_path)
    again = model()
    await run(benchmark(tmp_path, model=again, grid=grid(samples=2)))
    assert again.requests == []
    more = model()
    wider = grid(tasks=TWO_TASKS, samples=3, lengths=(1000, 1500), systems=("memory", "direct"))
    await run(benchmark(tmp_path, model=more, grid=wider))
    after = await asyncio.to_thread(lambda: list(every_record(tmp_path)))
    assert after[:2] == before, "what was there is there, and is not done again"
    assert len(after) == len({record.key for record in after}) == 2 * 2 * 3 * 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"memory_tokens": 80, "sampling": {"temperature": 0.0}},
            r"memory_tokens was \d+, is 80; temperature was 0.7",
        ),
        ({"reread": 2}, "reread was None, is 2"),
        ({"degenerate": "take"}, "degenerate was None, is 'take'"),
    ],
)
async def test_settings_that_change_results_cannot_change(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    await run(benchmark(tmp_path, model=model(), grid=grid()))
    with pytest.raises(RunMismatch, match=said):
        await run(benchmark(tmp_path, model=model(), grid=grid(samples=3), **changed))


async def test_a_server_with_another_window_needs_another_folder(tmp_path: Path) -> None:
    await run(benchmark(tmp_path, model=model(), grid=grid()))
    with pytest.raises(RunMismatch, match="window was 1408, is 2000"):
        await run(benchmark(tmp_path, model=model(window=2000), grid=grid()))


async def test_other_weights_under_the_same_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: "first")
    await run(benchmark(tmp_path, model=model(), grid=grid()))
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: "second")
    for samples in (2, 3):
        with pytest.raises(RunMismatch, match=r"weights was 'first', is 'second'.*another --out"):
            await run(benchmark(tmp_path, model=model(), grid=grid(samples=samples)))
    assert json.loads((tmp_path / SETTINGS).read_text())["settings"]["weights"] == "first"


async def test_weights_are_not_read_to_forecast_the_work_of_a_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: pytest.fail("read"))
    bench = benchmark(tmp_path / "new", model=model(), grid=grid())
    assert await asyncio.to_thread(bench.list_remaining, await bench.plan())
    assert not (tmp_path / "new").exists()


async def test_other_weights_are_refused_in_a_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: "first")
    bench = benchmark(tmp_path, model=model(), grid=grid())
    await run(bench)
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: "second")
    plan = await bench.plan()
    with pytest.raises(RunMismatch, match="weights was 'first', is 'second'"):
        await asyncio.to_thread(bench.list_remaining, plan)


async def test_a_folder_of_a_version_that_did_not_digest_weights_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(benchmark(tmp_path, model=model(), grid=grid()))
    before = {record.run_id for record in read_records(tmp_path)}
    assert "weights" not in json.loads((tmp_path / SETTINGS).read_text())["settings"]
    (tmp_path / RESULTS).unlink()
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: "first")
    silent = model(lambda _: AssertionError("a committed call is sent again"))
    await run(benchmark(tmp_path, model=silent, grid=grid()))
    assert {record.run_id for record in read_records(tmp_path)} == before
    monkeypatch.setattr("memagent_bench.benchmark.weights_of", lambda _: "second")
    with pytest.raises(RunMismatch, match="weights was 'first', is 'second'"):
        await run(benchmark(tmp_path, model=model(), grid=grid()))


async def test_data_that_differ_though_the_options_do_not_are_refused(tmp_path: Path) -> None:
    await run(benchmark(tmp_path, model=model(), grid=grid(samples=1)))

    class Other(Toy):
        @property
        def facts(self) -> dict[str, str | int | bool]:
            return super().facts | {"haystack": "another"}

    tasks = {"a": lambda length, options: Other("a", length)}
    with pytest.raises(RunMismatch, match="haystack was 'toy', is 'another'"):
        await run(benchmark(tmp_path, model=model(), grid=grid(tasks=tasks, samples=2)))


async def test_records_of_unknown_making_are_not_added_to(tmp_path: Path) -> None:
    await run(benchmark(tmp_path, model=model(), grid=grid()))
    (tmp_path / SETTINGS).unlink()
    with pytest.raises(RunMismatch, match="use another --out"):
        await run(benchmark(tmp_path, model=model(), grid=grid()))


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 2, "settings": {}}'])
async def test_damaged_settings_are_named(tmp_path: Path, damage: str) -> None:
    await asyncio.to_thread((tmp_path / SETTINGS).write_text, damage)
    with pytest.raises(StoreCorrupt, match=SETTINGS):
        await run(benchmark(tmp_path, model=model(), grid=grid()))


async def test_one_process_at_a_time(tmp_path: Path) -> None:
    bench = benchmark(tmp_path, model=model(), grid=grid())
    async with bench.open():
        with pytest.raises(RunBusy, match="another process is writing"):
            await run(benchmark(tmp_path, model=model(), grid=grid()))
    await run(bench)
    assert len(await asyncio.to_thread(read_records, tmp_path)) == 2


# --- failures


async def test_a_failure_is_a_record_without_a_score_and_is_tried_again(tmp_path: Path) -> None:
    systems = {"raising": Raising(None, ValueError("broken"), QuestionError("too long"))}
    asked = grid(samples=4, systems=("raising",))
    bench = benchmark(tmp_path, model=model(), grid=asked, concurrency=1)
    summary = await run(bench, open_system=opening(systems))
    records = await asyncio.to_thread(read_records, tmp_path)
    assert [record.status for record in records] == [
        Status.ANSWERED,
        Status.FAILED,
        Status.FAILED,
        Status.ANSWERED,
    ]
    assert [record.score for record in records] == [1.0, None, None, 1.0]
    assert [record.detail for record in records[1:3]] == [
        "ValueError: broken",
        "QuestionError: too long",
    ]
    assert summary.missing == records[1:3]
    summary = await run(
        benchmark(tmp_path, model=model(), grid=asked), open_system=opening({"raising": Raising()})
    )
    assert summary.missing == []
    records = await asyncio.to_thread(read_records, tmp_path)
    assert [record.score for record in records] == [1.0] * 4
    assert len(await asyncio.to_thread(lambda: list(every_record(tmp_path)))) == 6


class QuestionError(ConfigError):
    """Of one sample alone."""


async def test_a_run_that_failed_goes_on_in_its_middle(tmp_path: Path) -> None:
    asked = grid(samples=1, lengths=(4000,))
    answers = iter(range(100))

    def fails_at_the_fifth_call(request: ChatRequest) -> str:
        if next(answers) == 4:
            raise ModelError("gone")
        return read(request)

    first = model(fails_at_the_fifth_call)
    summary = await run(benchmark(tmp_path, model=first, grid=asked))
    (failed,) = summary.missing
    assert failed.detail == "ModelError: gone"
    assert failed.usage.calls == 4
    second = model()
    await run(benchmark(tmp_path, model=second, grid=asked))
    (record,) = await asyncio.to_thread(read_records, tmp_path)
    assert record.resumed
    assert record.score == 1.0
    assert record.chunks is not None
    assert record.usage.calls == record.chunks + 1
    assert len(second.requests) == record.usage.calls - 4, "committed calls are not sent again"


async def test_a_dead_model_ends_the_session_early(tmp_path: Path) -> None:
    def dead(request: ChatRequest) -> str:
        raise ConnectionFailed("nobody answers")

    bench = benchmark(tmp_path, model=model(dead), grid=grid(samples=50), concurrency=2)
    with pytest.raises(ModelError, match=r"failed on 5 samples in a row.*nobody answers"):
        await run(bench)
    records = await asyncio.to_thread(read_records, tmp_path)
    assert 5 <= len(records) <= 6
    assert [record.usage for record in records] == [Usage(retries=1)] * len(records)


async def test_systems_without_a_model_do_not_hide_that_it_is_dead(tmp_path: Path) -> None:
    def dead(request: ChatRequest) -> str:
        raise ConnectionFailed("nobody answers")

    asked = grid(samples=50, systems=("direct", "bm25", "extractive"))
    with pytest.raises(ModelError, match=r"failed on 5 samples in a row.*nobody answers"):
        await run(benchmark(tmp_path, model=model(dead), grid=asked, concurrency=3))


class Says:
    """A system that returns what it is given."""

    name = "says"

    def __init__(self, *outcomes: object) -> None:
        self.outcomes = list(outcomes)

    async def answer(self, sample: Sample, run_id: str) -> Any:
        return self.outcomes.pop(0)


async def test_only_an_answer_is_an_answer(tmp_path: Path) -> None:
    outcomes = (
        Outcome(answer="half of", status=Status.STOPPED, detail="cut"),
        Outcome(answer="all of", status=Status.FAILED, detail="gone"),
        Outcome(answer=None),
        "no outcome",
        Outcome(answer=""),
    )
    bench = benchmark(
        tmp_path, model=model(), grid=grid(samples=5, systems=("says",)), concurrency=1
    )
    await run(bench, open_system=opening({"says": Says(*outcomes)}))
    records = await asyncio.to_thread(read_records, tmp_path)
    assert [(r.status, r.answer, r.score, r.detail) for r in records] == [
        (Status.STOPPED, None, None, "cut"),
        (Status.FAILED, None, None, "gone"),
        (Status.FAILED, None, None, "the system returned no answer"),
        (
            Status.FAILED,
            None,
            None,
            "TypeError: 'says' returned 'no outcome', which is not an Outcome",
        ),
        (Status.ANSWERED, "", 0.0, ""),
    ]


async def test_failures_between_answers_end_nothing(tmp_path: Path) -> None:
    errors = [ModelError("now and then"), None] * 10
    bench = benchmark(
        tmp_path, model=model(), grid=grid(samples=20, systems=("raising",)), concurrency=1
    )
    summary = await run(bench, open_system=opening({"raising": Raising(*errors)}))
    assert len(summary.missing) == 10


@pytest.mark.parametrize("error", [AuthenticationFailed("wrong key"), StoreFull("no room")])
async def test_what_no_sample_would_survive_is_not_recorded(
    tmp_path: Path, error: Exception
) -> None:
    bench = benchmark(tmp_path, model=model(), grid=grid(samples=9, systems=("raising",)))
    with pytest.raises(type(error), match=str(error)):
        await run(bench, open_system=opening({"raising": Raising(*[error] * 9)}))
    assert await asyncio.to_thread(read_records, tmp_path) == []


async def test_samples_that_cannot_be_made_are_said_and_left_out(tmp_path: Path) -> None:
    tasks = toys("a") | toys("short", last=2)
    told: list[Listening] = []

    def listen(board: Board) -> Listening:
        told.append(Listening(board))
        return told[-1]

    bench = benchmark(tmp_path, model=model(), grid=grid(tasks=tasks, samples=4), concurrency=1)
    summary = await run(bench, watch=listen)
    reasons = {index: f"short has 2 samples, and no sample {index}" for index in (2, 3)}
    assert summary.impossible == {("short", 1000): reasons}
    assert len(await asyncio.to_thread(read_records, tmp_path)) == 4 + 2
    assert told[0].board.ended == 8
    assert told[0].board.fraction == 1


async def test_one_sample_that_cannot_be_made_leaves_the_rest_of_its_cell(tmp_path: Path) -> None:
    class Gap(Toy):
        def sample(self, index: int):
            if index == 1:
                raise ConfigError("the question is too long")
            return super().sample(index)

    tasks = {"a": lambda length, options: Gap("a", length)}
    summary = await run(benchmark(tmp_path, model=model(), grid=grid(tasks=tasks, samples=5)))
    assert summary.impossible == {("a", 1000): {1: "the question is too long"}}
    assert len(await asyncio.to_thread(read_records, tmp_path)) == 4


async def test_a_task_that_cannot_be_built_is_built_once(tmp_path: Path) -> None:
    built: list[int] = []

    def build(length: int, options: object) -> Toy:
        built.append(length)
        raise ConfigError("there is no data")

    summary = await run(
        benchmark(tmp_path, model=model(), grid=grid(tasks={"a": build}, samples=9))
    )
    assert built == [1000]
    assert set(summary.impossible["a", 1000]) == set(range(9))


async def test_prompts_over_the_window_end_no_other_sample(tmp_path: Path) -> None:
    too_long = Raising(*[ContextOverflow("32K into 8K")] * 9)
    asked = grid(samples=9, systems=("raising", "memory"))
    bench = benchmark(tmp_path, model=model(), grid=asked, concurrency=1)

    def open_either(name: str, setting: Any) -> Any:
        return too_long if name == "raising" else open_system(name, setting)

    summary = await run(bench, open_system=open_either)
    assert len(summary.missing) == 9
    records = await asyncio.to_thread(read_records, tmp_path)
    assert sum(record.status is Status.ANSWERED for record in records) == 9


async def test_an_answer_that_cannot_be_scored_is_a_failure(tmp_path: Path) -> None:
    class Blank(Toy):
        def sample(self, index: int):
            return super().sample(index).model_copy(update={"outputs": (" ",)})

    tasks = {"a": lambda length, options: Blank("a", length)}
    summary = await run(benchmark(tmp_path, model=model(), grid=grid(tasks=tasks, samples=1)))
    assert "cannot be scored" in summary.missing[0].detail


# --- limits


async def test_a_limit_ends_the_session_and_the_next_one_goes_on(tmp_path: Path) -> None:
    asked = grid(samples=4, lengths=(4000,))
    whole = model()
    await run(benchmark(tmp_path / "whole", model=whole, grid=asked))
    calls, sent, sessions = 10, 0, 0
    while True:
        limited = model()
        bench = benchmark(tmp_path / "cut", model=limited, grid=asked, limits=Limits(calls=calls))
        summary = await run(bench)
        sent += len(limited.requests)
        sessions += 1
        assert sent <= calls, "earlier sessions count"
        assert summary.missing == [], "a sample that a limit ended has not failed"
        if summary.limit is None:
            break
        assert f"calls={calls}" in summary.limit
        assert summary.cut > 0 or sent == calls
        calls += 10
    assert sessions > 3
    assert sent == len(whole.requests), "nothing is sent twice"
    ours = await asyncio.to_thread(read_records, tmp_path / "cut")
    theirs = await asyncio.to_thread(read_records, tmp_path / "whole")
    assert {r.key: (r.answer, r.score, r.usage) for r in ours} == {
        r.key: (r.answer, r.score, r.usage) for r in theirs
    }


async def test_calls_of_samples_that_keep_no_run_count_too(tmp_path: Path) -> None:
    asked = grid(samples=1, lengths=(4000,), systems=("map-reduce",))

    async def session(calls: int) -> tuple[int, str | None]:
        limited = model()
        bench = benchmark(tmp_path, model=limited, grid=asked, limits=Limits(calls=calls))
        summary = await run(bench)
        return len(limited.requests), summary.limit

    assert (await session(4))[0] == 4
    assert await session(4) == (
        0,
        "the limit calls=4 is reached (4 spent); raise it and resume the run",
    )
    assert (await session(7))[0] == 3
    sent, limit = await session(1000)
    assert (sent > 7, limit) == (True, None)
    (record,) = await asyncio.to_thread(read_records, tmp_path)
    assert record.usage.calls == sent, "what earlier sessions took is no part of it"


async def test_what_cannot_be_noted_hides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = grid(samples=1, lengths=(4000,), systems=("map-reduce",))
    await asyncio.to_thread((tmp_path / SPENT).symlink_to, tmp_path / RESULTS / "spent.json")
    bench = benchmark(tmp_path, model=model(), grid=asked, limits=Limits(calls=4))
    with caplog.at_level(logging.WARNING, "memagent"):
        assert (await run(bench)).limit is not None
    assert "could not be saved for later limits" in caplog.text
    await asyncio.to_thread((tmp_path / SPENT).unlink)
    await asyncio.to_thread((tmp_path / SPENT).write_text, "{")
    bench = benchmark(tmp_path, model=model(), grid=asked, limits=Limits(calls=8))
    with pytest.raises(StoreCorrupt, match=r"spent\.json' is damaged: remove it"):
        await run(bench)


async def test_calls_of_a_system_with_a_model_of_its_own_count_for_no_limit(tmp_path: Path) -> None:
    asked = grid(samples=1, lengths=(4000,), systems=("extractive", "memory"))
    whole = model()
    await run(benchmark(tmp_path / "whole", model=whole, grid=asked))
    calls = len(whole.requests)
    first = grid(samples=1, lengths=(4000,), systems=("extractive",))
    await run(benchmark(tmp_path / "cut", model=model(), grid=first, limits=Limits(calls=1)))
    limited = model()
    bench = benchmark(tmp_path / "cut", model=limited, grid=asked, limits=Limits(calls=calls))
    assert (await run(bench)).limit is None
    assert len(limited.requests) == calls


@pytest.mark.parametrize(
    "limits",
    [
        Limits(tokens=3000),
        Limits(seconds=0),
        Limits(cost=0.001, prompt_price=1.0, completion_price=1.0),
    ],
)
async def test_each_kind_of_limit_ends_the_session(tmp_path: Path, limits: Limits) -> None:
    asked = grid(samples=4, lengths=(4000,), systems=("direct", "memory", "map-reduce"))
    summary = await run(benchmark(tmp_path, model=model(), grid=asked, limits=limits))
    assert summary.limit is not None
    assert summary.missing == []
    assert len(await asyncio.to_thread(read_records, tmp_path)) < 12


# --- interruptions


@pytest.mark.parametrize("after", [1, 7, 20])
async def test_a_cancelled_session_goes_on_where_it_was(tmp_path: Path, after: int) -> None:
    asked = grid(samples=3, lengths=(2000, 4000))
    enough = asyncio.Event()
    sent: Counter[str] = Counter()

    async def slow(request: ChatRequest) -> str:
        sent[
            f"{request.parts['question']} {request.seed} {len(request.parts.get('chunk', ''))}"
        ] += 1
        if sum(sent.values()) == after:
            enough.set()
        await asyncio.sleep(0.001)
        return read(request)

    work = asyncio.ensure_future(run(benchmark(tmp_path, model=model(slow), grid=asked)))
    await enough.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    before = sum(sent.values())
    await run(benchmark(tmp_path, model=model(slow), grid=asked))
    records = await asyncio.to_thread(lambda: list(every_record(tmp_path)))
    assert len(records) == len({record.key for record in records}) == 6
    total = sum(record.usage.calls for record in records)
    assert total <= sum(sent.values()) <= total + 4, "at most the calls in flight came twice"
    assert before < total


# --- parts


def test_run_ids_are_stable_valid_and_apart() -> None:
    job = Job("ruler", "niah_single_1", 131072, 17, "memory")
    assert job.run_id("d") == Job("ruler", "niah_single_1", 131072, 17, "memory").run_id("d")
    others = [
        Job("qa", "niah_single_1", 131072, 17, "memory"),
        Job("ruler", "niah_single_2", 131072, 17, "memory"),
        Job("ruler", "niah_single_1", 131073, 17, "memory"),
        Job("ruler", "niah_single_1", 131072, 18, "memory"),
        Job("ruler", "niah_single_1", 131072, 17, "my.module:make system/ö"),
        Job("ruler", "x" * 300, 131072, 17, "memory"),
    ]
    ids = {one.run_id("d") for one in [job, *others]} | {job.run_id("e")}
    assert len(ids) == 8
    assert job.run_id("d").startswith("ruler-niah_single_1-131072-17-memory-")


async def test_samples_at_work_are_bounded_and_shared() -> None:
    made: list[int] = []

    class Counting(Toy):
        def sample(self, index: int):
            made.append(index)
            return super().sample(index)

    asked = grid(tasks={"a": lambda length, options: Counting("a", length)}, lengths=(1000,))
    drafts = Drafts(asked, {}, chars=2500)
    jobs = [Job("tracking", "a", 1000, index, "memory") for index in range(3)]
    first = await drafts.begin(jobs[0], 2)
    assert len((await first.get()).sample.context) <= 1000
    # Until it is made, a sample is taken for 5 characters a token: that would not fit beside another one.
    waiting = asyncio.ensure_future(drafts.begin(jobs[1], 1))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    first.leave()
    await asyncio.sleep(0.01)
    assert not waiting.done(), "one of two systems still has it"
    first.leave()
    second = await asyncio.wait_for(waiting, 5)
    await second.get()
    second.leave()
    drafts.close()
    assert made == [0, 1], "each is made once"


async def test_the_store_keeps_what_diagnosis_needs(tmp_path: Path) -> None:
    await run(benchmark(tmp_path, model=model(), grid=grid(samples=1)))
    (record,) = await asyncio.to_thread(read_records, tmp_path)
    store = await asyncio.to_thread(RunStore, tmp_path / RUNS)
    events = await asyncio.to_thread(lambda: list(store.events(str(record.run_id))))
    store.close()
    assert events[0].type == "run_started"
    settings = json.loads((tmp_path / SETTINGS).read_text())["settings"]
    assert settings["counter"] == "utf8-bytes"
