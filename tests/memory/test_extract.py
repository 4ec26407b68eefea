"""Rows of a document: exact as far as the model finds them, each once, with its place."""

import asyncio
import json
import math
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, SecretStr, field_validator
from tests.disk import full_disk

from memagent import (
    ChatRequest,
    Completion,
    Extraction,
    Limits,
    MemoryAgent,
    Result,
    RunStore,
    Sampling,
    ScriptedModel,
    StopReason,
)
from memagent.errors import ConfigError, EmptyDocument, QuestionTooLong, RunMismatch
from memagent.events import RunStarted
from memagent.messages import FinishReason
from memagent.tokens import ByteBound


class Invoice(BaseModel):
    """A bill."""

    number: int
    total: float = Field(ge=0)
    due: str = ""


SENTENCE = re.compile(r"Invoice (\d+) is over (\S+) euros\.")


def find(request: ChatRequest) -> str:
    """A model that finds every invoice of a chunk."""
    found = SENTENCE.findall(request.parts["chunk"])
    return "\n".join(f'{{"number": {n}, "total": {total}}}' for n, total in found) or "[]"


def text_of(numbers: list[int], filler: int = 3) -> str:
    paragraphs = [
        f"Invoice {number} is over {number}.5 euros.\n" + "Nothing happened that day.\n" * filler
        for number in numbers
    ]
    return "Here it begins.\n" + "".join(paragraphs)


def agent(respond: Any = find, window: int = 3600, **options: Any) -> MemoryAgent:
    sizes = {"store": None, "chunk_tokens": 900}
    return MemoryAgent(ScriptedModel(respond, window=window), **(sizes | options))


def sent(reader: MemoryAgent) -> list[ChatRequest]:
    model = reader.model.inner
    assert isinstance(model, ScriptedModel)
    return model.requests


def numbers_of(extraction: Extraction[Invoice]) -> list[int]:
    return [row.value.number for row in extraction.rows]


# --- rows


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 4))
def test_the_number_of_rows_is_exact(numbers: list[int], filler: int) -> None:
    found = agent().extract(text_of(numbers, filler), Invoice, "every invoice")
    assert numbers_of(found) == list(dict.fromkeys(numbers))
    assert len(found.rows) == len(set(numbers))
    assert found.duplicates == len(numbers) - len(set(numbers))
    assert found.answer == ("1 row" if len(set(numbers)) == 1 else f"{len(set(numbers))} rows")
    assert list(found.invalid) == []
    assert found.stop_reason is StopReason.ANSWERED


def test_rows_know_where_they_are_from(tmp_path: Path) -> None:
    page = tmp_path / "bills.html"
    text = "".join(
        f"<h1>Day {n}</h1><p>Invoice {n} is over {n}.5 euros.</p>" + "<p>Quiet.</p>" * 40
        for n in range(20)
    )
    page.write_text(text)
    found = agent().extract(page, Invoice, "every invoice")
    assert found.chunks > 2
    for row in found.rows:
        days = re.findall(r"Day (\d+)", row.place)
        assert int(days[0]) <= row.value.number <= int(days[-1])
        assert 0 <= row.start < row.end
    assert found.rows[0].chunk == 0
    assert found.rows[-1].chunk >= found.chunks - 2
    assert found.rows[2:4] == [found.rows[2], found.rows[3]]
    with pytest.raises(IndexError):
        found.rows[20]
    with pytest.raises(IndexError):
        found.rows[-21]


def test_the_prompt_shows_the_newest_rows_within_the_memory() -> None:
    reader = agent()
    reader.extract(text_of(list(range(80))), Invoice, "every invoice", run_id="r")
    most = reader.store.get("r").binding["budget"]["memory"]
    memories = [e.memory for e in reader.store.events("r") if e.type == "memory_updated"]
    assert all(ByteBound().count(memory) <= most for memory in memories)
    assert memories[-1].splitlines()[-1] == '{"number":79,"total":79.5,"due":""}'
    assert 1 < len(memories[-1].splitlines()) < 80


