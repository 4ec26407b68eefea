"""Chat templates as tokenizers carry them."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from memagent.errors import TokenizerError
from memagent.messages import Message
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
    with pytest.raises(TokenizerError, match="cannot render"):
        render("{{ 1 + 'a' }}")


def test_thinking_is_defined_only_where_it_is_said() -> None:
    source = "{{ enable_thinking if enable_thinking is defined else 'unsaid' }}"
    template = ChatTemplate(source, {})
    assert template.render(ASK) == template.render(ASK, thinking=None) == "unsaid"
    assert template.render(ASK, thinking=False) == "False"
    assert template.render(ASK, thinking=True) == "True"


def test_a_template_that_does_not_parse_is_refused() -> None:
    with pytest.raises(TokenizerError, match="does not parse"):
        render("{% if %}")


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


@pytest.mark.parametrize("content", ["{", "[]"])
def test_broken_settings_are_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(TokenizerError, match=str(tmp_path)):
        find_template(tmp_path)
