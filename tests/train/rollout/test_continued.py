"""What a template writes behind a reply."""

import pytest
from tests.models.transformers.policies import tokenizer
from tests.train.rollout.test_template import BARE, CHAT, FORGETFUL

from memagent.messages import Message
from memagent_train.rollout.conversations import Rendered, render_continuation
from memagent_train.rollout.template import Template


def behind(template: Template, reply: str, *, after: str = "And then?") -> Rendered:
    before = template.render(CHAT[:1])
    chat = (CHAT[0], Message(role="assistant", content=reply), Message(role="user", content=after))
    return render_continuation(template, before, chat, 1)


@pytest.mark.parametrize("reply", ["The old prince.", "", " \n cut off", "memagent", "<|im_end|>"])
def test_the_tail_is_what_the_template_writes_behind_a_reply(reply: str) -> None:
    template = Template(tokenizer())
    rendered = behind(template, reply)
    assert (
        rendered.tail
        == "<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert rendered.text == template.render(CHAT[:1]) + reply + rendered.tail


@pytest.mark.parametrize("reply", ["\n two lines\n\n", "the same: And then?\nassistant: "])
def test_white_space_that_the_template_strips_is_no_change(reply: str) -> None:
    rendered = behind(Template(tokenizer(), BARE), reply)
    assert rendered.tail == "\nuser: And then?\nassistant: "


def test_a_template_that_changes_what_was_said_leaves_no_tail() -> None:
    template = Template(tokenizer(), FORGETFUL)
    assert behind(template, "<think>hm</think>The prince.").tail is None
    assert behind(template, "The prince.").tail is not None
    before = template.render(CHAT[:1], thinking=False)
    assert render_continuation(template, before, CHAT, 1).tail is None, (
        "the empty thought is left out later"
    )


def test_a_template_that_says_how_many_messages_there_are_leaves_no_tail() -> None:
    counting = "{{ messages | length }}" + BARE
    assert behind(Template(tokenizer(), counting), "The prince.").tail is None