def test_equal_rows_are_recognised_long_after_they_left_the_memory() -> None:
    written = {"": '{"total": 7.50, "number": 7}', "1": '{"number": 7, "total": 7.5, "due": ""}'}

    def vary(request: ChatRequest) -> str:
        rows = SENTENCE.findall(request.parts["chunk"])
        return "\n".join(
            written["1" if i % 2 else ""] if n == "7" else f'{{"number": {n}, "total": 1}}'
            for i, (n, _) in enumerate(rows)
        )

    found = agent(vary).extract(text_of([7, *range(100, 180), 7]), Invoice, "every invoice")
    assert len(found.rows) == 81
    assert found.duplicates == 1


class Groups(BaseModel):
    sums: dict[str, float] = {}
    parts: list[dict[str, frozenset[int]]] = []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"sums": {"a": 1, "b": 2}}', '{"sums": {"b": 2, "a": 1}}'),
        ('{"parts": [{"a": [0, 8, 64]}]}', '{"parts": [{"a": [64, 0, 8]}]}'),
    ],
)
def test_equal_rows_are_one_in_whatever_order_dicts_and_sets_are(one: str, other: str) -> None:
    found = agent([f"{one}\n{other}"]).extract("Rows.", Groups, "every row")
    assert (len(found.rows), found.duplicates) == (1, 1)


def test_rows_of_a_run_of_an_earlier_version_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, store = text_of([3, 3], filler=60), RunStore(tmp_path / "r.sqlite")
    with monkeypatch.context() as patch:
        printed = SimpleNamespace(loads=str, dumps=lambda line, sort_keys: line)
        patch.setattr("memagent.memory.extract.json", printed)
        reader = agent(store=store, limits=Limits(calls=1))
        assert len(reader.extract(text, Invoice, "all", run_id="r").rows) == 1
    found = agent(store=store).extract(text, Invoice, "all", run_id="r")
    assert (len(found.rows), found.duplicates) == (1, 1)


class Account(BaseModel):
    owner: str
    iban: SecretStr = SecretStr("")
    code: int = Field(default=0, exclude=True)


class Reading(BaseModel):
    value: float
    most: float = math.inf


class Named(BaseModel):
    number: int
    id: UUID = Field(default_factory=uuid4)


@pytest.mark.parametrize(
    ("schema", "reply", "rows"),
    [
        (Account, '{"owner": "A", "iban": "1"}\n{"owner": "A", "iban": "2"}', 2),
        (Account, '{"owner": "A", "code": 1}\n{"owner": "A", "code": 2}', 2),
        (Account, '{"owner": "A", "iban": "1"}\n{"owner": "A","iban":"1"}', 1),
        (Named, '{"number": 7}\n{"number": 8}\n{"number": 7}', 2),
    ],
)
def test_rows_count_by_what_the_model_wrote_where_printing_changes_them(
    schema: type[BaseModel], reply: str, rows: int
) -> None:
    found = agent([reply], window=8192).extract("Some rows.", schema, "every row")
    assert len(found.rows) == rows
    assert found.duplicates == len(reply.splitlines()) - rows
    assert list(found.rows) == list(found.rows)


def test_rows_as_json_follow_the_schema_that_the_model_was_shown() -> None:
    class Item(BaseModel):
        kind: str = Field(alias="class")
        id: str = Field(alias="_id")

    written = {"class": "roof", "_id": "A1"}
    found = agent([json.dumps(written)]).extract("A roof.", Item, "every item")
    assert found.rows[0].value.kind == "roof"
    assert [json.loads(line)["value"] for line in found.lines()] == [written]


def test_a_default_that_json_lacks_is_not_in_the_schema() -> None:
    class Item(BaseModel):
        limit: float = float("inf")

    model = ScriptedModel(['{"limit": 1}'], window=8192)
    MemoryAgent(model, store=None).extract("A limit of 1.", Item, "every item")
    assert '"limit":{"type":"number"}' in model.requests[0].messages[-1].content


