"""What users complain of in today's session compaction: each complaint is a test, by its name."""

import asyncio
import re

import pytest
from tests.session.context.strict import (
    SHORT,
    TOOLS,
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

from memagent.errors import CompactionFailed, ModelError, QuestionTooLong
from memagent.messages import ChatRequest, Completion
from memagent.models.scripted import ScriptedModel
from memagent.session.context.archive import READ_ARCHIVED, FileArchive
from memagent.session.context.buffer import SummaryBuffer

SUMMARY = "<summary>What was found.</summary>"


def good(request: ChatRequest) -> str:
    return SUMMARY


async def test_orphaned_tool_results_after_compaction() -> None:
    buffer = await opened(model := ScriptedModel(good))
    for name in ("a", "a", "", "b"):  # ids that repeat, are empty, or are not the call's
        await buffer.append(acts(call("do", id=name)))
        await buffer.append(result("x" * 150, id="nobody's" if name == "b" else name))
        check_strictly(buffer.messages)
    await fill(buffer)
    await buffer.compact()
    await buffer.append(result("late", id="a"))  # its call has left
    check_strictly(buffer.messages)
    check_strictly(model.requests[0].messages)
    assert "late" in buffer.messages[-1].content


async def test_pending_or_parallel_calls_split() -> None:
    buffer = await opened(model := ScriptedModel(good))
    await fill(buffer)
    await buffer.append(acts(call("do", id="a"), call("do", id="b"), text="both"))
    await buffer.append(result("first " + "x" * 300, id="b"))
    report = await buffer.compact()
    assert report is not None
    assert "both" not in "".join(m.content for m in model.requests[0].messages)
    await buffer.append(result("second", id="a"))
    check_strictly(buffer.messages)
    *_, head, a, b = buffer.messages
    assert (head.content, a.content, b.content[:6]) == ("both", "second", "first ")


async def test_a_failed_summary_call_destroys_the_history() -> None:
    buffer = await opened(model := ScriptedModel([""] * 3 + [ModelError("away"), SUMMARY]))
    await fill(buffer, "do")
    before = buffer.messages
    with pytest.raises(CompactionFailed, match="3 times in a row"):
        await buffer.compact()
    with pytest.raises(ModelError, match="away"):
        await buffer.compact()
    assert buffer.messages == before
    assert [request.thinking for request in model.requests] == [None, False, False, None]
    assert len({request.seed for request in model.requests}) == 3  # the fourth begins anew
    report = await buffer.compact()
    assert report is not None
    assert (report.summary, report.usage.calls, report.usage.retries) == ("What was found.", 1, 4)
    assert not buffer.due


@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "ignores-tool-choice"])
async def test_a_model_that_keeps_calling_ends_the_session(obeys: bool) -> None:
    def calling(request: ChatRequest) -> str | Completion:
        may_call = request.tools and not (obeys and request.tool_choice == "none")
        return Completion(text="", tool_calls=(call("do"),)) if may_call else SUMMARY

    buffer = await opened(model := ScriptedModel(calling), tools=TOOLS, working_context=6000)
    await fill(buffer, "do")
    before = buffer.messages
    report = await buffer.compact()
    assert report is not None
    assert report.summary == "What was found."
    first, *again = model.requests
    # The prompt goes on behind what was sent before, so that the server's cache holds its beginning.
    assert (first.tools, first.tool_choice) == (TOOLS, "none")
    assert first.messages[:-1] == before
    assert [request.tools for request in again] == ([] if obeys else [()])


async def test_the_compaction_request_itself_overflows() -> None:
    # The scripted model refuses what is over its window; here the turns take many times that.
    buffer = await opened(model := ScriptedModel(good, window=3000))
    for number in range(12):
        await step(buffer, number, f"{number} " + "x" * 900, "do")
    await step(buffer, 12, "y" * 9000, "do")
    report = await buffer.compact()
    assert report is not None
    assert len(report.conversations) > 1
    assert not buffer.due
    for number in range(12):
        shown = [
            r
            for r in model.requests
            if any(m.content.startswith(f"{number} x") for m in r.messages)
        ]
        assert len(shown) == 1


