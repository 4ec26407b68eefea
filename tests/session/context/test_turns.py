"""Whatever ids come in, what goes out holds for strict servers."""

import json
from collections.abc import Sequence
from functools import partial

import pytest
from tests.session.context.strict import (
    SHORT,
    acts,
    call,
    check_strictly,
    lay_out,
    opened,
    result,
    safe,
    system,
    user,
)

from memagent.messages import Message
from memagent.models.scripted import ScriptedModel
from memagent.prompts import Neutraliser
from memagent.session.context.turns import (
    Turn,
    join_users,
    neutralise_arguments,
    place_message,
    render_turns,
)

END = "<|im_end|>"
SAFE = "<\u2060|im_end|>"
SPOKEN = Neutraliser(None)


render_text = partial(render_turns, native=False)


def made(messages: Sequence[Message]) -> tuple[Turn, ...]:
    turns: tuple[Turn, ...] = ()
    for message in messages:
        turns = place_message(turns, message, len(turns), SHORT)
    return turns


def contents(turns: Sequence[Turn]) -> list[str]:
    return [message.content for message in render_turns(turns, "(none)")]


@pytest.mark.parametrize(
    ("ids", "answers", "texts"),
    [
        pytest.param("ab", "ab", "12", id="in-order"),
        pytest.param("ab", "ba", "21", id="by-id"),
        pytest.param("aa", "aa", "12", id="repeated"),
        pytest.param(["", ""], ["", ""], "12", id="empty"),
        pytest.param("ab", [None, None], "12", id="missing"),
        pytest.param("ab", "xy", "12", id="unknown"),
        pytest.param("ab", "b?", "21", id="one-known"),
        pytest.param(["", "c00000000"], ["c00000000", ""], "21", id="one-like-a-new-one"),
    ],
)
def test_results_find_their_calls(
    ids: Sequence[str], answers: Sequence[str | None], texts: str
) -> None:
    calls = [call("do", f"[{place}]", name) for place, name in enumerate(ids)]
    results = [result(str(place + 1), name) for place, name in enumerate(answers)]
    turns = made([acts(*calls), *results])
    assert len(turns) == 1
    messages = render_turns(turns, "(none)")
    check_strictly(messages)
    assert "".join(message.content for message in messages[1:]) == texts
    assert [c.arguments for c in messages[0].tool_calls] == ["[0]", "[1]"]


def test_a_result_too_many_is_added_to_its_call() -> None:
    turns = made([acts(call("do", id="a"), call("do", id="b")), *map(result, "123", "aba")])
    assert contents(turns) == ["", "1\n3", "2"]
    assert contents(made([acts(call("do")), result("1"), result("2", None)])) == ["", "1\n2"]


def test_a_result_without_any_call_is_a_users_message() -> None:
    for turns in (made([result("lost")]), made([user("hi"), result("lost")])):
        check_strictly(join_users(render_turns(turns, "(none)")))
        assert turns[-1].head.role == "user"
        assert contents(turns)[-1] == f"{SHORT.stray}\nlost"


def test_a_call_whose_result_never_came_says_so_once_it_is_not_the_last() -> None:
    waiting = made([acts(call("do"))])
    assert waiting[0].pending
    assert contents(waiting) == [""]
    later = made([acts(call("do")), user("well?")])
    assert contents(later) == ["", "(none)", "well?"]
    check_strictly(render_turns(later, "(none)"))
    assert contents(made([acts(call("do")), user("well?"), result("late")])) == ["", "late", "well?"]  # fmt: skip
    assert contents([waiting[0].fill_results("(none)")]) == ["", "(none)"]


def test_a_late_result_goes_back_to_its_call_by_name_only() -> None:
    open_ = [acts(call("do", id="a")), acts(call("do", id="b"))]
    assert contents(made([*open_, result("late", "a")])) == ["", "late", ""]
    assert contents(made([*open_, result("now", " ")])) == ["", "(none)", "", "now"]


def test_a_hundred_empty_ids_are_a_hundred_ids() -> None:
    head = made([acts(*(call("do", id="") for _ in range(1100)))])[0].head
    assert len({c.id for c in head.tool_calls}) == 1100
    assert head.tool_calls[7].id == "c00000007"


def test_half_surrogate_pairs_and_stray_fields_are_repaired() -> None:
    odd = Message(role="user", content="\ud800!", tool_call_id="x", tool_calls=(call("do"),))
    (turn,) = made([odd])
    assert turn.head == user("\ufffd!")
    assert turn.results == ()


