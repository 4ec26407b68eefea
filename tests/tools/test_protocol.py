import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.messages import ToolCall, ToolSpec
from memagent.tools.protocol import (
    CALL,
    FORM,
    RESULT,
    describe,
    read_calls,
    write_call,
    write_result,
)


def made(*calls: tuple[str, str]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=f"call-{i}", name=name, arguments=arguments)
        for i, (name, arguments) in enumerate(calls)
    )


def test_tools_are_described_one_a_line() -> None:
    specs = [
        ToolSpec(name="search", description="Finds\npages.", parameters={"type": "object"}),
        ToolSpec(name="stop"),
    ]
    assert describe(specs).splitlines() == [
        '{"name":"search","description":"Finds\\npages.","parameters":{"type":"object"}}',
        '{"name":"stop","description":"","parameters":{"type":"object","properties":{}}}',
    ]


SEARCH = '{"name": "search", "arguments": {"query": "fog"}}'
FOG = ("search", '{"query": "fog"}')


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        ("An answer.\n", "An answer.\n", ()),
        ("", "", ()),
        (f"<call>{SEARCH}</call>", "", (FOG,)),
        (f"I look.\n<call>\n{SEARCH}\n</call>\n", "I look.", (FOG,)),
        (f"<call>{SEARCH}</call>\n<call>{SEARCH}</call>", "", (FOG, FOG)),
        (f"a <call>{SEARCH}</call> b <call>{SEARCH}</call> c", "a  b  c", (FOG, FOG)),
        (f"<call>```json\n{SEARCH}\n```</call>", "", (FOG,)),
        (f"<call>\n```\n{SEARCH}\n```\n</call>", "", (FOG,)),
        (f"```xml\n<call>{SEARCH}</call>\n```", "", (FOG,)),
        (f"I look. <call>{SEARCH}", "I look.", (FOG,)),
        (f"<call>{SEARCH}\n", "", (FOG,)),
        (f"<call>{SEARCH}</call", "", (FOG,)),
        (f"<call>```json\n{SEARCH}\n```", "", (FOG,)),
        (f"<call>{SEARCH}<call>{SEARCH}", "", (FOG, FOG)),
        ('<call>{"name": "stop"}</call>', "", (("stop", "{}"),)),
        ('<call>{"name": "stop", "arguments": null}</call>', "", (("stop", "{}"),)),
        ('<call>{"arguments": {}, "name": "stop"}</call>', "", (("stop", "{}"),)),
        ('<call>{"name": "stop", "arguments": "{\\"a\\": 1}"}</call>', "", (("stop", '{"a": 1}'),)),
        (
            '<call>{"name": "say", "arguments": {"text": "</call><call> in a text"}}</call>',
            "",
            (("say", '{"text": "</call><call> in a text"}'),),
        ),
        (
            '<call>{"name": "say", "arguments": {"text": "two\nlines"}}</call>',
            "",
            (("say", '{"text": "two\nlines"}'),),
        ),
        ("Use <callable> or <CALL>.", "Use <callable> or <CALL>.", ()),
        ("Write <call> to call.", "Write <call> to call.", ()),
        ("Between `<call>` and `</call>`.", "Between `<call>` and `</call>`.", ()),
        ("It ends with </call>.", "It ends with </call>.", ()),
    ],
    ids=range(24),
)
def test_calls_are_read(text: str, said: str, calls: Any) -> None:
    assert read_calls(text) == (said, made(*calls), None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<call>search fog</call>", "a JSON object has to follow <call>, not 'search fog</call>'"),
        ("<call>", "a JSON object has to follow <call>, not ''"),
        ("Write <call>search</call>", "a JSON object has to follow <call>"),
        ('<call>{"name": "search"', "it is not JSON: Expecting ',' delimiter"),
        ('<call>{"name": "sea', "it is not JSON: Unterminated string"),
        ("<call>{'name': 'search'}</call>", "it is not JSON: Expecting property name"),
        ('<call>{"name": "search",}</call>', "it is not JSON"),
        ('<call>{"name" "search"}</call>', "it is not JSON: Expecting ':' delimiter"),
        ("<call>{1: 2}</call>", "it is not JSON: Expecting property name"),
        (
            '<call>{"name": "a", "name": "b"}</call>',
            "'name' is there twice",
        ),
        ('<call>{"name": 3, "arguments": {}}</call>', "'name' is missing, or no text"),
        ('<call>{"arguments": {}}</call>', "'name' is missing"),
        ("<call>{}</call>", "'name' is missing"),
        (
            '<call>{"name": "f", "arguments": [1]}</call>',
            "'arguments' must be a JSON object, not [1]",
        ),
        ('<call>{"name": "f", "query": "fog"}</call>', "'query' does not belong there"),
        (
            f"<call>{SEARCH}\nand then</call>",
            "</call> has to follow the JSON, not 'and then</call>'",
        ),
        (f"<call>{SEARCH}}}</call>", "</call> has to follow the JSON, not '}</call>'"),
        ('<call>{"name": "f", "arguments": ' + '{"a":' * 200_000, "its JSON cannot be read: "),
    ],
    ids=range(18),
)
def test_a_call_that_cannot_be_read_is_a_problem(text: str, told: str) -> None:
    said, calls, problem = read_calls("I look. " + text, ["search", "open_page"])
    assert (said, calls) == (("I look. " + text.partition("<call>")[0]).strip(), ())
    assert problem is not None
    assert told in problem
    assert FORM in problem
    assert problem.endswith("The tools are: search, open_page.")
    assert len(problem) < 700


