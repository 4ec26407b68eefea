"""One compaction: the tiers in their order, early summaries, limits."""

import pytest
from tests.session.context.strict import acts, call, fill, opened, result, step, user

from memagent.errors import CompactionFailed, OutOfSummaries
from memagent.models.scripted import ScriptedModel


async def test_turns_become_a_summary_and_a_ledger() -> None:
    buffer = await opened(ScriptedModel(["all of it"]))
    number = await fill(buffer, "do")
    before = buffer.tokens
    report = await buffer.compact()
    assert report is not None
    assert (report.tiers, report.stage, report.summary) == (("summary",), 1, "all of it")
    assert (report.tokens_before, report.tokens_after) == (before, buffer.tokens)
    assert sorted(change.turn for change in report.changes) == list(range(number))
    text = buffer.messages[1].content
    assert "<summary>all of it</summary>" in text
    assert text.count("done: do(") == 1
    assert f"and {number - 1} more before these" in text


async def test_a_cheap_tier_needs_no_summary_even_where_none_is_left() -> None:
    buffer = await opened(ScriptedModel([]), max_summaries=0)
    while not buffer.due:
        await step(buffer, 1, "the same page " * 30)
    report = await buffer.compact()
    assert report is not None
    assert (report.tiers, report.stage, report.summary) == (("stale",), 0, None)


async def test_no_more_summaries_than_there_may_be() -> None:
    buffer = await opened(ScriptedModel([]), max_summaries=0)
    await fill(buffer)
    before = buffer.messages
    with pytest.raises(OutOfSummaries, match=r"0 summaries are written.*max_summaries"):
        await buffer.compact()
    assert buffer.messages == before


async def test_an_early_summary_takes_the_place_of_what_it_was_made_of() -> None:
    buffer = await opened(model := ScriptedModel(["early one"]), early=0.8)
    number = await fill(buffer)
    before = buffer.messages
    report = await buffer.compact()
    assert report is not None
    assert (report.early, report.summary, report.tiers) == (True, "early one", ("summary",))
    summarised = sum(message.role == "tool" for message in model.requests[0].messages)
    assert 0 < summarised < number
    assert [change.turn for change in report.changes] == list(range(summarised))
    assert buffer.messages[2:] == before[2 + 2 * summarised :]


async def test_an_early_summary_that_frees_too_little_is_followed_by_another() -> None:
    buffer = await opened(ScriptedModel(["early one", "second"]), early=0.01)
    await step(buffer, 0, "x" * 20)
    await fill(buffer)
    report = await buffer.compact()
    assert report is not None
    assert (report.stage, report.summary, report.tiers) == (2, "second", ("summary", "summary"))
    assert report.early
    assert report.changes[0].turn == 0
    assert [c.messages[-1].content for c in report.conversations] == ["early one", "second"]
    assert not buffer.due
    await buffer.aclose()


async def test_nothing_is_done_while_the_only_turn_waits() -> None:
    buffer = await opened(ScriptedModel([]))
    await buffer.append(acts(call("do", id="a"), call("do", id="b")))
    await buffer.append(result("x" * 4000, "a"))
    assert buffer.due
    assert await buffer.compact() is None
    await buffer.append(result("y", "b"))
    report = await buffer.compact()
    assert report is not None
    assert report.tiers == ("clip",)


async def test_little_beside_a_turn_that_waits_is_not_worth_a_summary() -> None:
    buffer = await opened(ScriptedModel([]))
    await step(buffer, 0, "small", "do")
    await buffer.append(acts(call("do", id="a"), call("do", id="b")))
    await buffer.append(result("x" * 4000, "a"))
    assert await buffer.compact() is None


@pytest.mark.parametrize("size", [400, 2800], ids=["dropped", "shown-again"])
async def test_a_last_turn_that_is_not_summarised_makes_nothing_stale(size: int) -> None:
    """It would take the only copy of a result with it."""
    fact = "THE FACT IS 42. " * (size // 16)
    buffer = await opened(model := ScriptedModel(["first"] * 9), working_context=4096)
    await step(buffer, 0, fact)
    while buffer.tokens + 300 < buffer.limit:
        await step(buffer, buffer.tokens, f"{buffer.tokens} ".ljust(90, "."))
    while not buffer.due:
        await step(buffer, 0, fact)
    last = sum(message.role == "tool" for message in buffer.messages) - 1
    report = await buffer.compact()
    assert report is not None
    assert report.changes[-1].what == ("dropped" if size == 400 else "shown_again")
    assert report.changes[-1].turn == last
    shown = [m.content for request in model.requests for m in request.messages]
    assert sum(text.count("THE FACT IS 42") for text in shown) >= size // 16
    assert not any(change.what == "stale" for change in report.changes)
    assert not any("[again" in text for text in shown)


async def test_earlier_repetition_still_counts_where_the_last_turn_is_dropped() -> None:
    buffer = await opened(model := ScriptedModel(["first"]), working_context=4096)
    for text in ("old " * 100, "new " * 100):
        await step(buffer, 900, text)
    await fill(buffer)
    report = await buffer.compact()
    assert report is not None
    assert [(c.what, c.turn) for c in report.changes if c.what == "stale"] == [("stale", 0)]
    assert report.changes[-1].what == "dropped"
    shown = "".join(m.content for m in model.requests[0].messages)
    assert ("new new" in shown, "old old" in shown) == (True, False)


async def test_room_is_made_by_force_before_it_is_due() -> None:
    buffer = await opened(ScriptedModel(["all of it"]))
    for number in range(8):
        await step(buffer, number, f"{number}".ljust(150, "."))
    assert not buffer.due
    before = buffer.tokens
    report = await buffer.compact(force=True)
    assert report is not None
    assert (report.tiers, report.summary) == (("summary",), "all of it")
    # The last turn fits: it is part of the summary.
    assert [change.what for change in report.changes] == ["summarised"] * 8
    assert before - buffer.tokens >= 300


async def test_by_force_the_cheap_tiers_come_first() -> None:
    buffer = await opened(ScriptedModel([]), max_summaries=0)
    for _ in range(3):
        await step(buffer, 0, "the same page " * 20)
    assert not buffer.due
    report = await buffer.compact(force=True)
    assert report is not None
    assert report.tiers == ("stale",)


async def test_a_users_message_and_a_turn_that_waits_stay_by_force() -> None:
    buffer = await opened(ScriptedModel(["all of it"] * 2))
    for number in range(8):
        await step(buffer, number, f"{number}".ljust(150, "."))
    await buffer.append(user("and now?"))
    await buffer.compact(force=True)
    assert buffer.messages[-1].content.endswith("and now?")
    for number in range(5):
        await step(buffer, number, f"{number}".ljust(150, "."))
    await buffer.append(acts(call("do")))
    await buffer.compact(force=True)
    assert buffer.messages[-1] == acts(call("do"))


async def test_nothing_to_be_gained_by_force_is_told() -> None:
    for messages in ((), (user("hi"),), (acts(text="hm"),)):
        buffer = await opened(ScriptedModel([]))
        for message in messages:
            await buffer.append(message)
        before = buffer.messages
        with pytest.raises(CompactionFailed, match="larger working_context"):
            await buffer.compact(force=True)
        assert buffer.messages == before
    await buffer.append(acts(call("do")))  # waits
    assert await buffer.compact(force=True) is None
