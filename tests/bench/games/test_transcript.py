"""Reading summaries and results out of messages, however they are written."""

from __future__ import annotations

import pytest
from tests.bench.games.forgetting import as_text, native

from memagent.messages import Message, ToolCall
from memagent_bench.games.transcript import Call, call, results, summaries

LOOK = ToolCall(id="a", name="look", arguments='{"b": 2, "a": "x"}')
MOVE = ToolCall(id="b", name="move", arguments="{}")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def test_arguments_are_in_one_form() -> None:
    assert call("look", b=2, a="x") == Call("look", '{"a":"x","b":2}')
    assert call("node", name="kavo").name == "node"


@pytest.mark.parametrize("shown", [native, as_text])
def test_turns_are_read_with_fields_and_with_text(shown) -> None:
    assert results([user("Play."), *shown([(LOOK, "one"), (MOVE, "two"), (LOOK, "three")])]) == {
        call("look", a="x", b=2): ["one", "three"],
        call("move"): ["two"],
    }


def test_parallel_calls_are_paired_by_id_and_else_by_order() -> None:
    wish = Message(role="assistant", content="", tool_calls=(LOOK, MOVE))
    tool = [Message(role="tool", content=t, tool_call_id=i) for t, i in (("m", "b"), ("l", None))]
    expected = {call("move"): ["m"], call("look", a="x", b=2): ["l"]}
    assert results([wish, *tool]) == expected
    # A result too many belongs to no call.
    assert results([wish, *tool, Message(role="tool", content="n", tool_call_id="b")]) == expected


def test_parallel_calls_in_text_are_paired_by_order() -> None:
    said = '<call>{"name": "move", "arguments": {}}</call><call>{"name": "look", "arguments": {"a": 1}}</call>'
    shown = '<result of="move">\nm\n</result>\n<result of="look" ok="false">l</result>'
    found = results([Message(role="assistant", content=said), user(shown)])
    assert found == {call("move"): ["m"], call("look", a=1): ["l"]}


def test_calls_that_cannot_be_read_take_their_result_with_them() -> None:
    wish = Message(
        role="assistant", content="", tool_calls=(MOVE.model_copy(update={"arguments": "{"}), LOOK)
    )
    tool = [Message(role="tool", content=text) for text in ("bad", "good")]
    assert results([wish, *tool]) == {call("look", a="x", b=2): ["good"]}
    assert (
        results(
            [Message(role="assistant", content="<call>what</call>"), user("<result>x</result>")]
        )
        == {}
    )


@pytest.mark.parametrize(
    "line",
    [
        'look({"a": "x", "b": 2}) -> Step 1: a wall.',
        '- look(a="x", b=2) -> Step 1: a wall.',
        "look(a=x, b=2) -> Step 1: a wall.",
    ],
)
def test_lines_behind_a_summary_are_read(line: str) -> None:
    text = f"Task.\n<result>\nI look.\n{line}\nmove() -> Step 2: a door.\n</result>\nread: move({{}})\nGo on."
    assert results([user(text)]) == {
        call("look", a="x", b=2): ["Step 1: a wall."],
        call("move"): ["Step 2: a door."],
    }


def test_lines_of_the_ledger_are_no_results() -> None:
    assert results([user('done: move({"d": 1}) -> Step 1: you are at a pl...')]) == {}


def test_summaries_come_last_first_and_not_from_what_the_assistant_says() -> None:
    messages = [
        user("<summary>one</summary> and <summary>\ntwo\n</summary>"),
        Message(role="assistant", content="<summary>mine</summary>"),
        user("<summary>three</summary>, write it inside <summary> and </summary>"),
    ]
    assert [text.strip() for text in summaries(messages)] == ["and", "three", "two", "one"]
