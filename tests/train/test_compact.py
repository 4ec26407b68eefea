import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.transformers.policies import FOLDER

from memagent import ScriptedModel, ToolAgent
from memagent.errors import WindowTooSmall
from memagent.messages import ChatRequest, Message, ToolCall, ToolSpec
from memagent.prompts.session import SessionPrompts
from memagent.tokens import load_counter
from memagent.trajectory import StopReason
from memagent_bench.games import make
from memagent_train.compact import CompactCalls, compact_wording, read_call, write, write_call

CELL = ToolSpec(
    name="cell",
    description="Tells what a cell holds.",
    parameters={
        "type": "object",
        "properties": {
            "row": {"type": "integer"},
            "column": {"type": "integer"},
            "note": {"type": "string"},
        },
    },
)
DRAW = ToolSpec(name="draw")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("reply", "said", "name", "values"),
    [
        ("draw()", "", "draw", {}),
        ("cell(3, 4)", "", "cell", {"row": 3, "column": 4}),
        (" cell ( column = 4 , row=3 ) \n", "", "cell", {"row": 3, "column": 4}),
        ("I look.\ncell(3, note=12)", "I look.", "cell", {"row": 3, "note": "12"}),
        ('cell(1, 2, "a, b) \\" c")', "", "cell", {"row": 1, "column": 2, "note": 'a, b) " c'}),
        ("cell(1, 2, red fox)", "", "cell", {"row": 1, "column": 2, "note": "red fox"}),
        ("cell([1, [2, 3]], 4)", "", "cell", {"row": [1, [2, 3]], "column": 4}),
        ('cell({"a": "b, c"}, note=[1, 2])', "", "cell", {"row": {"a": "b, c"}, "note": "[1, 2]"}),
        ('cell(1, 2, two "words"  )', "", "cell", {"row": 1, "column": 2, "note": 'two "words"'}),
        ('cell(,column="c" d, note=a=b,)', "", "cell", {"column": '"c" d', "note": "a=b"}),
        pytest.param(f"cell({'[' * 9999})", "", "cell", {"row": "[" * 9999}, id="deep"),
        ('cell([1, 2] , 3 4, "a" )', "", "cell", {"row": [1, 2], "column": "3 4", "note": "a"}),
        ("cell([x, [1, 2])", "", "cell", {"row": "[x", "column": [1, 2]}),
        (
            "cell([x, [1, 2]], 3)",
            "",
            "cell",
            {"row": "[x", "column": "[1", "note": "2]]", "value 4": 3},
        ),
        ("cell(1, 2, x, 9)", "", "cell", {"row": 1, "column": 2, "note": "x", "value 4": 9}),
    ],
)
def test_the_last_line_is_a_call(reply: str, said: str, name: str, values: dict[str, Any]) -> None:
    before, call = read_call(reply, (CELL, DRAW))
    assert call is not None
    assert (before, call.name, json.loads(call.arguments)) == (said, name, values)


@pytest.mark.parametrize(
    "values", ["[1," * 40_000, "[1," * 900 + "]" * 900 + "x", '["a",' * 40_000, '"a" b,' * 40_000]
)
def test_a_broken_call_is_read_in_linear_time(values: str) -> None:
    began = time.process_time()
    _, call = read_call(f"cell({values})", (CELL,))
    assert call is not None
    assert time.process_time() - began < 2


@given(st.dictionaries(st.sampled_from(["row", "column", "note"]), VALUES))
def test_what_is_written_is_read(values: dict[str, Any]) -> None:
    values = {name: str(one) if name == "note" else one for name, one in values.items()}
    written = write_call(ToolCall(id="a", name="cell", arguments=json.dumps(values)))
    _, call = read_call(written, (CELL,))
    assert call is not None
    assert call.values() == values


@pytest.mark.parametrize("reply", ["7", "look()", "draw() and more", "draw(", "", "draw()\n7"])
def test_anything_else_is_text(reply: str) -> None:
    assert read_call(reply, (CELL, DRAW)) == (reply, None)


