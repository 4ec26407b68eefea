from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from memagent.errors import ConfigError
from memagent.messages import (
    ChatRequest,
    Completion,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
    Usage,
    describe_problem,
)

CALL = ToolCall(id="a1", name="add", arguments='{"a": 1}')
SENT = {"id": "a1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def _one_line(text: str) -> str:
    if "\n" in text:
        raise ValueError("must be one line")
    return text


class Setting(BaseModel, extra="forbid"):
    window: int = Field(default=1, gt=0)
    gate: Literal["off", "both"] = "off"
    name: Annotated[str, AfterValidator(_one_line)] = ""


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"window": 0}, "window must be greater than 0, got 0"),
        ({"gate": "ajar"}, "gate must be 'off' or 'both', got 'ajar'"),
        ({"name": "a\nb"}, "name must be one line, got 'a\\nb'"),
        ({"wimdow": 9}, "wimdow is unknown"),
    ],
)
def test_a_problem_is_a_sentence(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Setting.model_validate(fields)
    assert describe_problem(caught.value) == problem


def calls(*served: dict[str, Any]) -> tuple[ToolCall, ...]:
    message = {"role": "assistant", "content": None, "tool_calls": list(served)}
    return Message.from_openai(message).tool_calls


def function(name: str, arguments: object = "{}") -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_usages_add_up_field_by_field() -> None:
    one = Usage(**{name: place for place, name in enumerate(Usage.model_fields, start=1)})
    total = one + one
    assert total.model_dump() == {name: 2 * value for name, value in one.model_dump().items()}
    assert Usage() + one == one


def test_values_do_not_change_and_take_no_unknown_fields() -> None:
    message = Message(role="user", content="hi")
    with pytest.raises(ValidationError):
        message.content = "ho"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Message(role="user", content="hi", name="x")  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Message(role="wizard", content="hi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": float("inf")},  # JSON has no such number, so no record could hold it
        {"top_p": 0},
        {"top_p": 1.1},
    ],
)
def test_sampling_is_checked(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        Sampling(**fields)  # type: ignore[arg-type]
    with pytest.raises(ValidationError) as caught:  # which names where it stands
        ChatRequest.model_validate({"messages": (), "max_tokens": 1, "sampling": fields})
    assert caught.value.errors()[0]["loc"] == ("sampling", *fields)


def test_a_request_needs_room_for_an_output() -> None:
    with pytest.raises(ValidationError):
        ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=0)


def test_values_survive_json() -> None:
    completion = Completion(text="a\u2060b", usage=Usage(calls=1), reasoning="r")
    assert Completion.model_validate_json(completion.model_dump_json()) == completion