def test_a_validator_that_changes_its_mind_is_an_error_of_this_package() -> None:
    seen = set[int]()

    class Once(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def once(cls, number: int) -> int:
            assert number not in seen, "seen before"
            seen.add(number)
            return number

    found = agent(['{"number": 1}\n{"number": 2}']).extract("Rows.", Once, "every row")
    assert len(found.rows) == 2
    with pytest.raises(ConfigError, match="now doesn't: number: Assertion failed, seen before"):
        list(found.rows)


@pytest.mark.parametrize(
    "form",
    [
        "Here they are:\n```json\n[{rows}]\n```\nThat is all.",
        "<think>Invoices, hm.</think>{rows}",
        "1. {rows}",
        "```\n{rows}\n```",
    ],
)
def test_rows_are_found_in_whatever_stands_around_them(form: str) -> None:
    rows = '{"number": 1, "total": 2},\n{\n  "number": 2,\n  "total": 3, "due": "} {"\n}'
    found = agent([form.replace("{rows}", rows)]).extract("Two bills.", Invoice, "every invoice")
    assert numbers_of(found) == [1, 2]
    assert found.rows[1].value.due == "} {"
    assert found.usage.calls == 1


@pytest.mark.parametrize("none", ["[]", "```json\n[ ]\n```", "<think>None?</think>\n[]"])
def test_no_rows(none: str) -> None:
    found = agent([none]).extract("No bills.", Invoice, "every invoice")
    assert (len(found.rows), len(found.invalid), found.answer) == (0, 0, "0 rows")
    assert found.usage.calls == 1


# --- invalid rows


def test_an_invalid_row_is_asked_for_again_with_the_problem() -> None:
    replies = [
        '{"number": 1, "total": 2}\n{"number": "two", "total": -3}',
        '{"number": 2, "total": 3}',
    ]
    reader = agent(replies, window=8192)
    found = reader.extract("Two bills.", Invoice, "every invoice", run_id="r")
    assert numbers_of(found) == [1, 2]
    assert len(found.invalid) == 0
    again = sent(reader)[1].messages[-1].content
    assert '{"number": "two", "total": -3}' in again
    assert "number: Input should be a valid integer" in again
    assert "total: Input should be greater than or equal to 0" in again
    assert '{"number":1,"total":2.0,"due":""}' in again
    assert "Two bills." in again
    # The note is gone afterwards, and both replies are in the trajectory.
    assert found.memory.splitlines()[0] == '{"number":1,"total":2.0,"due":""}'
    assert [c.chunk for c in found.trajectory.conversations] == [0, 0]


def test_a_row_that_stays_invalid_is_reported_and_the_others_are_kept() -> None:
    def wrong(request: ChatRequest) -> str:
        return find(request).replace('"total": 5.5', '"total": "much"')

    reader = agent(wrong)
    found = reader.extract(text_of(list(range(40))), Invoice, "every invoice", run_id="r")
    assert numbers_of(found) == [n for n in range(40) if n != 5]
    (bad,) = found.invalid
    assert bad.text == '{"number": 5, "total": "much"}'
    assert bad.problem.startswith("total: Input should be a valid number")
    assert found.usage.calls == found.chunks + 2
    reported = [e for e in reader.store.events("r") if e.type == "rows_found" and e.invalid]
    assert [(e.chunk, e.invalid) for e in reported] == [(bad.chunk, 1)]
    assert found.chunks == 1 + max(
        e.chunk for e in reader.store.events("r") if e.type == "chunk_read"
    )


@pytest.mark.parametrize("second", ["[]", '{"number": 1, "total": 2}'])
def test_a_row_that_a_repair_leaves_out_is_reported(second: str) -> None:
    first = '{"number": 1, "total": 2}\n{"number": 2, "total": "?"}'
    found = agent([first, second]).extract("Two bills.", Invoice, "every invoice")
    assert numbers_of(found) == [1]
    assert [bad.text for bad in found.invalid] == ['{"number": 2, "total": "?"}']


def bills(*rows: tuple[int, Any]) -> str:
    return "\n".join(json.dumps({"number": number, "total": total}) for number, total in rows)


@pytest.mark.parametrize(
    ("replies", "numbers", "invalid", "duplicates"),
    [
        # Another new row is no correction of the second.
        ([bills((1, "x"), (2, "x")), bills((1, 1), (9, 1))], [1, 9], [2], 0),
        # One is left out while another is wrong again: both are asked for once more.
        (
            [bills((1, "x"), (2, "x"), (3, "x")), bills((1, 1), (2, "x")), bills((3, 1), (2, 1))],
            [1, 3, 2],
            [],
            0,
        ),
        # A correction that is equal to an earlier row.
        ([bills((1, 1), (1, "x")), bills((1, 1))], [1], [], 1),
        # A correction that changes the form of what was right, in another order.
        (['{"number":"7","total":"x"}\n{"number":"8"}', bills((8, 1), (7, 1))], [8, 7], [], 0),
        # What was wrong can't tell which row it is.
        (
            ['{"number":"one","total":"x"}\n{"number":2,"total":"x"}', bills((2, 1), (1, 1))],
            [2, 1],
            [],
            0,
        ),
    ],
)
def test_a_repair_counts_for_the_rows_that_it_can_be_of(
    replies: list[str], numbers: list[int], invalid: list[int], duplicates: int
) -> None:
    found = agent(replies, window=8192).extract("Some bills.", Invoice, "every invoice")
    assert numbers_of(found) == numbers
    assert [json.loads(bad.text)["number"] for bad in found.invalid] == invalid
    assert found.duplicates == duplicates
    assert found.usage.calls == len(replies)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", '"nan"'])
def test_numbers_that_json_lacks_are_asked_for_again(number: str) -> None:
    reader = agent([f'{{"value": {number}}}', '{"value": 1}'])
    found = reader.extract("A gauge.", Reading, "every reading")
    assert [row.value.value for row in found.rows] == [1]
    assert "a number is NaN or infinite" in sent(reader)[1].messages[-1].content


def test_an_object_without_a_field_of_the_schema_is_invalid() -> None:
    class Loose(BaseModel):
        number: int | None = None

    class Empty(BaseModel):
        pass

    inner = '{"number": 1}, {"number": 2}'
    replies = [f'{{"invoices": [{inner}]}}', inner]
    reader = agent(replies, window=8192)
    found = reader.extract("Two bills.", Loose, "every invoice")
    assert [row.value.number for row in found.rows] == [1, 2]
    assert list(found.invalid) == []
    assert "it has none of the schema's fields" in sent(reader)[1].messages[-1].content
    assert len(agent(["{}"]).extract("Two bills.", Empty, "every invoice").rows) == 1


def test_prose_is_reported_and_the_run_goes_on() -> None:
    def chatty(request: ChatRequest) -> str:
        return find(request) if "Invoice 20 " in request.parts["chunk"] else "I see some bills."

    found = agent(chatty).extract(text_of(list(range(40))), Invoice, "every invoice")
    assert 20 in numbers_of(found)
    assert len(found.invalid) == found.chunks - 1
    assert {bad.problem for bad in found.invalid} == {"the reply has no JSON object"}


@pytest.mark.parametrize(
    "bad", ['{"number": 1, "total": }', '{"number": 1', "{" * 5000, '{"a":' * 100_000, "{1: 2}"]
)
def test_what_is_no_json_is_reported(bad: str) -> None:
    found = agent([f'{bad}\n{{"number": 3, "total": 1}}'] * 3, window=8192).extract(
        "Bills.", Invoice, "every invoice"
    )
    assert numbers_of(found) == [3]
    assert [row.text[:10] for row in found.invalid] == [bad[:10]]


class Order(BaseModel):
    """A row whose parts have a field of the same name."""

    name: str
    lines: list[dict[str, Any]]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("whole", "flawed"), [('"order 5"', '"order "5"'), ('"order 5"', '"order 5'), ("]", "")]
)
def test_rows_behind_one_that_is_no_json_are_read(
    indent: int | None, whole: str, flawed: str
) -> None:
    parts = [{"name": 'tea, {"name": 1}'}, {"name": "milk"}]
    orders = [{"lines": parts, "name": f"order {n}"} for n in range(20)]
    rows = [json.dumps(order, indent=indent) for order in orders]
    rows[5] = rows[5].replace(whole, flawed)
    found = agent([f"[{', '.join(rows)}]", *["[]"] * 2]).extract("Orders.", Order, "every order")
    assert [row.value.name for row in found.rows] == [f"order {n}" for n in range(20) if n != 5]
    (bad,) = found.invalid
    assert bad.text.startswith(rows[5][:40])


