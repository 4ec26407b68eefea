"""What a strict server refuses, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.sessions.wire.desks import body, calling, desk, result

from memagent_bench.sessions.wire.desk import Refusal


def message(reply: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    status, fields = reply
    assert status == 200, fields
    return fields["choices"][0]["message"]


def test_a_step_is_played_by_what_the_prompt_tells() -> None:
    table = desk()
    (call,) = message(table.answer(body()))["tool_calls"]
    assert call["function"] == {"name": "read_ticket", "arguments": '{"ticket": 1}'}
    shown = body(calling(call["id"]), result(call["id"]))
    (call,) = message(table.answer(shown))["tool_calls"]
    assert call["function"]["name"] == "close_ticket"
    assert len(table.prompts) == table.usage.calls == 2
    assert table.usage.prompt_tokens == sum(table.prompts)
    assert table.kept == [1, 1]  # nothing was told yet


def test_a_prompt_over_the_window_is_refused_as_openai_does() -> None:
    table = desk(4000)
    status, fields = table.answer(body({"role": "user", "content": "x" * 4000}))
    assert status == 400
    assert fields["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 4000 tokens" in fields["error"]["message"]
    # The output that is asked for counts too.
    prompt = desk().answer(body())[1]["usage"]["prompt_tokens"]
    assert desk(prompt + 200).answer(body(max_tokens=200))[0] == 200
    assert desk(prompt + 199).answer(body(max_tokens=200))[0] == 400
    # And so does the reply, where nothing is said of it.
    assert desk(prompt + 10).answer(body())[0] == 400
    assert [why for why, _ in table.refused] == [Refusal.OVERFLOW]
    assert table.usage.calls == 0


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([calling("a")], "calls without results: a"),
        ([calling("a", "b"), result("a")], "calls without results: b"),
        (
            [calling("a", "b"), result("a"), {"role": "user", "content": "Go."}],
            "without results: b",
        ),
        ([result("a")], "a result without a call: a"),
        ([calling("a"), result("a"), result("a")], "a result without a call: a"),
    ],
)
def test_calls_and_results_that_lack_each_other_are_refused(messages: Any, said: str) -> None:
    table = desk()
    status, fields = table.answer(body(*messages))
    assert (status, said in fields["error"]["message"]) == (400, True)
    assert [why for why, _ in table.refused] == [Refusal.BROKEN_PAIR]


@pytest.mark.parametrize("how", [{"tools": None}, {"tools": []}, {"tool_choice": "none"}])
def test_a_request_that_allows_no_calls_is_for_a_summary(how: dict[str, Any]) -> None:
    table = desk()
    told = {"role": "user", "content": "For the review: the id of the vault is 12-ab."}
    said = message(table.answer(body(told, **how)))["content"]
    assert "the id of the vault is 12-ab." in said
    assert "There are 15 tickets on this shift" in said
    assert (table.summaries, table.prompts, table.usage.calls) == (1, [], 1)


def test_a_summary_is_cut_to_the_tokens_that_it_may_have() -> None:
    fields = desk().answer(body(tools=None, max_tokens=40))[1]
    assert fields["choices"][0]["finish_reason"] == "length"
    assert fields["usage"]["completion_tokens"] == 40
    assert len(fields["choices"][0]["message"]["content"]) <= 40


def test_summaries_may_come_from_elsewhere() -> None:
    table = desk(write=lambda messages, most: f"{len(messages)} messages")
    assert message(table.answer(body(tools=None)))["content"] == "1 messages"


def test_a_session_without_end_is_ended() -> None:
    table = desk(max_steps=-1)
    assert table.answer(body())[0] == 400
    assert [why for why, _ in table.refused] == [Refusal.OUT_OF_STEPS]


@pytest.mark.parametrize("bad", [{}, {"messages": 1}, {"messages": [{"role": "nobody"}]}])
def test_what_cannot_be_read_is_refused(bad: dict[str, Any]) -> None:
    table = desk()
    assert table.answer(bad)[0] == 400
    assert [why for why, _ in table.refused] == [Refusal.MALFORMED]