async def test_a_single_result_larger_than_the_window_is_clipped() -> None:
    buffer = await opened(ScriptedModel([]), tools=[READ_ARCHIVED], native=False)
    await step(buffer, 0, "head " + "x" * 20_000 + " tail", "do")
    report = await buffer.compact()  # no summary: there is no reply
    assert report is not None
    assert report.tiers == ("clip",)
    text = buffer.messages[-1].content
    assert "head" in text
    assert "tail" in text
    assert report.changes[0].handle in text
    assert not buffer.due


async def test_the_old_summary_is_not_merged_into_the_new_one() -> None:
    buffer = await opened(model := ScriptedModel(["first summary", "second summary"]))
    for _ in range(2):
        await fill(buffer)
        await buffer.compact()
    request = model.requests[1].messages
    assert "<summary>first summary</summary>" in request[1].content
    assert "first summary" not in buffer.messages[1].content
    assert buffer.summary == "second summary"


async def test_the_first_user_message_or_the_instructions_vanish() -> None:
    buffer = await opened(model := ScriptedModel(good))
    for _ in range(3):
        await fill(buffer)
        await buffer.compact()
        assert buffer.messages[0].content == "frame"
        assert buffer.messages[1].content.startswith("the task\n\nPart ")
    for request in model.requests:
        assert [m.content[:8] for m in request.messages[:2]] == ["frame", "the task"]


async def test_the_same_text_is_summarised_again_and_again() -> None:
    buffer = await opened(model := ScriptedModel(good))
    texts: list[str] = []
    for number in range(40):
        texts.append(f"text {number} ".ljust(200, "."))
        await step(buffer, number, texts[-1], "do")
        await buffer.compact()
    assert len(model.requests) > 2
    for text in texts:
        held = [r for r in model.requests if any(text in m.content for m in r.messages)]
        assert len(held) <= 1


async def test_compact_forget_reread_loops() -> None:
    """A reading that could never fit is not dropped, but shown clipped; one that was seen is listed as read."""
    archive = FileArchive()
    buffer = await opened(ScriptedModel(good), tools=TOOLS, native=False, archive=archive)
    await step(buffer, 1, "small ".ljust(100, "."))
    await step(buffer, 2, "page " + "x" * 8000)
    report = await buffer.compact()
    assert report is not None
    assert [c.what for c in report.changes] == ["summarised", "shown_again"]
    shown = buffer.messages[1].content
    assert 'look({"n": 2}) -> page xxx' in shown
    handle = re.search(r"in (t\w+)!", shown)
    assert handle is not None
    assert len(await asyncio.to_thread(archive.get, handle[1])) == 8005
    assert 'read: look({"n": 1})' in shown


async def test_the_reading_that_made_the_context_overflow_is_lost() -> None:
    buffer = await opened(ScriptedModel(good), working_context=8192)
    await step(buffer, 0, "small ".ljust(100, "."))
    await step(buffer, number := 1, f"result {number} ".ljust(7500, "."))
    report = await buffer.compact()
    assert report is not None
    assert report.changes[-1].what == "shown_again"
    assert f"-> result {number} ..." in buffer.messages[1].content
    assert f'read: look({{"n": {number}}})' in buffer.messages[1].content
    assert "pending" not in buffer.messages[1].content


async def test_token_counts_that_ignore_the_servers_real_window() -> None:
    model = ScriptedModel(good, window=2000)  # less than the working context
    buffer = await opened(model, working_context=4096)
    assert buffer.room + buffer.tokens == 2000
    for number in range(30):
        await step(buffer, number, "x" * 200, "do")
        await buffer.compact()
        assert buffer.tokens < buffer.limit < 2000