def test_tools_calls_and_results_are_lines() -> None:
    call = ToolCall(id="a", name="cell", arguments='{"row": 3, "note": "x"}')
    messages = (
        Message(role="system", content="Play."),
        Message(role="user", content="How many?"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="17", tool_call_id="a"),
        Message(role="user", content="Sum up."),
    )
    assert [(one.role, one.content) for one in write(messages, (CELL, DRAW))] == [
        ("system", "Play.\ncell(row, column, note)\ndraw()"),
        ("user", "How many?"),
        ("assistant", 'cell(row=3, note="x")'),
        ("user", "-> 17\nSum up."),
    ]


async def test_what_the_model_wrote_is_sent_back_as_it_was() -> None:
    inner = ScriptedModel(["Hm.\n cell( 3,4 )", "17"], window=512)
    model = CompactCalls(inner)
    task = Message(role="user", content="How many?")
    reply = await model.complete(ChatRequest(messages=(task,), max_tokens=9, tools=(CELL,)))
    (call,) = reply.tool_calls
    assert (reply.text, call.values()) == ("Hm.", {"row": 3, "column": 4})
    said = Message(
        role="assistant", content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra
    )
    result = Message(role="tool", content="17", tool_call_id=call.id)
    again = ChatRequest(messages=(task, said, result), max_tokens=9, tools=(CELL,))
    assert (await model.complete(again)).text == "17"
    assert inner.requests[1].messages[1].content == "Hm.\n cell( 3,4 )"
    assert inner.requests[1].tools == ()


async def test_a_call_where_a_summary_is_wanted_says_nothing() -> None:
    model = CompactCalls(ScriptedModel(["draw()"], window=512))
    task = (Message(role="user", content="Sum up."),)
    request = ChatRequest(messages=task, max_tokens=9, tools=(DRAW,), tool_choice="none")
    reply = await model.complete(request)
    assert (reply.text, reply.tool_calls) == ("", ())


def player(request: ChatRequest) -> str:
    """Draws, sums up, and answers when the deck is empty."""
    last = request.messages[-1].content
    if request.kind == "summary":
        return "some cards"
    return "1, 2" if "the deck is empty" in last else "draw()"


async def test_a_game_is_played_in_a_small_window() -> None:
    counter = await asyncio.to_thread(load_counter, FOLDER)
    inner = ScriptedModel(player, window=1024, counter=counter)
    game = make("deck", seed=1, difficulty=30)
    prompts = await asyncio.to_thread(SessionPrompts.load, compact_wording())
    agent = ToolAgent(
        CompactCalls(inner),
        game.tools,
        working_context=640,
        summary_tokens=32,
        prompts=prompts,
        store=None,
    )
    result = await agent.arun(game.task)
    assert result.stop_reason is StopReason.ANSWERED
    assert (game.steps, result.summaries > 1) == (31, True)
    most = max(counter.count_messages(one.messages) + one.max_tokens for one in inner.requests)
    assert most <= 640


async def test_it_takes_half_of_what_the_text_protocol_takes() -> None:
    counter = await asyncio.to_thread(load_counter, FOLDER)
    game = make("deck", seed=1, difficulty=30)
    least: dict[str, int] = {}
    for name, wording, wrap in (("text", None, False), ("compact", compact_wording(), True)):
        inner = ScriptedModel(player, window=8192, counter=counter)
        agent = ToolAgent(
            CompactCalls(inner) if wrap else inner,
            game.tools,
            working_context=64,
            summary_tokens=32,
            protocol="native" if wrap else "text",
            prompts=wording,
            store=None,
        )
        with pytest.raises(WindowTooSmall) as error:
            await agent.arun(game.task)
        least[name] = int(str(error.value).partition("needs at least ")[2].partition(".")[0])
    assert least["compact"] < least["text"] / 2