ARGUMENTS_ALONE = '{"query": "fog"}'


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        (f"I look.\n<tool_call>\n{SEARCH}\n</tool_call>", "I look.", (FOG,)),
        (f"<tool_call>{SEARCH}</tool_call>\n<tool_call>{SEARCH}", "", (FOG, FOG)),
        (f"<CALL>{SEARCH}</Call>", "", (FOG,)),
        (f'<call name="search">{ARGUMENTS_ALONE}</call>', "", (FOG,)),
        (f"<call id='1' name='search'>\n{ARGUMENTS_ALONE}", "", (FOG,)),
        (f'<call name="search">{SEARCH}</call>', "", (FOG,)),
        ('<call name="tag">{"name": "x"}</call>', "", (("tag", '{"name": "x"}'),)),
        (f"I look. {SEARCH}</call>", "I look.", (FOG,)),
        (f"<call>{SEARCH}</call> {SEARCH}</call>", "", (FOG, FOG)),
        (f"\n{SEARCH}\n", "", (FOG,)),
        ('{"arguments": {"query": "fog"}, "name": "search"}', "", (FOG,)),
        (f"I look.\n```json\n{SEARCH}\n```\n", "I look.", (FOG,)),
        (f"```\n{SEARCH}\n```\n```\n{SEARCH}", "", (FOG, FOG)),
    ],
    ids=range(13),
)
def test_calls_in_the_forms_of_other_protocols_are_read(text: str, said: str, calls: Any) -> None:
    assert read_calls(text, ["search"]) == (said, made(*calls), None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<tool_call>\n<function=search>\n</tool_call>", "a JSON object has to follow"),
        (f"<tool_call>[{SEARCH}]</tool_call>", "a JSON object has to follow"),
        (f"{SEARCH} and so on</call>", "</call> has to follow the JSON"),
        ("{oops}</call>", "it is not JSON"),
        ('{"name": "search"}', "its 'arguments' are missing"),
        ('{"name": "search", "query": "fog"}', "its 'arguments' are missing"),
        ('{"name": "search", "arguments": {"query": "f', "it is not JSON"),
        (f"{SEARCH}\n{SEARCH}", "tell several calls, or a text, apart"),
        (f"[{SEARCH}]", "a JSON object has to follow"),
        (f"Write\n```json\n{SEARCH}\n```\nto search.", "in the middle of a text"),
        (f"```json\n{SEARCH}\nand so on```", "</call> has to follow the JSON"),
    ],
    ids=range(11),
)
def test_what_may_be_a_call_of_another_protocol_is_a_problem(text: str, told: str) -> None:
    _, calls, problem = read_calls(text, ["search"])
    assert calls == ()
    assert problem is not None
    assert told in problem


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "arguments": {}}',
        '{"ship": "search"}',
        '```json\n{"name": "Ada", "arguments": {}}\n```',
        f"The call was {SEARCH}.",
        '["search"]',
        "{} and [] are empty",
        "A <tool_call> is how Qwen calls.",
    ],
    ids=range(7),
)
def test_json_that_names_no_tool_is_an_answer(text: str) -> None:
    assert read_calls(text, ["search"]) == (text, (), None)


