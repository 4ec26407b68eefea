"""A loop that feeds its whole history each time: what it gets back, and what is refused."""

import asyncio
import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage
from tests.session.context.strict import SHORT, check_strictly

from memagent.errors import (
    ConfigError,
    HistoryChanged,
    ModelError,
    OutOfSummaries,
    QuestionTooLong,
    WindowTooSmall,
)
from memagent.messages import ChatRequest, Message, ToolSpec, Usage
from memagent.models.scripted import ScriptedModel
from memagent.session.context.archive import READ_ARCHIVED, FileArchive
from memagent.session.context.buffer import SummaryBuffer
from memagent.threads import in_background
from memagent.tokens.byte_bound import ByteBound

SYSTEM = {"role": "system", "content": "frame"}
TASK = {"role": "user", "content": "the task"}
IMAGE: dict[str, Any] = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + "A" * 50_000},
}
LOOK = {"type": "function", "function": {"name": "look", "strict": True}}
WINDOW = 3000


def good(request: ChatRequest) -> str:
    return f"<summary>summary of {len(request.messages)}</summary>"


def usual(**settings: Any) -> dict[str, Any]:
    given = {"prompts": SHORT, "idempotent": {"look"}, "working_context": WINDOW}
    return {**given, "max_summaries": 99, **settings}


def a_buffer(model: ScriptedModel | None = None, **settings: Any) -> SummaryBuffer:
    return SummaryBuffer(model or ScriptedModel(good), **usual(**settings))


def again(state: dict[str, Any], **settings: Any) -> SummaryBuffer:
    read = json.loads(json.dumps(state))
    return SummaryBuffer.from_state(read, ScriptedModel(good), **usual(**settings))