# --- replies that are cut off


def limited(request: ChatRequest) -> Completion:
    """Finds the invoices after the newest one, until its tokens are used up."""
    newest = max(map(int, re.findall(r'"number":(\d+)', request.parts["memory"])), default=-1)
    rows = [line for line in find(request).splitlines() if line != "[]"]
    rows = [line for line in rows if int(re.findall(r"\d+", line)[0]) > newest]
    whole = "\n".join(rows) or "[]"
    text = whole[: request.max_tokens]
    reason = FinishReason.STOP if text == whole else FinishReason.LENGTH
    return Completion(text=text, finish_reason=reason)


def test_a_chunk_with_more_rows_than_a_reply_takes_several() -> None:
    reader = agent(limited, chunk_tokens=1500)
    found = reader.extract(text_of(list(range(120)), filler=0), Invoice, "every invoice")
    assert numbers_of(found) == list(range(120))
    assert found.usage.calls > found.chunks
    assert len(found.invalid) == 0
    assert found.usage.retries == 0


def cut(text: str) -> Completion:
    return Completion(text=text, finish_reason=FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("second", "numbers", "invalid"),
    [
        (bills((2, 2)), [1, 3, 2, 4, 5], []),
        ("[]", [1, 3, 4, 5], [2]),
        (bills((4, 4)), [1, 3, 4, 5], [2]),  # it continues instead
    ],
)
def test_rows_of_a_reply_that_is_cut_off_are_repaired_before_it_is_continued(
    second: str, numbers: list[int], invalid: list[int]
) -> None:
    first = bills((1, 1), (2, "x"), (3, 3)) + '\n{"number": 4, "to'
    reader = agent([cut(first), second, bills((4, 4), (5, 5))], window=8192)
    found = reader.extract("Some bills.", Invoice, "every invoice")
    assert numbers_of(found) == numbers
    assert [json.loads(bad.text)["number"] for bad in found.invalid] == invalid
    repair, more = (request.parts["memory"] for request in sent(reader)[1:])
    assert ("did not follow" in repair, "cut off" in repair) == (True, False)
    assert ("did not follow" in more, "cut off" in more) == (False, True)
    assert '{"number": 4, "to' in more


