"""One compaction: the tiers in their order, early summaries, limits."""

from typing import Any

import pytest
from tests.session.context.strict import (
    acted,
    acts,
    call,
    fill,
    lay_out,
    opened,
    result,
    step,
    turns_of,
    user,
)

from memagent.errors import CompactionFailed, OutOfSummaries
from memagent.messages import Message
from memagent.models.scripted import ScriptedModel
from memagent.session.context.compaction import split, split_early
from memagent.session.context.layout import Layout, Past
from memagent.session.context.tiers import Split
from memagent.session.context.turns import Turn


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
    with pytest.raises(OutOfSummaries, match=r"0 summaries have been written.*max_summaries"):
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


@pytest.mark.parametrize("size", [496, 2400], ids=["short", "long"])
async def test_a_last_turn_that_is_not_summarised_makes_nothing_stale(size: int) -> None:
    """It would take the only copy of a result with it."""
    fact = "THE FACT IS 42. " * (size // 16)
    buffer = await opened(model := ScriptedModel(["first"] * 9), working_context=4096)
    await step(buffer, 0, fact)
    while buffer.tokens + 120 < buffer.limit:
        await step(buffer, buffer.tokens, f"{buffer.tokens} ".ljust(40, "."))
    while not buffer.due:
        await step(buffer, 0, fact)
    last = sum(message.role == "tool" for message in buffer.messages) - 1
    report = await buffer.compact()
    assert report is not None
    assert report.changes[-1].what == "shown_again"
    assert report.changes[-1].turn == last
    shown = [m.content for request in model.requests for m in request.messages]
    assert sum(text.count("THE FACT IS 42") for text in shown) >= size // 16
    assert not any(change.what == "stale" for change in report.changes)
    assert not any("[again" in text for text in shown)


async def test_earlier_repetition_still_counts_beside_a_summary() -> None:
    buffer = await opened(model := ScriptedModel(["first"]), working_context=4096)
    for text in ("old " * 100, "new " * 100):
        await step(buffer, 900, text)
    await fill(buffer)
    report = await buffer.compact()
    assert report is not None
    assert [(c.what, c.turn) for c in report.changes if c.what == "stale"] == [("stale", 0)]
    assert report.changes[-1].what == "summarised"
    shown = "".join(m.content for m in model.requests[0].messages)
    assert ("new new" in shown, "old old" in shown) == (True, False)


async def test_room_is_made_by_force_before_it_is_due() -> None:
    buffer = await opened(ScriptedModel(["all of it"]))
    for number in range(6):
        await step(buffer, number, f"{number}".ljust(150, "."))
    assert not buffer.due
    before = buffer.tokens
    report = await buffer.compact(force=True)
    assert report is not None
    assert (report.tiers, report.summary) == (("summary",), "all of it")
    # The last turn fits: it is part of the summary.
    assert [change.what for change in report.changes] == ["summarised"] * 6
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


def laid_out(*steps: tuple[str, int] | Message) -> tuple[Layout, tuple[Turn, ...]]:
    """The turns of steps: a tool and the length of its result, or a message."""
    layout = lay_out()
    messages: list[Message] = []
    for number, given in enumerate(steps):
        single = isinstance(given, Message)
        messages += [given] if single else acted(number, f"{number}".ljust(given[1], "."), given[0])
    return layout, turns_of(layout, *messages)


def divide(session: tuple[Layout, tuple[Turn, ...]], past: Past | None = None) -> Split | None:
    layout, turns = session
    return split(layout, past or Past(), turns)


def numbers(turns: Any) -> list[int]:
    return [turn.number for turn in turns]


def left(parts: Split) -> list[int]:
    return [] if parts.left is None else [parts.left.number]


@pytest.mark.parametrize("name", ["look", "do"])
def test_a_turn_is_not_dropped_whatever_its_tools_are(name: str) -> None:
    """It was paid for: dropped, it would be called again."""
    parts = divide(laid_out(("do", 600), (name, 600)))
    assert parts is not None
    assert (numbers(parts.summarised), left(parts), parts.again) == ([0, 1], [], "")
    parts = divide(laid_out(("do", 1000), (name, 2000)))
    assert parts is not None
    assert (numbers(parts.summarised), left(parts)) == ([0], [1])
    assert parts.again.startswith(f'{name}({{"n": 1}}) -> 1....')
    (change,) = parts.changes
    assert (change.what, change.turn) == ("shown_again", 1)
    assert change.tokens_before > change.tokens_after > 0


def test_a_mixed_turn_is_not_dropped() -> None:
    both = acts(call("look", id="a"), call("do", id="b"))
    parts = divide(laid_out(("do", 600), both, result("x" * 900, "a"), result("y" * 900, "b")))
    assert parts is not None
    assert left(parts) == [1]
    assert parts.again


@pytest.mark.parametrize("name", ["look", "do"])
def test_a_turn_alone_is_clipped_without_a_summary(name: str) -> None:
    parts = divide(laid_out((name, 5000)))
    assert parts is not None
    assert (parts.summary, parts.summarised) == (False, ())
    assert parts.changes[0].what == "clipped"


def test_words_alone_that_are_too_long_are_summarised() -> None:
    parts = divide(laid_out(acts(text="x" * 5000)))
    assert parts is not None
    assert (parts.summary, numbers(parts.summarised)) == (True, [0])


def test_a_turn_that_waits_is_kept_and_alone_there_is_nothing_to_do() -> None:
    pair = acts(call("do", id="a"), call("do", id="b"))
    parts = divide(laid_out(("do", 600), pair, result("x" * 3000, "b")))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.kept)) == ([0], [1])
    assert parts.kept[0].pending
    assert divide(laid_out(pair, result("x" * 3000, "b"))) is None


def test_a_users_message_is_kept_and_clipped_if_it_must_be() -> None:
    parts = divide(laid_out(("do", 600), user("u" * 300)))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.kept), parts.changes) == ([0], [1], ())
    layout, turns = laid_out(("do", 600), user("u" * 3000))
    parts = split(layout, Past(), turns)
    assert parts is not None
    assert parts.changes[0].what == "clipped"
    assert len(parts.kept[0].head.content) < 1000
    assert parts.kept[0].head.role == "user"
    assert layout.archive.get(parts.changes[0].handle) == "u" * 3000
    parts = divide(laid_out(user("u" * 3000)))
    assert parts is not None
    assert (parts.summary, numbers(parts.kept)) == (False, [0])


def test_a_clipped_result_of_no_call_is_not_the_users_word() -> None:
    parts = divide(laid_out(result("r" * 3000, "gone")))
    assert parts is not None
    assert (len(parts.changes), parts.kept[0].own) == (1, False)


def test_what_is_shown_again_leaves_before_a_users_message_is_clipped_more() -> None:
    past = Past(1, "sum", again="r" * 700)
    parts = divide(laid_out(user("u" * 3000)), past)
    assert parts is not None
    assert (parts.summary, parts.summarised) == (True, ())


def test_below_the_limit_the_last_turn_is_summarised_too() -> None:
    turns = laid_out(("do", 60), ("look", 60))[1]
    assert split_early(Past(), turns) == Split(summarised=turns)
    assert split_early(Past(), ()) is None
    assert split_early(Past(again="last"), ()) == Split()
    said = laid_out(("do", 60), user("hi"))[1]
    assert split_early(Past(), said) == Split(summarised=said[:1], kept=said[1:])
    assert split_early(Past(), said[1:]) is None
