import pytest
from tests.models.transformers.policies import tokenizer

from memagent.errors import ConfigError, TokenizerError
from memagent.messages import Message, ToolCall
from memagent_train.rollout.template import Template

CHAT = (
    Message(role="user", content="Who came to the village?"),
    Message(role="assistant", content="The old prince."),
    Message(role="user", content="And then?"),
)
BARE = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"  # noqa: E501
# Leaves out what earlier replies say within <think>, as templates of reasoning models do.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.mark.parametrize("end", [1, 3])
def test_ids_are_those_of_the_tokenizer(end: int) -> None:
    names = tokenizer()
    template = Template(names)
    plain = [{"role": m.role, "content": m.content} for m in CHAT[:end]]
    wanted = names.apply_chat_template(plain, add_generation_prompt=True, tokenize=True)
    assert list(template.encode(template.render(CHAT[:end]))) == wanted["input_ids"]


def test_settings_of_padding_and_truncation_change_nothing() -> None:
    names = tokenizer()
    wanted = Template(names).encode(Template(names).render(CHAT))
    names(["a", "a longer one"], padding="max_length", truncation=True, max_length=4)
    template = Template(names)
    assert template.encode(template.render(CHAT)) == wanted
    names(["a", "a longer one"], padding="max_length", truncation=True, max_length=4)
    assert template.encode(template.render(CHAT)) == wanted


def test_thinking_goes_to_the_template() -> None:
    template = Template(tokenizer(), FORGETFUL)
    assert template.render(CHAT[:1]).endswith("assistant\n")
    assert template.render(CHAT[:1], thinking=True).endswith("assistant\n")
    assert template.render(CHAT[:1], thinking=False).endswith("</think>\n\n")


def test_half_a_surrogate_pair_is_replaced() -> None:
    template = Template(tokenizer())
    text = template.render((Message(role="user", content="a\ud800b"),))
    assert "a\ufffdb" in text
    assert template.encode(text)


def test_a_reply_is_read_without_special_tokens() -> None:
    template = Template(tokenizer())
    ids = template.encode("He said:  no .")
    assert template.decode([*ids, 2]) == "He said:  no ."


def test_without_a_template_the_error_names_the_remedy() -> None:
    names = tokenizer()
    names.chat_template = None
    with pytest.raises(ConfigError, match=r"no chat template: give one \(chat_template="):
        Template(names)
    assert Template(names, BARE).render(CHAT[:1]) == "user: Who came to the village?\nassistant: "


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        name_or_path = "slow"
        chat_template = BARE

    slow: object = Slow()
    with pytest.raises(ConfigError, match="Slow is a slow one"):
        Template(slow)  # pyright: ignore[reportArgumentType]


def test_messages_that_the_template_refuses() -> None:
    refusing = "{{ raise_exception('no system role') }}"
    with pytest.raises(TokenizerError, match="no system role"):
        Template(tokenizer(), refusing).render(CHAT)


def test_calls_and_results_go_to_the_template() -> None:
    source = (
        "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %} "
        "{{ c.function.name }} {{ c.function.arguments.at }}{% endfor %} {{ m.tool_call_id }}\n{% endfor %}"
    )
    call = ToolCall(id="a", name="look", arguments='{"at": "é"}')
    said = Message(role="assistant", content="", tool_calls=(call,))
    result = Message(role="tool", content="A house.", tool_call_id="a")
    wanted = "user \nassistant look é \ntool a\n"
    assert Template(tokenizer(), source).render([CHAT[0], said, result]) == wanted