def test_a_reply_of_invalid_rows_that_is_cut_off_is_continued() -> None:
    """And what a repair that is cut off left out is asked for again."""
    replies = [
        cut(bills((1, "x"), (2, "x")) + "\n{"),
        cut(bills((1, 1)) + "\n{"),
        bills((2, 2)),
        bills((3, 3)),
    ]
    found = agent(replies, window=8192).extract("Some bills.", Invoice, "every invoice")
    assert (numbers_of(found), len(found.invalid)) == ([1, 2, 3], 0)


def test_a_row_longer_than_a_reply_is_reported() -> None:
    def long(request: ChatRequest) -> Completion:
        row = '{"number": 1, "total": 2, "due": "' + "later " * 999
        return Completion(text=row[: request.max_tokens], finish_reason=FinishReason.LENGTH)

    found = agent(long).extract("A bill.", Invoice, "every invoice")
    (bad,) = found.invalid
    assert "before its first new row" in bad.problem
    assert bad.text.startswith('{"number": 1')
    assert found.answer == "0 rows, 1 invalid"


def test_prose_that_is_cut_off_is_reported() -> None:
    prose = Completion(text="I see a bill, and", finish_reason=FinishReason.LENGTH)
    found = agent([prose]).extract("A bill.", Invoice, "every invoice")
    assert [bad.text for bad in found.invalid] == ["I see a bill, and"]


