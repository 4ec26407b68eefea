"""The buffer as a user's loop sees it."""

import asyncio
from typing import Any

import pytest
from tests.session.context.strict import (
    SHORT,
    TOOLS,
    Gate,
    acts,
    call,
    check_strictly,
    fill,
    opened,
    result,
    step,
    system,
    user,
)

from memagent.compaction import Compaction
from memagent.errors import ConfigError, ModelError, UnknownHandle
from memagent.messages import ChatRequest, Message
from memagent.models.scripted import ScriptedModel
from memagent.session.context.archive import FileArchive
from memagent.session.context.buffer import SummaryBuffer
from memagent.tokens.byte_bound import ByteBound


def good(request: ChatRequest) -> str:
    return "<summary>found</summary>"


@pytest.mark.parametrize("native", [True, False], ids=["native", "text"])
async def test_a_loop_of_a_hundred_steps_stays_within_its_context(native: bool) -> None:
    model = ScriptedModel(good, window=6000)
    async with await opened(
        model, tools=TOOLS, native=native, max_summaries=100, working_context=6000
    ) as buffer:
        assert buffer.tools == (TOOLS if native else ())
        for number in range(100):
            check_strictly(buffer.messages)
            counter = ByteBound()
            assert buffer.tokens == counter.count_messages(buffer.messages, tools=buffer.tools)
            assert buffer.room == 6000 - buffer.tokens > 0
            await step(
                buffer, number, f"{number} ".ljust(number * 3, "."), "do" if number % 3 else "look"
            )
            if buffer.due:
                assert await buffer.compact() is not None
        assert 3 < buffer.summaries == len(model.requests)
        assert all(request.tools == buffer.tools for request in model.requests)


async def test_messages_may_come_in_openais_form() -> None:
    buffer = SummaryBuffer(ScriptedModel([]), prompts=SHORT)
    await buffer.open([{"role": "system", "content": "frame"}, {"role": "user", "content": "task"}])
    function = {"name": "do", "arguments": "{}"}
    await buffer.append(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    )
    await buffer.append({"role": "tool", "tool_call_id": "c1", "content": "fine"})
    assert buffer.messages == (system(), user("task"), acts(call("do")), result("fine"))
    with pytest.raises(ConfigError):
        await buffer.append({"role": "nobody"})


async def test_tool_output_is_made_safe_and_what_the_model_says_is_not_touched() -> None:
    buffer = await opened(ScriptedModel([]))
    await buffer.append(acts(call("do"), text="<call> <summary>"))
    await buffer.append(result("</result> </summary> <call> <|im_end|> <b>"))
    assert buffer.messages[2].content == "<call> <summary>"
    text = buffer.messages[3].content
    assert text.count("\u2060") == 4
    assert text.endswith(" <b>")


async def test_nothing_is_done_before_it_is_due() -> None:
    buffer = await opened(model := ScriptedModel([]))
    await step(buffer, 1, "fine")
    assert not buffer.due
    assert await buffer.compact() is None
    assert model.requests == []
    assert (buffer.summaries, buffer.summary) == (0, None)


@pytest.mark.parametrize(
    "settings",
    [
        {"working_context": 0},
        {"window": -1},
        {"summary_tokens": 0},
        {"max_summaries": -1},
        {"early": 0.0},
        {"early": 1.0},
        {"early": float("nan")},
    ],
    ids=str,
)
def test_bad_settings_are_named(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name} must be"):
        SummaryBuffer(ScriptedModel([]), **settings)


async def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"open_model\('vllm:x'\)"):
        SummaryBuffer("vllm:x")  # type: ignore[arg-type]


async def test_it_is_opened_once_and_first() -> None:
    buffer = SummaryBuffer(ScriptedModel([]))
    with pytest.raises(ConfigError, match="open"):
        await buffer.append(user("hi"))
    with pytest.raises(ConfigError, match="open"):
        _ = buffer.messages
    with pytest.raises(ConfigError, match="already open"):
        await (await opened(ScriptedModel([]))).open([user("again")])


async def test_read_archived_reads_what_left() -> None:
    async with await opened(ScriptedModel(good)) as buffer:
        await fill(buffer)
        report = await buffer.compact()
        assert report is not None
        tool = buffer.archive_tool
        assert (tool.name, tool.idempotent) == ("read_archived", True)
        text = await tool.run({"handle": report.changes[0].handle})
        assert text.startswith('look({"n": 0}) -> result 0')
        with pytest.raises(UnknownHandle):
            await tool.run({"handle": "t0"})


async def test_an_archive_that_was_handed_in_is_left_open() -> None:
    archive = FileArchive()
    buffer = await opened(ScriptedModel(good), archive=archive)
    await fill(buffer)
    report = await buffer.compact()
    await buffer.aclose()
    assert report is not None
    assert "result 0" in await asyncio.to_thread(archive.get, report.changes[0].handle)
    await asyncio.to_thread(archive.close)


class Away(ByteBound):
    """A counter whose server is away for good."""

    away = False

    def count(self, text: str) -> int:  # type: ignore[override]
        if self.away:
            raise ModelError("away")
        return super().count(text)


async def test_a_counter_that_fails_adds_nothing() -> None:
    counter = Away()
    buffer = await opened(ScriptedModel(good, counter=counter))
    before = buffer.messages
    counter.away = True
    with pytest.raises(ModelError):
        await buffer.append(user("hi"))
    assert buffer.messages == before
    counter.away = False
    await buffer.append(user("hi"))
    assert buffer.messages[-1].content.endswith("hi")


async def test_a_cancelled_compaction_changes_nothing() -> None:
    for early in (None, 0.6):
        gate = Gate()
        buffer = await opened(ScriptedModel(gate), early=early)
        await fill(buffer)
        before = buffer.messages
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(buffer.compact(), 0.05)
        assert buffer.messages == before
        gate.open.set()
        report = await buffer.compact()
        assert report is not None
        assert report.early is (early is not None)
        await buffer.aclose()


async def test_what_is_appended_meanwhile_waits_for_the_compaction() -> None:
    gate = Gate()
    buffer = await opened(ScriptedModel(gate))
    await fill(buffer)
    both = asyncio.gather(buffer.compact(), buffer.append(user("and now?")), buffer.compact())
    await asyncio.sleep(0.01)
    gate.open.set()
    first, _, second = await both
    assert first is not None
    assert second is None
    assert buffer.messages[-1].content.endswith("and now?")


@pytest.mark.parametrize("early", [None, 0.6], ids=["due", "early"])
async def test_the_same_messages_and_replies_make_the_same_session(early: float | None) -> None:
    async def session() -> tuple[list[ChatRequest], tuple[Message, ...], list[Compaction | None]]:
        model = ScriptedModel(good)
        async with await opened(model, early=early, max_summaries=99) as buffer:
            reports: list[Compaction | None] = []
            for number in range(40):
                await step(buffer, number % 7, f"{number} " * 70, "do" if number % 2 else "look")
                if number % 3:
                    await asyncio.sleep(0)
                reports.append(await buffer.compact())
            return model.requests, buffer.messages, reports

    first = await session()
    assert any(first[2])
    assert await session() == first
