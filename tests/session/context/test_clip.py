"""Texts become head and tail, and the whole of them stays within reach."""

import asyncio
import json

import pytest
from tests.session.context.strict import READ_ARCHIVED, acts, call, opened

from memagent.messages import Message
from memagent.models.scripted import ScriptedModel
from memagent.session.context.clip import (
    clipped,
    clipped_message,
    clipped_result,
    clipped_turn,
    shown_again,
)
from memagent.session.context.plan import SessionPlan
from memagent.session.context.turns import Result, Turn

LONG = "".join(f"{number:04d} " for number in range(1000))


@pytest.fixture
def plan() -> SessionPlan:
    buffer = asyncio.run(opened(ScriptedModel([]), tools=[READ_ARCHIVED], native=False))
    return buffer._ready.plan


def turn(*texts: str) -> Turn:
    calls = tuple(call("do", f"[{n}]", f"c{n}") for n in range(len(texts)))
    return Turn(4, acts(*calls), ("",) * len(texts), tuple(map(Result, texts)))


@pytest.mark.parametrize("limit", [150, 500, 4000])
@pytest.mark.parametrize(
    "text", [LONG, "\u4e2d" * 5000, "e\u0301" * 4000], ids=["ascii", "cjk", "clusters"]
)
def test_head_and_tail_fit_and_the_line_says_where_they_end(
    plan: SessionPlan, text: str, limit: int
) -> None:
    short, handle = clipped(plan, text, limit)
    assert plan.counter.count(short) <= limit
    head, line, tail = short.split("\n")
    start, end = (int(n) for n in line.strip("[]").split(" ")[0].split("-"))
    assert line == f"[{start}-{end} in {handle}!]"
    assert (head, tail) == (text[:start], text[end:])
    assert len(head) > len(tail) > 0
    assert plan.archive.get(handle) == text


def test_what_fits_stays_and_a_tiny_limit_leaves_the_line(plan: SessionPlan) -> None:
    assert clipped(plan, "short", 5)[0] == "short"
    short, handle = clipped(plan, LONG, 3)
    assert short == f"[0-5000 in {handle}!]"


def test_a_clipped_result_is_clipped_further_from_its_whole(plan: SessionPlan) -> None:
    once = clipped_result(plan, call("do"), Result(LONG), 1000)
    twice = clipped_result(plan, call("do"), once, 300)
    assert twice.handle == once.handle
    assert plan.archive.get(twice.handle or "") == LONG
    assert twice.text.count("[") == 1
    assert (
        clipped_result(plan, call("do"), Result("x" * 999, "t", fixed=True), 10).text == "x" * 999
    )


def test_reading_back_makes_no_new_handle(plan: SessionPlan) -> None:
    """The line leads on in the text that was read, again and again, to its end."""
    handle, start, seen = plan.archive.put(LONG), 0, ""
    for _ in range(100):
        arguments = {"handle": handle, "start": start}
        read = Result(LONG[start : start + 2000])
        result = clipped_result(plan, call("read_archived", json.dumps(arguments)), read, 500)
        if result == read:
            seen += read.text
            break
        assert result.handle == handle
        body, line = result.text.rsplit("\n", 1)
        seen += body
        start = int(line.strip("[]").split("-")[0])
    assert seen == LONG


@pytest.mark.parametrize(
    "arguments", ["{}", "no json", "[]", '{"handle": 3}', '{"handle": "t1", "start": "x"}']
)
def test_a_reading_that_went_wrong_is_a_result_like_others(
    plan: SessionPlan, arguments: str
) -> None:
    result = clipped_result(plan, call("read_archived", arguments), Result(LONG), 300)
    assert plan.archive.get(result.handle or "") == LONG


def test_the_longest_results_of_a_turn_are_made_shorter(plan: SessionPlan) -> None:
    short = clipped_turn(plan, turn("small", LONG, "x" * 300, LONG + "!"), 1000)
    texts = [result.text for result in short.results if result]
    assert (texts[0], texts[2]) == ("small", "x" * 300)
    assert sum(map(plan.counter.count, texts)) <= 1000
    assert abs(len(texts[1]) - len(texts[3])) < 20


def test_a_users_message_is_kept_whole_in_the_archive(plan: SessionPlan) -> None:
    said = Turn(2, Message(role="user", content=LONG))
    short, handle = clipped_message(plan, said, 400)
    assert plan.counter.count(short.head.content) <= 400
    assert short.head.role == "user"
    assert plan.archive.get(handle) == LONG


def test_a_turn_is_shown_again_within_its_tokens(plan: SessionPlan) -> None:
    text, handle = shown_again(plan, turn("small"))
    assert text == plan.archive.get(handle) == "do([0]) -> small"
    text, handle = shown_again(plan, turn("small", LONG))
    assert plan.counter.count(text) <= plan.shown
    assert text.startswith("do([0]) -> small\ndo([1]) -> 0000 0001")
    many, handle = shown_again(plan, turn(*[LONG] * 50))
    assert plan.counter.count(many) <= plan.shown
    assert plan.archive.get(handle).count("0999") == 50


def test_what_is_shown_again_is_safe(plan: SessionPlan) -> None:
    text, _ = shown_again(plan, Turn(0, acts(text="</summary></result><|im_end|>")))
    assert not {"</summary>", "</result>", "<|im_end|>"} & set(text.replace(">", "> ").split())


def test_a_failure_that_is_clipped_is_still_one() -> None:
    plan = asyncio.run(opened(ScriptedModel([])))._ready.plan
    for name in ("do", "read_archived"):
        made = call(name, '{"handle": "t1"}')
        short = clipped_result(plan, made, Result("away! " * 200, ok=False), 200)
        assert (short.ok, short.handle is None) == (False, False)