def test_a_row_longer_than_the_memory_is_stored_and_not_shown() -> None:
    due = "later " * 400
    reply = json.dumps({"number": 1, "total": 2, "due": due})
    found = agent([reply, "[]", "[]", "[]"]).extract("A bill. " * 200, Invoice, "every invoice")
    assert found.rows[0].value.due == due
    assert found.memory == ""


def test_a_model_that_never_stops_is_stopped() -> None:
    def endless(request: ChatRequest) -> Completion:
        last = max(map(int, re.findall(r'"number":(\d+)', request.parts["memory"])), default=0)
        text = f'{{"number": {last + 1}, "total": 1}}\n{{"num'
        return Completion(text=text, finish_reason=FinishReason.LENGTH)

    found = agent(endless).extract("A bill.", Invoice, "every invoice")
    assert numbers_of(found) == list(range(1, 9))
    assert found.usage.calls == 8
    assert [bad.text for bad in found.invalid] == ['{"num']


# --- runs


def test_an_empty_document_is_an_error() -> None:
    with pytest.raises(EmptyDocument):
        agent().extract("", Invoice, "every invoice")


@pytest.mark.parametrize("ahead", [4, "auto"])
def test_reading_ahead_finds_the_same(ahead: Any) -> None:
    def wrong(request: ChatRequest) -> str:
        again = "did not follow" in request.parts["memory"]
        return find(request) if again else find(request).replace('"total": 55.5', '"total": "?"')

    text = text_of([*range(3), 55, 56, 1, 2, 90], filler=60)
    options: dict[str, Any] = {"sampling": Sampling(temperature=0)}
    alone = agent(wrong, **options).extract(text, Invoice, "every invoice")
    ahead_of = agent(wrong, read_ahead=ahead, **options).extract(text, Invoice, "every invoice")
    assert alone.chunks > 8
    free = ("usage", "run_id")
    said = [{k: v for k, v in e.to_dict().items() if k not in free} for e in (alone, ahead_of)]
    assert said[0] == said[1]
    assert alone.usage.calls == ahead_of.usage.calls
    assert ahead_of.usage.discarded > 0


def test_a_limit_leaves_the_rows_so_far_and_the_same_call_resumes(tmp_path: Path) -> None:
    text, store = text_of(list(range(60))), RunStore(tmp_path / "r.sqlite")
    for answer in (False, True):
        limits = Limits(calls=2, answer=answer)
        part = agent(store=store, limits=limits).extract(text, Invoice, "every invoice", run_id="r")
        assert part.stop_reason is StopReason.LIMIT
        assert part.answer is None
        assert 0 < len(part.rows) < 60
    whole = agent(store=store).extract(text, Invoice, "every invoice", run_id="r")
    assert numbers_of(whole) == list(range(60))
    assert whole.usage.calls == whole.chunks
    with pytest.raises(RunMismatch, match="is an extraction: call extract again"):
        agent(store=store).resume("r", text)
    with pytest.raises(RunMismatch, match="an extraction, which has rows"):
        agent(store=store).memories("r")
    with pytest.raises(RunMismatch, match="another question"):
        agent(store=store).extract(text, Invoice, "every bill", run_id="r")
    store.close()