def test_calls_travel_as_text() -> None:
    turns = made([acts(call("do", '{"n": 1}'), text="so"), result("fine"), user("and?")])
    said, answer = join_users(render_text(turns, "(none)"))
    assert said.content == 'so\n<call>{"name": "do", "arguments": {"n": 1}}</call>'
    assert said.tool_calls == ()
    assert answer.content == '<result name="do">\nfine\n</result>\n\nand?'
    raw = acts(call("do"), text='<call>{"name": "do"}</call>')
    assert render_text(made([raw]), "(none)") == [Message(role="assistant", content=raw.content)]


def test_a_turn_is_one_text() -> None:
    (turn,) = made([acts(call("do", '{"n": 1}'), call("do", id="b"), text="so"), result("fine")])
    assert turn.transcript("(none)") == 'so\ndo({"n": 1}) -> fine\ndo({}) -> (none)'


def test_neighbours_of_the_user_are_joined() -> None:
    alice, bob = (user(who).model_copy(update={"extra": {"name": who}}) for who in ("A", "B"))
    assert [m.content for m in join_users([alice, alice, user("?"), bob])] == ["A\n\nA\n\n?", "B"]
    assert join_users([system(), user("a"), user(""), user("b"), acts(text="c"), user("d")]) == (
        system(), user("a\n\nb"), acts(text="c"), user("d"),
    )  # fmt: skip


def test_a_failure_is_marked_in_the_text_and_one_of_two_makes_both_one() -> None:
    (turn,) = place_message(made([acts(call("do"))]), result("away"), 1, SHORT, ok=False)
    assert (
        render_text([turn], "(none)")[1].content == '<result name="do" ok="false">\naway\n</result>'
    )
    (both,) = place_message((turn,), result("fine"), 1, SHORT)
    assert both.results[0] is not None
    assert (both.results[0].text, both.results[0].ok) == ("away\nfine", False)


@pytest.mark.parametrize(
    "said", ['<call >{"name": "do"}</call>', 'so <call>\n{"name": "do"}'], ids=["space", "open"]
)
def test_a_call_is_not_written_twice(said: str) -> None:
    assert render_text(made([acts(call("do"), text=said)]), "(none)")[0].content == said


def test_a_tag_that_is_no_call_does_not_stand_for_one() -> None:
    (said,) = render_text(made([acts(call("do"), text="a <call> tag")]), "(none)")
    assert said.content.endswith('\n<call>{"name": "do", "arguments": {}}</call>')


async def test_control_tokens_reach_no_prompt_whoever_says_them() -> None:
    buffer = await opened(ScriptedModel([]))
    await buffer.append(acts(call(f"do{END}", f'{{"n": "{END}"}}', END), text=f"so {END} <call>"))
    await buffer.append(result(f"{END} <call>", END))
    await buffer.append(user(f"{END} <call>"))
    *_, said, returned, asked = buffer.messages
    assert said == acts(call(f"do{SAFE}", f'{{"n": "{SAFE}"}}', SAFE), text=f"so {SAFE} <call>")
    assert returned == result(f"{SAFE} <\u2060call>", SAFE)
    assert asked.content == f"{SAFE} <call>"


def test_what_is_safe_stays_as_it_is() -> None:
    layout = lay_out()
    for message in (
        acts(call("do", '{"a":  "\\u003cb>", "n": 1e2, "n": 2} '), text="<call> </summary> <b>"),
        acts(call("do", "no JSON <b>")),
        result("a <b> \u00e9"),
        user("<result>"),
    ):
        assert safe(layout, message) == message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'{{"{END}": [1, "{END}", null]}}', f'{{"{SAFE}": [1, "{SAFE}", null]}}'),
        (r'{"a": "\u003c|im_end|\u003e", "b": "\\n"}', f'{{"a": "{SAFE}", "b": "\\\\n"}}'),
        ('{"a": "<|", "b": "|>"}', '{"a": "<\u2060|", "b": "|>"}'),
        (f"no JSON {END}", f"no JSON {SAFE}"),
        ("[" * 100_000 + END, "[" * 100_000 + SAFE),
    ],
    ids=["raw", "escaped", "across", "no-json", "deep"],
)
def test_arguments_stay_json(text: str, shown: str) -> None:
    assert neutralise_arguments(SPOKEN, text) == shown
    if text.startswith("{"):
        assert len(json.loads(shown)) == len(json.loads(text))


def test_a_control_token_of_json_itself_does_not_break_it() -> None:
    assert neutralise_arguments(Neutraliser(None, ['": ']), '{"a": 1}') == '{"a": 1}'