@pytest.mark.parametrize("early", [None, 0.6], ids=["due", "early"])
async def test_summary_tokens_leak_into_the_users_stream(early: float | None) -> None:
    """Summaries are calls of their own kind, which the user's loop never makes."""
    buffer = await opened(model := ScriptedModel(good), early=early)
    for number in range(30):
        await step(buffer, number, "x" * 200)
        await asyncio.sleep(0)
        await buffer.compact()
    await buffer.aclose()
    assert model.requests
    assert {request.kind for request in model.requests} == {"summary"}
    assert all(m.role != "assistant" or "found" not in m.content for m in buffer.messages)


async def test_nothing_records_what_was_dropped() -> None:
    buffer = await opened(ScriptedModel(good))
    turns: dict[int, str] = {}
    while not buffer.due:
        number, text = len(turns), f"text {len(turns)} ".ljust(150, ".")
        await step(buffer, number, text, "do")
        turns[number] = f'do({{"n": {number}}}) -> {text}'
    report = await buffer.compact()
    assert report is not None
    read = buffer.archive_tool.run
    for change in report.changes:
        if change.what in ("summarised", "shown_again"):
            assert await read({"handle": change.handle}) == turns.pop(change.turn)
    assert turns == {}
    assert report.tokens_before - report.tokens_after >= 300
    assert report.model_validate_json(report.model_dump_json()) == report


async def test_a_users_message_that_can_not_stay_whole_is_refused() -> None:
    buffer = await opened(ScriptedModel(good), max_summaries=99)
    await step(buffer, 0, "small", "do")
    await buffer.append(user("please " + "x" * 6000 + " now"))
    before = buffer.messages
    for _ in range(2):
        with pytest.raises(QuestionTooLong, match="takes more than 3000 tokens, but"):
            await buffer.compact()
        assert buffer.messages == before


async def test_what_the_user_said_later_vanishes() -> None:
    wish = "Only pages in German, please; and never touch the file <b>secrets.txt</b>."
    model = ScriptedModel(good)
    buffer = await opened(model)
    await step(buffer, 0, "small", "do")
    await buffer.append(user("An early word. " * 30))
    await step(buffer, 1, "small", "do")
    await buffer.append(user("A call could not be read."), ok=False)
    await step(buffer, 1, "small", "do")
    await buffer.append(user(wish))
    for _ in range(3):
        await fill(buffer, "do")
        await buffer.compact()
        assert sum(message.content.count(wish) for message in buffer.messages) == 1
        assert "could not be read" not in buffer.messages[1].content
        assert not buffer.due
    await buffer.append(user("Now in French."))
    await fill(buffer)
    await buffer.compact()
    text = buffer.messages[1].content
    assert text.index(wish) < text.index("Now in French.")


@pytest.mark.parametrize("size", [300, 800])
async def test_a_long_message_of_the_user_stays_whole(size: int) -> None:
    buffer = await opened(ScriptedModel(good), max_summaries=99)
    await step(buffer, 0, "small", "do")
    await buffer.append(user("please ".ljust(size, ".") + " now"))
    for _ in range(3):
        await fill(buffer, "do")
        await buffer.compact()
        assert "please ".ljust(size, ".") + " now" in buffer.messages[1].content
        assert not buffer.due
        await step(buffer, 1, "x" * 2000, "do")  # what is shown again has to fit beside it


async def test_a_system_message_in_mid_conversation_is_refused_by_templates() -> None:
    buffer = SummaryBuffer(model := ScriptedModel(good), prompts=SHORT, working_context=3000)
    await buffer.open([system(), user("the task"), system("Also: be brief.")])
    await step(buffer, 0, "small", "do")
    await buffer.append(system("Answer in German from now on."))
    check_strictly(buffer.messages)
    assert buffer.messages[-1] == user("Answer in German from now on.")
    await fill(buffer, "do")
    await buffer.compact()
    check_strictly(buffer.messages)
    check_strictly(model.requests[0].messages)
    assert "Answer in German from now on." in buffer.messages[1].content