def test_an_extraction_can_be_written_pickled_and_shown(tmp_path: Path) -> None:
    found = agent().extract(text_of([1, 2]), Invoice, "every invoice")
    found.write(tmp_path / "rows.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert lines == found.to_dict()["rows"]
    assert lines[0]["value"] == {"number": 1, "total": 1.5, "due": ""}
    assert found.question == "every invoice"
    assert list(pickle.loads(pickle.dumps(found)).rows) == list(found.rows)
    assert repr(found).startswith("Extraction(answer='2 rows', ")
    assert found.run_id in repr(found.rows)
    assert found.quotes(text_of([1, 2]))[0].sentence == "2 rows"


def test_a_full_disk_keeps_the_rows_of_before(tmp_path: Path) -> None:
    (out := tmp_path / "rows.jsonl").write_text("of before")
    found = agent().extract(text_of(list(range(40))), Invoice, "every invoice")
    with full_disk(500), pytest.raises(OSError, match="File too large"):
        found.write(out)
    assert out.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [out]


def test_async_and_events() -> None:
    async def run() -> None:
        reader = agent()
        found = await reader.aextract(text_of([1]), Invoice, "every invoice")
        assert found.answer == "1 row"
        async with reader.extract_stream(text_of([1, 2, 2]), Invoice, "every invoice") as stream:
            events = [event async for event in stream]
        told = [event for event in events if event.type == "rows_found"]
        assert isinstance(events[0], RunStarted)
        assert events[0].questions == ("every invoice",)
        assert [(e.rows, e.duplicates, e.total) for e in told] == [(2, 1, 2)]
        assert isinstance(stream.result, Extraction)

    asyncio.run(run())


@pytest.mark.parametrize("schema", [dict, "Invoice", None])
def test_a_schema_is_a_pydantic_model(schema: Any) -> None:
    with pytest.raises(ConfigError, match="schema must be a pydantic model"):
        agent().extract("A bill.", schema, "every invoice")


@pytest.mark.parametrize("schema", [RootModel[list[int]], RootModel[int]])
def test_a_schema_of_other_json_than_objects_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"must describe JSON objects.* a field of a model"):
        agent().extract("A bill.", schema, "every invoice")
    found = agent().extract(text_of([1]), RootModel[Invoice], "every invoice")
    assert found.rows[0].value.root.number == 1


def test_a_schema_that_is_too_long_is_refused() -> None:
    class Wide(BaseModel):
        field: str = Field(description="It says what it says. " * 100)

    with pytest.raises(QuestionTooLong):
        agent().extract("A bill.", Wide, "every invoice")


# --- summaries


@pytest.mark.parametrize("style", ["summary", "minutes"])
def test_a_summary_is_a_question_with_its_own_wording(style: Any) -> None:
    reader = agent(["The heating failed.", "The heating failed on Monday."], window=4096)
    result = reader.summarize("On Monday the heating failed.", style)
    assert result.answer == "The heating failed on Monday."
    update, answer = (request.messages[0].content for request in sent(reader))
    assert "Write the new summary." in update
    assert "The heating failed." in answer
    assert ("minutes" in update) == (style == "minutes")
    assert reader.store.get(result.run_id).binding["prompts"].startswith("summary:")
    assert reader.prompts.name == "plain"
    quotes = result.quotes("On Monday the heating failed.")
    assert quotes[0].text == "On Monday the heating failed."


def test_a_summary_that_fails_says_how_to_resume_it() -> None:
    reader = agent(["A.", ValueError("no"), "B."], window=4096)
    with pytest.raises(ValueError, match="no") as error:
        reader.summarize("Text.", run_id="s")
    assert error.value.__notes__ == ["Resume the run with agent.resume('s', document)."]
    result = reader.resume("s", "Text.")
    assert isinstance(result, Result)
    assert result.answer == "B."
    assert reader.summarize("Text.", run_id="s").answer == "B."


def test_summaries_are_async_too_and_have_two_styles() -> None:
    reader = agent(["A.", "B."], window=4096)
    assert asyncio.run(reader.asummarize("Text.")).answer == "B."
    with pytest.raises(ConfigError, match="style must be one of summary, minutes, got 'haiku'"):
        reader.summarize("Text.", "haiku")  # pyright: ignore[reportArgumentType]


def test_rows_and_summaries_need_a_language_model() -> None:
    reader = MemoryAgent("extractive", store=None)
    with pytest.raises(ConfigError, match=r"'extractive' only .* a language model"):
        reader.summarize("Text.")
    with pytest.raises(ConfigError, match=r"'extractive' only .* a language model"):
        reader.extract("Text.", Invoice, "every invoice")