def turn(number: int, *texts: str | None, name: str = "look") -> list[dict[str, Any]]:
    """A reply with a call for each text, and their results; None for one that never came."""
    ids = [f"call{number}x{place}" for place in range(len(texts))]
    calls = [
        {
            "id": i,
            "type": "function",
            "function": {"name": name, "arguments": f'{{"n": {number}, "of": "{i}"}}'},
        }
        for i in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": i, "content": text}
        for i, text in zip(ids, texts, strict=True)
        if text is not None
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def steps(count: int, size: int = 150, first: int = 0) -> list[dict[str, Any]]:
    made = (turn(n, f"result {n} ".ljust(size, ".")) for n in range(first, first + count))
    return [message for messages in made for message in messages]


def check(sent: list[Any], tools: tuple[ToolSpec, ...] = ()) -> None:
    """Fails where a server with this window would refuse."""
    messages = [Message.from_openai(message) for message in sent]
    check_strictly(messages)
    assert ByteBound().count_messages(messages, tools=tools) < WINDOW
    assert [m.role for m in messages[:2]] == ["system", "user"]
    assert messages[1].content.startswith("the task")


async def test_a_history_that_grows_stays_within_the_window() -> None:
    buffer, history = a_buffer(), [SYSTEM, TASK]
    async with buffer:
        for number in range(60):
            sent = await buffer.feed(history)
            check(sent)
            assert await buffer.feed(list(history)) == sent
            assert json.loads(json.dumps(sent)) == sent
            history += turn(number, *("one " * 40, "two " * 40)[: 1 + number % 2])
        assert 3 < buffer.summaries == buffer.state()["context"]["past"]["stage"]
        assert "summary of" in sent[1]["content"]


async def test_what_is_sent_as_it_came_is_the_object_that_was_given() -> None:
    signed = {"extra_content": {"google": {"signature": "c2ln"}}}
    first, result = turn(0, "fine")
    first["tool_calls"][0] |= signed
    history = [SYSTEM, TASK, first | {"reasoning_content": "Hm."}, result | {"name": "look"}]
    sent = await a_buffer().feed(history)
    assert all(one is other for one, other in zip(sent, history, strict=True))


@pytest.mark.parametrize("ids", [["", ""], ["x", "x"]], ids=["missing", "repeated"])
async def test_calls_whose_ids_were_repaired_go_with_their_results(ids: list[str]) -> None:
    said, *results = turn(0, "a", "b")
    for call, result, name in zip(said["tool_calls"], results, ids, strict=True):
        call["id"] = result["tool_call_id"] = name
    sent = await a_buffer().feed([SYSTEM, TASK, said, *results])
    called = [call["id"] for call in sent[2]["tool_calls"]]
    assert called == [result["tool_call_id"] for result in sent[3:]]
    assert len(set(called)) == 2


async def test_half_a_surrogate_pair_is_not_handed_back() -> None:
    sent = await a_buffer().feed([SYSTEM, TASK, *turn(0, "file \udce9.txt")])
    assert json.dumps(sent, ensure_ascii=False).encode()


async def test_tools_may_be_in_openais_form() -> None:
    sent = await a_buffer(tools=[LOOK]).feed([SYSTEM, TASK])
    assert sent == [SYSTEM, TASK]


async def test_equal_messages_stay_the_objects_that_were_given() -> None:
    buffer, history = a_buffer(), [SYSTEM, TASK]
    for _ in range(30):
        history += [
            {"role": "assistant", "content": "Done. " * 30},
            {"role": "user", "content": "Go on."},
        ]
        sent = await buffer.feed(history)
        came = [id(message) for message in sent if any(message is m for m in history[2:])]
        assert came == [id(message) for message in history[len(history) - len(came) :]]
        assert buffer.summaries or len(came) == len(history) - 2
    assert buffer.summaries > 0 < len(came)


async def test_other_fields_and_parts_are_passed_through() -> None:
    picture = {"role": "user", "content": [{"type": "text", "text": "the task"}, IMAGE]}
    shown = {**turn(0, "x")[1], "name": "look", "content": [{"type": "text", "text": "a"}, IMAGE]}
    more = {"role": "user", "content": [IMAGE], "name": "Pierre"}
    model = ScriptedModel(good, window=20_000)
    buffer = a_buffer(model, working_context=20_000, window=20_000)
    sent = await buffer.feed([SYSTEM, picture, turn(0, "x")[0], shown, more, TASK])
    assert sent[1:4] == [picture, turn(0, "x")[0], shown]
    # Two messages of the user are one, with the parts of both.
    both = [IMAGE, {"type": "text", "text": "the task"}]
    assert sent[4:] == [{"role": "user", "name": "Pierre", "content": both}]
    assert buffer.tokens < 10_000  # an image isn't counted as a text


@pytest.mark.parametrize("part", ["text", {"type": "caption", "text": 5}])
async def test_parts_in_other_forms_are_passed_through(part: Any) -> None:
    history = [SYSTEM, TASK | {"content": [IMAGE, part]}]
    assert await a_buffer(working_context=5000).feed(history) == history


async def test_an_image_leaves_with_its_turn() -> None:
    buffer, history = a_buffer(working_context=9000, window=9000), [SYSTEM, TASK]
    for number in range(12):
        call, result = turn(number, "x")
        url = {"url": f"{IMAGE['image_url']['url']}{number}"}
        parts = [{"type": "text", "text": "y" * 400}, {"type": "image_url", "image_url": url}]
        history += [call, result | {"content": parts}]
        sent = await buffer.feed(history)
        check_strictly([Message.from_openai(message) for message in sent])
        assert buffer.tokens < 9000
        assert json.dumps(sent).count("image_url") < 8  # two keys each
    assert buffer.summaries > 1


@pytest.mark.parametrize("pictures", [0, 1, 2])
async def test_a_task_with_pictures_stays_within_the_window(pictures: int) -> None:
    task = {"role": "user", "content": [{"type": "text", "text": "the task"}, *[IMAGE] * pictures]}
    buffer, history = a_buffer(ScriptedModel(good, window=8192), working_context=8192), [task]
    for number in range(30):
        await buffer.feed(history)
        assert buffer.tokens < buffer.limit <= 8192 - 1024
        history += steps(1, 600, number)
    assert buffer.summaries > 0


async def test_a_task_with_too_many_pictures_is_refused() -> None:
    with pytest.raises(WindowTooSmall):
        await a_buffer(working_context=8192).feed([SYSTEM, TASK | {"content": [IMAGE] * 4}])


async def test_the_newest_pictures_of_tools_reach_the_model() -> None:
    model = ScriptedModel(good, window=8192)
    buffer, history = a_buffer(model, working_context=8192), [SYSTEM, TASK]
    for number in range(8):
        call, result = turn(number, "")
        new = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{number}"}}
        history += [call, result | {"content": [{"type": "text", "text": "screen"}, new, IMAGE]}]
        sent = await buffer.feed(history)
        assert sent[-1] is history[-1]
        assert buffer.tokens < buffer.limit
    assert buffer.summaries == 7


async def test_only_the_users_last_message_has_to_stay_whole() -> None:
    buffer = a_buffer(ScriptedModel(good, window=8192), working_context=8192)
    long_text = {"role": "user", "content": "Look! ".ljust(5000, ".")}
    history = [SYSTEM, TASK, *steps(9, 400), {"role": "assistant", "content": "Yes."}, long_text]
    for _ in range(2):
        with pytest.raises(QuestionTooLong, match=r"takes 5000 tokens, but .* at most 3556 stay"):
            await buffer.feed(history)
    question = {"role": "user", "content": "What was it?"}
    history += [{"role": "assistant", "content": "Too long."}, question]
    for again in (buffer, a_buffer(ScriptedModel(good, window=8192), working_context=8192)):
        assert (await again.feed(history))[-1] is question


async def test_a_long_message_that_is_answered_may_be_summarised() -> None:
    buffer = a_buffer(ScriptedModel(good, window=8192), working_context=8192)
    long_text = {"role": "user", "content": "Look! ".ljust(5000, ".")}
    history = [SYSTEM, TASK, long_text, {"role": "assistant", "content": "Looked."}]
    await buffer.feed(history)
    assert "summary" in str(await buffer.feed([*history, *steps(9, 400)]))


@pytest.mark.parametrize("working_context", [16_384, 8192])
@pytest.mark.parametrize("later", [10, 3000])
async def test_a_long_message_behind_a_summary_makes_way_for_the_next(
    working_context: int, later: int
) -> None:
    """Also in a smaller working context than the one in which it was kept."""
    model = ScriptedModel(good, window=16_384)
    buffer = a_buffer(model, working_context=16_384)
    long_text = {"role": "user", "content": "Look! ".ljust(6200, ".")}
    history = [SYSTEM, TASK, long_text, {"role": "assistant", "content": "Answer. " * 400}]
    await buffer.feed(history)
    await in_background(buffer.compact(force=True))
    settings = usual(working_context=working_context)
    next_buffer = SummaryBuffer.from_state(buffer.state(), model, **settings)
    question = {"role": "user", "content": "And now? ".ljust(later, ".")}
    sent = await asyncio.wait_for(next_buffer.feed([*history, question]), 20)
    assert sent[-1]["content"].endswith(question["content"])
    assert next_buffer.tokens < next_buffer.limit


@pytest.mark.parametrize("pictures", [1, 4])
@pytest.mark.parametrize("size", [10, 3400])
async def test_the_pictures_of_a_users_message_stay_if_they_fit(size: int, pictures: int) -> None:
    buffer = a_buffer(ScriptedModel(good, window=8192), working_context=8192)
    parts = [{"type": "text", "text": "Look! ".ljust(size, ".") + " Now?"}, *[IMAGE] * pictures]
    hello = {"role": "assistant", "content": "Yes."}
    sent = await buffer.feed(
        [SYSTEM, TASK, *steps(9, 400), hello, {"role": "user", "content": parts}]
    )
    assert buffer.tokens < buffer.limit
    said = json.dumps(sent[-1])
    kept = pictures == 1 and size == 10
    assert said.count('"image_url": {') == kept
    assert kept or said.count("[image_url]") == pictures
    assert parts[0]["text"] in said


async def test_orphans_of_either_kind_are_paired() -> None:
    buffer = a_buffer()
    nobody = {"role": "tool", "tool_call_id": "nobody's", "content": "stray"}
    history = [SYSTEM, TASK, nobody, *turn(0, "first", None, "third")]
    sent = await buffer.feed(history)
    check(sent)
    assert "stray" in sent[1]["content"]
    assert [m["content"] for m in sent[-3:]][::2] == ["first", "third"]
    # The missing one comes after all.
    late = {"role": "tool", "tool_call_id": "call0x1", "content": "second"}
    sent = await buffer.feed([*history, late])
    check(sent)
    assert [m["content"] for m in sent[-3:]] == ["first", "second", "third"]


async def test_an_unanswered_call_beside_a_huge_result_fits() -> None:
    buffer = a_buffer()
    history = [SYSTEM, TASK, *turn(0, "x" * 20_000, None)]
    check(await buffer.feed(history))
    late = {"role": "tool", "tool_call_id": "call0x1", "content": "late"}
    sent = await buffer.feed([*history, late])
    check(sent)
    assert sum(str(message["content"]).count("late") for message in sent) == 1


@pytest.mark.parametrize("size", [150, 20_000])
async def test_a_history_read_at_once_is_as_one_read_step_by_step(size: int) -> None:
    history, slow, model = [SYSTEM, TASK], a_buffer(), ScriptedModel(good)
    for number in range(40):
        history += steps(1, size, number)
        sent = await slow.feed(history)
    at_once = a_buffer(model)
    assert await at_once.feed(history) == sent
    assert at_once.state() == slow.state()
    assert len(model.requests) >= at_once.summaries > 1


async def test_what_was_returned_may_be_the_next_history() -> None:
    one, other, history, returned = a_buffer(), a_buffer(), [SYSTEM, TASK], [SYSTEM, TASK]
    for number in range(40):
        history += steps(1, first=number)
        returned = await other.feed([*returned, *steps(1, first=number)])
        assert await one.feed(history) == returned
    assert one.summaries > 1


@pytest.mark.parametrize("way", ["history", "returned"])
@pytest.mark.parametrize("early", [None, 0.6], ids=["due", "early"])
async def test_it_goes_on_in_another_process(way: str, early: float | None) -> None:
    settings: dict[str, Any] = {"tools": [READ_ARCHIVED], "working_context": 5000, "early": early}
    one, history = a_buffer(**settings | {"early": None}), [SYSTEM, TASK]
    other, kept = a_buffer(**settings), [SYSTEM, TASK]
    for number in range(30):
        new = turn(number, "a long result " * (100 if number % 7 == 3 else 20))
        history, kept = [*history, *new], [*kept, *new]
        sent = await one.feed(history)
        other = again(other.state(), **settings) if number else other
        got = await other.feed(kept)
        check_strictly([Message.from_openai(message) for message in got])
        if early is None:  # a summary that was under way is not part of a state
            assert got == sent
            assert other.state()["context"] == one.state()["context"]
        if way == "returned":
            kept = got
        await other.aclose()
    assert one.summaries == other.summaries > 1


async def test_what_was_clipped_can_be_read_after_a_restart() -> None:
    settings: dict[str, Any] = {"tools": [READ_ARCHIVED], "working_context": 5000}
    history = [SYSTEM, TASK, *turn(0, "needle " + "x" * 20_000 + " end")]
    first = a_buffer(**settings)
    (shown,) = [m for m in await first.feed(history) if m["role"] == "tool"]
    buffer = again(first.state(), **settings)
    await first.aclose()
    await buffer.feed(history)
    handle = shown["content"].split(" in ")[1].split("!")[0]
    assert (await buffer.archive_tool.run({"handle": handle})).startswith("needle")
    await buffer.aclose()


async def test_what_the_user_said_can_be_read_after_a_restart_with_the_same_archive() -> None:
    archive, history = FileArchive(), [SYSTEM, TASK]
    settings: dict[str, Any] = {"tools": [READ_ARCHIVED], "archive": archive}
    async with a_buffer(working_context=5000, **settings) as first:
        for number in range(12):
            said = {"role": "user", "content": f"note {number}: ".ljust(600, ".")}
            history += [{"role": "assistant", "content": "Yes."}, said]
            await first.feed(history)
    async with again(first.state(), working_context=5000, **settings) as buffer:
        sent = await buffer.feed(history)
        handle = sent[1]["content"].split(" in ")[1].split("!")[0]
        assert "note" in await buffer.archive_tool.run({"handle": handle})
    archive.close()


async def test_a_restart_without_the_first_archive_clips_what_is_there() -> None:
    first = a_buffer()
    returned = await first.feed([SYSTEM, TASK, *turn(0, "x" * 20_000)])
    buffer = again(first.state())
    for number in range(1, 6):
        returned = await buffer.feed([*returned, *turn(number, "y" * 1500)])
        check(returned)


async def test_system_messages_and_tools_may_change() -> None:
    buffer, history = a_buffer(working_context=7600), [*steps(8)]
    specs = (ToolSpec.from_openai(LOOK),)
    for number in range(8):
        system = {"role": "system", "content": f"It is {number} o'clock."}
        sent = await buffer.feed([system, TASK, *history], tools=[LOOK] * (number % 2))
        assert sent[0] == system
        assert buffer.tools == specs * (number % 2)
        counted = [Message.from_openai(message) for message in sent]
        assert buffer.tokens == ByteBound().count_messages(counted, tools=buffer.tools)
        check_strictly(counted)
        history += steps(4, first=8 + 4 * number)
    assert buffer.summaries == 2
    assert (await buffer.feed([TASK, *history]))[0]["role"] == "user"


async def test_several_system_messages_are_not_lost() -> None:
    buffer = a_buffer()
    returned = [SYSTEM, {"role": "system", "content": "Be brief."}, TASK]
    for number in range(30):
        returned = await buffer.feed([*returned, *steps(1, first=number)])
        assert returned[0] == SYSTEM
        assert returned[1]["content"].startswith("Be brief.\n\nthe task")
    assert buffer.summaries > 0


@pytest.mark.parametrize("systems", [[], [SYSTEM]], ids=["alone", "system"])
async def test_a_greeting_stays_in_front_of_the_task(systems: list[Any]) -> None:
    greeting = {"role": "assistant", "content": "Hello! How can I help?"}
    history = [*systems, greeting, TASK]
    buffer = a_buffer()
    for number in range(30):
        sent = await buffer.feed(history)
        check_strictly([Message.from_openai(message) for message in sent])
        assert sent[: len(systems) + 1] == [*systems, greeting]
        assert sent[len(systems) + 1]["content"].startswith("the task")
        history += steps(1, first=number)
    assert buffer.summaries > 0
    changed = [{"role": "system", "content": "Be brief."}, *history[len(systems) :]]
    assert (await buffer.feed(changed))[:2] == [changed[0], greeting]


@pytest.mark.parametrize(
    "change",
    [
        lambda history: [SYSTEM, {**TASK, "content": "another"}, *history[2:]],
        lambda history: [*history[:5], {**history[5], "content": "edited"}, *history[6:]],
        lambda history: history[:-2],
        lambda history: [SYSTEM, TASK],
        lambda history: [],
    ],
    ids=["task", "result", "shorter", "anew", "nothing"],
)
async def test_a_history_that_was_edited_is_refused(change: Any) -> None:
    buffer, history = a_buffer(), [SYSTEM, TASK, *steps(30)]
    sent, state = await buffer.feed(history), buffer.state()
    with pytest.raises(HistoryChanged, match="61 that were fed before"):
        await buffer.feed(change(history))
    assert await buffer.feed(history) == sent
    assert buffer.state() == state


async def test_an_earlier_state_goes_back() -> None:
    buffer, history = a_buffer(), [SYSTEM, TASK, *steps(30)]
    await buffer.feed(history)
    state = buffer.state()
    await buffer.feed([*history, *steps(30, first=30)])
    back = again(state)
    assert back.state() == state
    assert await back.feed([*history, *turn(77, "another way")])


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "of version 1 .context is missing"),
        ({"version": 2}, "version must be 1, got 2.*the memagent that wrote it"),
        ({"version": 1, "context": {}}, "not a buffer's state"),
        ([], r"not a buffer's state.*got \[\]"),
        (None, "not a buffer's state.*got None"),
    ],
)
def test_what_is_no_state_is_refused(state: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SummaryBuffer.from_state(state, ScriptedModel([]))


async def test_what_was_opened_is_not_fed() -> None:
    buffer = a_buffer()
    with pytest.raises(ConfigError, match="fed nothing"):
        buffer.state()
    await buffer.open([SYSTEM, TASK])
    with pytest.raises(ConfigError, match=r"open\(\)"):
        await buffer.feed([SYSTEM, TASK])


async def test_a_failed_summary_loses_nothing() -> None:
    failing = [ModelError("away"), ModelError("away")]
    model = ScriptedModel(lambda request: failing.pop() if failing else good(request))
    buffer, history = a_buffer(model), [SYSTEM, TASK, *steps(12)]
    for _ in range(2):
        with pytest.raises(ModelError, match="away"):
            await buffer.feed(history)
    assert await buffer.feed(history) == await a_buffer().feed(history)


@pytest.mark.parametrize("failed", [(), {"again"}], ids=["unmarked", "marked"])
async def test_a_failed_call_leaves_the_earlier_result(failed: Any) -> None:
    (call, result), (_, error) = turn(0, "what it said " * 80), turn(0, "The disk is gone.")
    repeated = {**call, "tool_calls": [call["tool_calls"][0] | {"id": "again"}]}
    error["tool_call_id"] = "again"
    model = ScriptedModel(good)
    async with a_buffer(model) as buffer:
        history = [SYSTEM, TASK, call, result, repeated, error, *steps(6, first=1)]
        await buffer.feed(history, failed=failed)
    shown = "".join(message.content for message in model.requests[0].messages)
    assert ("what it said" in shown) == bool(failed)
    assert ("[again: look" in shown) != bool(failed)


@pytest.mark.parametrize("failed", [(), {"call7x0"}], ids=["unmarked", "marked"])
def test_a_failed_write_is_not_listed_as_written(failed: Any) -> None:
    settings: dict[str, Any] = {"idempotent": {"look", "save"}, "writes": {"save"}}
    with a_buffer(**settings) as buffer:
        history = [SYSTEM, TASK, *steps(5), *turn(7, "The disk is full.", name="save")]
        buffer.feed_sync(history, failed=failed)
        sent = buffer.feed_sync([*history, *steps(3, first=8)])
        assert buffer.summaries == 1
    line = "done: save({}) -> The disk is full." if failed else "wrote: save({})"
    assert line.format('{"n": 7, "of": "call7x0"}') in sent[1]["content"]


async def test_reports_correct_the_counts() -> None:
    history = [SYSTEM, TASK, *steps(4)]
    reported, silent = (a_buffer(working_context=30_000, window=30_000) for _ in range(2))
    for buffer in (reported, silent):
        await buffer.feed(history)
    history += steps(1, first=4)
    usage = Usage(prompt_tokens=500)
    await reported.feed(history, usage=usage)
    await silent.feed(history)
    assert reported.tokens < silent.tokens - 500
    # Neither of another prompt nor of an older reply.
    for more in (steps(2, first=5), [*steps(1, first=7)]):
        history += more
        changed = [{**SYSTEM, "content": "frame!"}, *history[1:]] if len(more) == 2 else history
        before = reported.tokens
        await reported.feed(changed, usage=Usage(prompt_tokens=501))
        assert reported.tokens > before


async def test_reports_of_what_this_buffer_did_not_send_are_ignored() -> None:
    wide: dict[str, Any] = {"working_context": 30_000, "window": 30_000}
    history, usage = [SYSTEM, TASK, *steps(1)], Usage(prompt_tokens=30)
    told, silent = a_buffer(**wide), a_buffer(**wide)
    await told.feed(history, usage=usage)
    await silent.feed(history)
    assert told.tokens == silent.tokens
    restored, history = again(told.state(), **wide), [*history, *steps(1, first=1)]
    await restored.feed(history, usage=usage)
    await silent.feed(history)
    assert restored.tokens == silent.tokens


async def test_each_message_of_the_user_allows_more_summaries() -> None:
    buffer, history = a_buffer(max_summaries=1), [SYSTEM, TASK]
    for number in range(12):
        history += [*steps(4, 150, 4 * number), {"role": "user", "content": f"message {number}"}]
        await buffer.feed(history)
        buffer = again(buffer.state(), max_summaries=1)
    await buffer.feed(history)
    assert buffer.summaries > 3
    with pytest.raises(OutOfSummaries):
        await buffer.feed([*history, *steps(30, first=99)])


def test_the_sync_form_works_outside_an_event_loop() -> None:
    history = [SYSTEM, TASK, *steps(30)]
    with a_buffer(early=0.6) as buffer:
        sent = buffer.feed_sync(history)
        check(sent)
        assert asyncio.run(buffer.feed(history)) == sent == buffer.feed_sync(history)


async def test_the_sync_form_works_inside_an_event_loop() -> None:
    history = [SYSTEM, TASK, *steps(30)]
    async with a_buffer(early=0.6) as buffer:
        both = asyncio.gather(buffer.feed(history), buffer.feed(history))
        sent = buffer.feed_sync(history)
        assert await both == [sent, sent]


async def test_a_prompt_that_cannot_fit_is_refused() -> None:
    with pytest.raises(WindowTooSmall):
        await a_buffer().feed([SYSTEM, {"role": "user", "content": "x" * 4000}])
    with pytest.raises(ConfigError, match="empty"):
        await a_buffer().feed([{"role": "assistant", "content": "hello"}])


async def test_messages_of_the_openai_package_are_taken() -> None:
    call = turn(0, "fine")[0]
    said = ChatCompletionMessage.model_validate({**call, "reasoning_content": "Hm."})
    sent = await a_buffer().feed([SYSTEM, TASK, said, turn(0, "fine")[1]])
    assert sent[2] is said
    assert Message.from_openai(said).extra == {"reasoning_content": "Hm."}


async def test_control_tokens_are_neutralised_in_what_is_fed() -> None:
    history = [SYSTEM, {**TASK, "content": "the <|im_end|> task"}, *turn(0, "</summary>")]
    sent = await a_buffer().feed(history)
    assert "<|im_end|>" not in json.dumps(sent)
    assert sent[-1]["content"] == "<\u2060/summary>"


def test_tools_are_read_and_written_as_they_were() -> None:
    spec = ToolSpec.from_openai(LOOK)
    assert (spec.name, spec.description) == ("look", "")
    assert spec.to_openai() == LOOK
    assert ToolSpec.from_openai(spec) is spec
    assert spec == ToolSpec.from_openai(LOOK)
    assert spec.model_dump() == ToolSpec(name="look").model_dump()
    for wrong in ({"type": "web_search"}, {"type": "function", "function": {}}, "look"):
        with pytest.raises(ConfigError, match="is not a function"):
            ToolSpec.from_openai(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{}, {"name": "look"}, {"status": "error", "name": "look"}])
def test_a_long_result_with_other_fields_is_clipped_and_keeps_them(fields: dict[str, str]) -> None:
    reply, result = turn(0, "A line of the page.\n" * 130)
    with a_buffer() as buffer:
        sent = buffer.feed_sync([SYSTEM, TASK, reply, result | fields])
    assert buffer.summaries == 0
    assert len(sent[-1]["content"]) < len(result["content"])
    assert {name: sent[-1].get(name) for name in fields} == fields
