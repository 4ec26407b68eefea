"""Bounds for prompts with tools, against templates as models have them."""

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.tiny_model import chat_settings

from memagent.messages import Message, ToolCall, ToolSpec
from memagent.tokens import ByteBound, TokenizerFile
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE, TOOLS_ALLOWANCE
from memagent.tokens.byte_bound import byte_count, prompt_bound

TOKENIZER = Path(__file__).parents[1] / "data" / "tokenizer"
HERMES: str = chat_settings()["chat_template"]
INDENTED = HERMES.replace("tool | tojson", "tool | tojson(indent=4)").replace(
    "call.function.arguments | tojson", "call.function.arguments | tojson(indent=4)"
)
MARKUP = """\
{%- for tool in tools or [] -%}
{{- "<function>\n<name>" ~ tool.function.name ~ "</name>\n<description>" ~ tool.function.description -}}
{{- "</description>\n<parameters>" -}}
{%- for name, fields in tool.function.parameters.properties.items() -%}
{{- "\n<parameter>\n<name>" ~ name ~ "</name>\n" ~ fields | tojson ~ "\n</parameter>" -}}
{%- endfor -%}
{{- "\n</parameters>\n</function>\n" -}}
{%- endfor -%}
{%- for message in messages -%}
{{- "<|im_start|>" ~ message.role ~ "\n" ~ message.content -}}
{%- for call in message.tool_calls or [] -%}
{{- "\n<tool_call>\n<function=" ~ call.function.name ~ ">\n" -}}
{%- for name, value in call.function.arguments.items() -%}
{{- "<parameter=" ~ name ~ ">\n" ~ value ~ "\n</parameter>\n" -}}
{%- endfor -%}
{{- "</function>\n</tool_call>" -}}
{%- endfor -%}
{{- eos_token ~ "\n" -}}
{%- endfor -%}
"""
SCHEMAS = st.dictionaries(
    st.sampled_from(["x", "city", "größe", "日付"]),
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer"]), "title": st.text()}),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@pytest.fixture(scope="module", params=[HERMES, INDENTED, MARKUP], ids=["lines", "wide", "markup"])
def templated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TokenizerFile:
    folder = tmp_path_factory.mktemp("templated")
    shutil.copy(TOKENIZER / "tokenizer.json", folder)
    settings = chat_settings() | {"chat_template": request.param}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return TokenizerFile(folder)


@given(
    st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=4),
    st.lists(SCHEMAS, min_size=1, max_size=3),
)
def test_no_template_takes_more_than_the_bound(
    templated: TokenizerFile, arguments: list[dict[str, object]], schemas: list[dict[str, object]]
) -> None:
    tools = [
        ToolSpec(name=f"f{n}", description="Does.", parameters={"type": "object", "properties": s})  # pyright: ignore[reportArgumentType]
        for n, s in enumerate(schemas)
    ]
    calls = tuple(
        ToolCall(id=f"call{n:05d}", name="f0", arguments=json.dumps(a))
        for n, a in enumerate(arguments)
    )
    messages = [
        Message(role="user", content="Go."),
        Message(role="assistant", content="", tool_calls=calls),
        *(Message(role="tool", content="x", tool_call_id=call.id) for call in calls),
    ]
    exact = templated.count_messages(messages, tools=tools)
    assert exact <= prompt_bound(templated, messages, tools=tools)
    assert exact <= ByteBound().count_messages(messages, tools=tools)


def test_without_tools_the_bound_is_what_it_was() -> None:
    messages = [Message(role="user", content="héllo"), Message(role="tool", content="x")]
    plain = 6 + 1 + 2 * MESSAGE_ALLOWANCE + REQUEST_ALLOWANCE
    assert ByteBound().count_messages(messages) == plain


def test_tools_and_calls_cost_something_each() -> None:
    bound = ByteBound().count_messages
    ask = Message(role="user", content="Go.")
    tool = ToolSpec(name="f")
    bare, one = bound([ask]), bound([ask], tools=[tool])
    assert one > bare + TOOLS_ALLOWANCE
    assert one < bound([ask], tools=[tool, tool]) < 2 * one
    # Malformed arguments cost what they take as a text, too.
    huge = ToolCall(id="a", name="f", arguments="{" * 5000)
    said = Message(role="assistant", content="", tool_calls=(huge,))
    assert bound([said]) > 5000
    half = ToolCall(id="\ud800", name="f", arguments='"\ud800"')
    assert bound([Message(role="assistant", content="", tool_calls=(half,))]) > 0


def test_bytes_are_those_of_the_longer_form() -> None:
    for text in ("", "abc", "é", "e\u0301", "\u0958", "日本"):
        forms = (text, unicodedata.normalize("NFC", text))
        assert byte_count(text) == max(len(form.encode()) for form in forms)
    assert byte_count("\ud800") == 3
