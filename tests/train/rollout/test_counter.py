from hypothesis import given
from hypothesis import strategies as st
from tests.models.transformers.policies import tokenizer

from memagent.messages import Message
from memagent.tokens import TokenizerFile
from memagent_engines.transformers.loading import text_counter
from memagent_train.rollout.conversations import Conversations
from memagent_train.rollout.counter import RolloutCounter
from memagent_train.rollout.template import Template

NAMES = tokenizer()
TEXTS = text_counter(NAMES)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_texts_and_prompts_are_counted_as_the_tokenizer_does(text: str) -> None:
    counter = RolloutCounter(TEXTS, Conversations(Template(NAMES)))
    assert counter.count(text) == len(NAMES(text, add_special_tokens=False)["input_ids"])
    assert counter.measure(text).tokens == counter.count(text)
    rendered = NAMES.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True
    )
    messages = (Message(role="user", content=text),)
    assert counter.count_messages(messages) == len(rendered["input_ids"])


def test_continuations_are_counted_as_they_are_sent() -> None:
    conversations = Conversations(Template(NAMES))
    counter = RolloutCounter(TEXTS, conversations)
    asked = (Message(role="user", content="Who came?"),)
    letters = [NAMES(letter)["input_ids"][0] for letter in "the prince"]
    text = "the prince"
    conversations.add_reply(asked, conversations.prompt(asked), text, [*letters, 2], ended=True)
    more = (*asked, Message(role="assistant", content=text), Message(role="user", content="And?"))
    assert counter.count_messages(more) == len(conversations.prompt(more).ids)
    assert counter.count_messages(more) != TEXTS.count_messages(more), (
        "its reply is tokenised again"
    )


def test_it_has_the_name_and_control_tokens_of_the_file() -> None:
    counter = RolloutCounter(TEXTS, Conversations(Template(NAMES)))
    assert isinstance(TEXTS, TokenizerFile)
    assert counter.name == TEXTS.name == text_counter(NAMES).name
    assert "<|im_end|>" in counter.control_tokens
