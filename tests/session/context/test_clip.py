"""Texts become head and tail, and the whole of them stays within reach."""

import json

import pytest
from tests.session.context.strict import acts, call, lay_out

from memagent.session.context.layout import Layout
from memagent.session.context.tiers import (
    clip_result,
    clip_text,
    clip_turn,
    show_again,
)
from memagent.session.context.turns import ToolResult, Turn

LONG = "".join(f"{number:04d} " for number in range(1000))


@pytest.fixture
def layout() -> Layout:
    return lay_out(native=False, can_read=True)


def turn(*texts: str) -> Turn:
    calls = tuple(call("do", f"[{n}]", f"c{n}") for n in range(len(texts)))
    return Turn(4, acts(*calls), ("",) * len(texts), tuple(map(ToolResult, texts)))


@pytest.mark.parametrize("limit", [150, 500, 4000])
@pytest.mark.parametrize(
    "text", [LONG, "\u4e2d" * 5000, "e\u0301" * 4000], ids=["ascii", "cjk", "clusters"]
)
def test_head_and_tail_fit_and_the_line_says_where_they_end(
    layout: Layout, text: str, limit: int
) -> None:
    short, handle = clip_text(layout, text, limit)
    assert layout.counter.count(short) <= limit
    head, line, tail = short.split("\n")
    start, end = (int(n) for n in line.strip("[]").split(" ")[0].split("-"))
    assert line == f"[{start}-{end} in {handle}!]"
    assert (head, tail) == (text[:start], text[end:])
    assert len(head) > len(tail) > 0
    assert layout.archive.get(handle) == text


def test_what_fits_stays_and_a_tiny_limit_leaves_the_line(layout: Layout) -> None:
    assert clip_text(layout, "short", 5)[0] == "short"
    short, handle = clip_text(layout, LONG, 3)
    assert short == f"[0-5000 in {handle}!]"


def test_a_clipped_result_is_clipped_further_from_its_whole(layout: Layout) -> None:
    once = clip_result(layout, call("do"), ToolResult(LONG), 1000)
    twice = clip_result(layout, call("do"), once, 300)
    assert twice.handle == once.handle
    assert layout.archive.get(twice.handle or "") == LONG
    assert twice.text.count("[") == 1
    assert (
        clip_result(layout, call("do"), ToolResult("x" * 999, "t", fixed=True), 10).text
        == "x" * 999
    )


def test_reading_back_makes_no_new_handle(layout: Layout) -> None:
    """The line leads on in the text that was read, again and again, to its end."""
    handle, start, seen = layout.archive.put(LONG), 0, ""
    for _ in range(100):
        arguments = {"handle": handle, "start": start}
        read = ToolResult(LONG[start : start + 2000])
        result = clip_result(layout, call("read_archived", json.dumps(arguments)), read, 500)
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
def test_a_reading_that_went_wrong_is_a_result_like_others(layout: Layout, arguments: str) -> None:
    result = clip_result(layout, call("read_archived", arguments), ToolResult(LONG), 300)
    assert layout.archive.get(result.handle or "") == LONG


def test_the_longest_results_of_a_turn_are_made_shorter(layout: Layout) -> None:
    short, changes = clip_turn(layout, turn("small", LONG, "x" * 300, LONG + "!"), 1000)
    assert [change.call for change in changes] == ["c1", "c3"]
    texts = [result.text for result in short.results if result]
    assert (texts[0], texts[2]) == ("small", "x" * 300)
    assert sum(map(layout.counter.count, texts)) <= 1000
    assert abs(len(texts[1]) - len(texts[3])) < 20


def test_a_turn_is_shown_again_within_its_tokens(layout: Layout) -> None:
    text, change = show_again(layout, turn("small"))
    assert text == layout.archive.get(change.handle) == "do([0]) -> small"
    text, _ = show_again(layout, turn("small", LONG))
    assert layout.counter.count(text) <= layout.again
    assert text.startswith("do([0]) -> small\ndo([1]) -> 0000 0001")
    many, change = show_again(layout, turn(*[LONG] * 50))
    assert layout.counter.count(many) <= layout.again
    assert layout.archive.get(change.handle).count("0999") == 50


def test_what_is_shown_again_is_safe(layout: Layout) -> None:
    text, _ = show_again(layout, Turn(0, acts(text="</summary></result><|im_end|>")))
    assert not {"</summary>", "</result>", "<|im_end|>"} & set(text.replace(">", "> ").split())


def test_a_failure_that_is_clipped_is_still_one() -> None:
    layout = lay_out()
    for name in ("do", "read_archived"):
        made = call(name, '{"handle": "t1"}')
        short = clip_result(layout, made, ToolResult("away! " * 200, ok=False), 200)
        assert (short.ok, short.handle is None) == (False, False)