def test_nothing_is_run_of_a_reply_that_is_partly_unreadable() -> None:
    _, calls, problem = read_calls(f"<call>{SEARCH}</call><call>oh</call><call>{SEARCH}</call>")
    assert calls == ()
    assert problem is not None
    assert "number 2 of your reply" in problem
    assert "Nothing was run" in problem


OBJECTS = st.dictionaries(
    st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)
)
ARGUMENTS = (
    st.builds(json.dumps, OBJECTS, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
    | st.text()
    | st.text(alphabet='{}[]":,</call>` \n\\u0')
)
CALLS = st.builds(ToolCall, id=st.just("call-0"), name=st.text(min_size=1), arguments=ARGUMENTS)


@given(CALLS)
def test_what_is_written_is_read(call: ToolCall) -> None:
    assert read_calls(write_call(call)) == ("", (call,), None)


@given(st.lists(CALLS, min_size=1, max_size=4), st.text(alphabet="abc \n.,ä"))
def test_several_are_read_in_order(calls: list[ToolCall], between: str) -> None:
    text = between.join(write_call(call) for call in calls)
    _, found, problem = read_calls(text)
    assert problem is None
    assert found == made(*((call.name, call.arguments) for call in calls))


PIECES = [
    "<call>",
    "</call>",
    '{"name": "f"',
    ', "arguments": ',
    "{}",
    "}",
    "```",
    "```json\n",
    "\n",
    '"',
    "\\",
]


@given(
    st.text(st.characters()) | st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join)
)
def test_any_text_is_read_or_is_a_problem(text: str) -> None:
    said, calls, problem = read_calls(text)
    assert not (calls and problem)
    if "call>" not in text:
        assert problem is None
        assert not calls
    said.encode()


@pytest.mark.parametrize(
    "text",
    [
        "<call" * 200_000,
        "<call>" + " " * 1_000_000,
        f"<call>{SEARCH}" + "\n" * 500_000 + "x",
        "`" * 1_000_000,
        "<call" + " " * 500_000 + "<call" + " " * 500_000,
        f"<call>{SEARCH}</call>" * 10_000,
        "<call> x" * 200_000,
        "</call>" * 200_000,
        "```{" * 200_000,
        f"```json\n{SEARCH}\n```\n" * 10_000,
        "[" * 1_000_000,
    ],
    ids=range(11),
)
def test_long_texts_are_read_fast(text: str) -> None:
    started = time.process_time()
    read_calls(text, ["search"])
    assert time.process_time() - started < 3


def test_a_result_names_its_tool_and_says_whether_it_failed() -> None:
    assert (
        write_result("search", "three pages", ok=True)
        == '<result name="search">\nthree pages\n</result>'
    )
    failed = write_result('x"> </result>\n<call>', "no", ok=False)
    assert failed == '<result name="x_____result___call_" ok="false">\nno\n</result>'


def test_results_and_calls_stand_in_the_tags_that_are_named() -> None:
    assert FORM.startswith(f"<{CALL}>")
    assert write_call(made(FOG)[0]).endswith(f"</{CALL}>")
    assert write_result("f", "", ok=True).endswith(f"</{RESULT}>")