@pytest.mark.parametrize(
    ("message", "form"),
    [
        (Message(role="user", content="hi"), {"role": "user", "content": "hi"}),
        (Message(role="assistant", content=""), {"role": "assistant", "content": ""}),
        (
            Message(role="assistant", content="", tool_calls=(CALL,)),
            {"role": "assistant", "content": None, "tool_calls": [SENT]},
        ),
        (
            Message(role="assistant", content="so", tool_calls=(CALL,)),
            {"role": "assistant", "content": "so", "tool_calls": [SENT]},
        ),
        (
            Message(role="tool", content="2", tool_call_id="a1"),
            {"role": "tool", "content": "2", "tool_call_id": "a1"},
        ),
    ],
    ids=["user", "empty", "calls", "words-and-calls", "result"],
)
def test_messages_go_to_openais_form_and_back(message: Message, form: dict[str, Any]) -> None:
    assert message.to_openai() == form
    assert Message.from_openai(form) == message


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (
            {
                "role": "assistant",
                "content": "hi",
                "refusal": None,
                "audio": None,
                "tool_calls": None,
            },
            Message(role="assistant", content="hi"),
        ),
        (
            {"role": "user", "content": "hi", "name": "Pierre"},
            Message(role="user", content="hi", extra={"name": "Pierre"}),
        ),
        ({"role": "assistant"}, Message(role="assistant", content="")),
        (
            {"role": "assistant", "content": [{"type": "thinking"}, {"type": "text", "text": "a"}]},
            Message(
                role="assistant",
                content="a",
                extra={"content": [{"type": "thinking"}, {"type": "text", "text": "a"}]},
            ),
        ),
        (
            {"role": "assistant", "tool_calls": [SENT | {"extra_content": {"a": 1}}]},
            Message(
                role="assistant",
                content="",
                tool_calls=(CALL.model_copy(update={"extra": {"extra_content": {"a": 1}}}),),
            ),
        ),
        ({"role": "developer", "content": "x"}, Message(role="system", content="x")),
        (
            {"role": "tool", "content": [{"type": "text", "text": "a"}, "b"], "tool_call_id": "1"},
            Message(role="tool", content="a\nb", tool_call_id="1"),
        ),
        ({"role": "tool", "content": ""}, Message(role="tool", content="")),
    ],
    ids=["reply", "named", "no-content", "thinking", "signed", "developer", "parts", "no-id"],
)
def test_what_others_send_is_read(form: dict[str, Any], message: Message) -> None:
    assert Message.from_openai(form) == message
    assert Message.from_openai(message) is message


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "role"),
        ({"role": "wizard", "content": "x"}, "wizard"),
        ({"role": "user", "content": 3}, "content"),
        ({"role": "user", "content": [{"url": "x"}]}, "content"),
        ({"role": "user", "content": "x", "tool_calls": [SENT]}, "only an assistant may"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "function"),
        ({"role": "assistant", "tool_calls": [{"function": function("")}]}, "name"),
        ({"role": "assistant", "tool_calls": [{"function": function("f", 3)}]}, "arguments"),
        ({"role": "assistant", "tool_calls": "f"}, "tool_calls"),
        ("hello", "must be a valid dictionary or .*, got 'hello'"),
        ({"role": "assistant", "function_call": function("f")}, "use tool_calls"),
        (ToolCall(id="1", name="f", arguments="{}"), "role"),
        ({"role": "user" * 10_000}, "role"),
        (
            {"role": "user", "content": [{"type": "image", "data": b"png"}]},
            "not a valid JSON value",
        ),
        ({"role": "user", "content": "x", "at": object()}, "extra.at: .*not a valid JSON value"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value[:12],
)
def test_what_is_no_message_is_refused(form: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        Message.from_openai(form)
    assert len(str(refused.value)) < 1000


def test_ids_that_are_missing_or_repeated_are_made_by_place() -> None:
    read = calls(
        {"id": "x", "function": function("f")},
        {"id": "x", "function": function("g")},
        {"id": None, "function": function("h")},
        {"id": "", "function": function("i")},
        {"id": "call00003", "function": function("j")},
    )
    assert [call.id for call in read] == ["x", "call00001", "call00002", "call00003", "call00004"]
    assert [call.name for call in read] == list("fghij")
    assert all(len(call.id) == 9 and call.id.isalnum() for call in read[1:])
    # One of the server's own that looks like ours leaves ours another.
    clash = calls({"id": "call00001", "function": function("f")}, {"function": function("g")})
    assert [call.id for call in clash] == ["call00001", "call00002"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"a":1', '{"a":1'),
        ({"é": [1, None]}, '{"é": [1, null]}'),
        (None, "{}"),
        ("", "{}"),
        ({}, "{}"),
    ],
    ids=["malformed", "object", "none", "empty", "empty-object"],
)
def test_arguments_are_a_text(given: object, text: str) -> None:
    assert calls({"function": function("f", given)})[0].arguments == text


@pytest.mark.parametrize(
    "arguments",
    [
        "", "no", "[1]", '"a"', "null", '{"a": NaN}', "[" * 100_000, '{"a":' + "[" * 2000 + "]" * 2000 + "}",
        '{"a": ' + "9" * 5000 + "}",
    ],
    ids=["empty", "words", "list", "text", "null", "nan", "deep", "nested", "digits"],
)  # fmt: skip
def test_arguments_that_are_no_object_have_no_values(arguments: str) -> None:
    assert ToolCall(id="1", name="f", arguments=arguments).values() == {}


def test_arguments_have_values() -> None:
    for text in (' {"a": [1, "é\n"]}\n', '{"a": 2, "a": [1, "é\\n"]}'):
        assert ToolCall(id="1", name="f", arguments=text).values() == {"a": [1, "é\n"]}
    half = ToolCall(id="1", name="f", arguments='{"a": "\\ud800"}')
    assert half.values() == {"a": "\ufffd"}


def test_usage_is_added_and_taken_away() -> None:
    first, second = Usage(calls=2, retries=1), Usage(calls=1, prompt_tokens=9, repeated=1)
    assert first + second == Usage(calls=3, prompt_tokens=9, retries=1, repeated=1)
    assert first + second - first == second


def test_tools_in_openais_form_keep_the_order_of_their_keys() -> None:
    schema = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}, "required": []}
    form = ToolSpec(name="f", parameters=schema).to_openai()
    assert form == {
        "type": "function",
        "function": {"name": "f", "description": "", "parameters": schema},
    }
    assert list(form["function"]) == ["name", "description", "parameters"]
    assert list(form["function"]["parameters"]["properties"]) == ["b", "a"]
