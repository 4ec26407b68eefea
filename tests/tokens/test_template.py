"""Chat templates as tokenizers carry them."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolCall, ToolSpec
from memagent.tokens.template import ChatTemplate, find_template

ASK = [Message(role="user", content="<Hi> & 'bye'")]


def render(source: str, **special: str) -> str:
    return ChatTemplate(source, special).render(ASK)


def test_what_hub_templates_use_is_there() -> None:
    assert render("{{ bos_token }}{{ messages[0].content }}", bos_token="<s>") == "<s><Hi> & 'bye'"
    assert render("{{ messages[0]['content'] | tojson }}") == "\"<Hi> & 'bye'\""
    assert render("{{ {'a': 'é'} | tojson(indent=1) }}") == '{\n "a": "é"\n}'
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().astimezone().year)
    assert (
        render("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}")
        == "1"
    )
    assert render("{% generation %}said{% endgeneration %}") == "said"
    assert render("{% if add_generation_prompt and not tools %}go{% endif %}") == "go"
    assert render("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"  # trim_blocks, lstrip_blocks


def test_a_refusal_names_the_roles() -> None:
    with pytest.raises(TokenizerError, match=r"\['user'\].*no users"):
        render("{{ raise_exception('no users') }}")


@pytest.mark.parametrize(
    "source",
    [
        *("{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{% for i in range(10**9) %}{% endfor %}"),
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_a_template_that_fails_is_refused(source: str) -> None:
    with pytest.raises(TokenizerError, match="cannot render"):
        render(source)


def test_thinking_is_defined_only_where_it_is_said() -> None:
    source = "{{ enable_thinking if enable_thinking is defined else 'unsaid' }}"
    template = ChatTemplate(source, {})
    assert template.render(ASK) == template.render(ASK, thinking=None) == "unsaid"
    assert template.render(ASK, thinking=False) == "False"
    assert template.render(ASK, thinking=True) == "True"


def test_a_template_that_does_not_parse_is_refused() -> None:
    for source in ("{% if %}", "{{ " + "(" * 5000):
        with pytest.raises(TokenizerError, match="does not parse"):
            render(source)


@pytest.mark.parametrize("source", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_templates_run_in_a_sandbox(source: str) -> None:
    with pytest.raises(TokenizerError):
        render(source)


def write(folder: Path, **settings: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert find_template(tmp_path) is None
    write(tmp_path, bos_token={"content": "<s>", "special": True}, eos_token="</s>", pad_token=None)
    assert find_template(tmp_path) is None
    write(
        tmp_path,
        bos_token={"content": "<s>"},
        chat_template=[
            {"name": "tool_use", "template": "t"},
            {"name": "default", "template": "{{ bos_token }}d"},
        ],
    )
    found = find_template(tmp_path)
    assert found is not None
    assert found.render(ASK) == "<s>d"
    (tmp_path / "chat_template.jinja").write_text("file {{ bos_token }}")
    found = find_template(tmp_path)
    assert found is not None
    assert found.render(ASK) == "file <s>"


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"chat_template": ["x"]}', '{"chat_template": [{"name": "default"}]}'),
        '{"chat_template": [{"name": ["a"], "template": "x"}]}',
    ],
)
def test_broken_settings_are_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(TokenizerError, match=str(tmp_path)):
        find_template(tmp_path)


# --- tools

LOOK = ToolSpec(name="look", description="Looks <far>.")
CALLED = Message(
    role="assistant",
    content="",
    tool_calls=(ToolCall(id="a", name="look", arguments='{"at":"caf\\u00e9"}'),),
)
RESULT = Message(role="tool", content="A house.", tool_call_id="a")


def test_tools_are_shown_as_servers_show_them() -> None:
    template = ChatTemplate("{{ tools | tojson if tools else 'none' }}", {})
    assert template.render(ASK) == "none"
    assert json.loads(template.render(ASK, tools=[LOOK])) == [LOOK.to_openai()]
    assert "<far>" in template.render(ASK, tools=[LOOK])


@pytest.mark.parametrize(
    ("arguments", "written"),
    [('{"at":"caf\\u00e9"}', '{"at": "café"}'), ('{"at"', "{}"), ("", "{}"), ("[1]", "{}")],
)
def test_arguments_are_objects_for_templates(arguments: str, written: str) -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.id }} {{ c.type }} {{ c.function.name }} {{ c.function.arguments | tojson }}"
        "{% endfor %}{{ m.tool_call_id }}{% endfor %}"
    )
    call = CALLED.tool_calls[0].model_copy(update={"arguments": arguments})
    said = CALLED.model_copy(update={"tool_calls": (call,)})
    assert ChatTemplate(source, {}).render([said, RESULT]) == f"a function look {written}a"


def test_a_template_that_leaves_tools_out_is_refused() -> None:
    template = ChatTemplate("{{ messages[0].content }}", {})
    for _ in range(2):
        with pytest.raises(TokenizerError, match=r"\['look'\].*text protocol"):
            template.render(ASK, tools=[LOOK])


def test_a_template_that_refuses_results_says_what_remains() -> None:
    source = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    with pytest.raises(TokenizerError, match=r"no tools.*text protocol"):
        ChatTemplate(source, {}).render([*ASK, CALLED, RESULT])


def test_a_template_of_its_own_for_tools(tmp_path: Path) -> None:
    plain, tools = "plain", "{{ tools | length }} tools"
    named = [{"name": "default", "template": plain}, {"name": "tool_use", "template": tools}]
    write(tmp_path, chat_template=named)
    in_settings = find_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(plain)
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text(tools)
    write(tmp_path)
    for found in (in_settings, find_template(tmp_path)):
        assert found is not None
        assert found.render(ASK) == "plain"
        assert found.render(ASK, tools=[LOOK, LOOK]) == "2 tools"
