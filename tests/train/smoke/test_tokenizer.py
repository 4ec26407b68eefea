from pathlib import Path

import pytest
from transformers import AutoTokenizer

from memagent.messages import Message
from memagent.prompts import PromptSet
from memagent.tokens import load_counter
from memagent_engines.transformers.loading import text_counter
from memagent_train.rollout.conversations import render_continuation
from memagent_train.rollout.template import Template
from memagent_train.smoke.tokenizer import (
    END,
    FILLER,
    KINDS,
    ROLES,
    UNKNOWN,
    WORDING,
    word_tokenizer,
)

PROMPTS = Path(__file__).parents[3] / "src" / "memagent_train" / "smoke" / "prompts.toml"
FIELDS = {"question": "colour", "memory": "none", "chunk": "the sun red was low"}


def test_it_has_64_words_and_each_is_one_token() -> None:
    tokenizer = word_tokenizer()
    values = [word for kind in KINDS.values() for word in kind]
    words = [*WORDING, *KINDS, *values, *FILLER]
    assert len(tokenizer) == 64 == len({*words}) + 3 + len(ROLES)
    ids = tokenizer.encode(" ".join(words), add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(ids) == words
    assert tokenizer.decode(ids) == " ".join(words)
    unknown = tokenizer.encode("sunset", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(unknown) == [UNKNOWN]


def test_transformers_loads_it_as_it_was_saved(tmp_path: Path) -> None:
    saved = word_tokenizer()
    saved.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == saved.get_vocab()
    assert (loaded.eos_token, loaded.pad_token) == (END, "<pad>")
    assert loaded.chat_template == saved.chat_template


@pytest.mark.parametrize("kind", ["update", "answer"])
def test_memagent_counts_its_prompts_exactly(tmp_path: Path, kind: str) -> None:
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    messages = PromptSet.load(PROMPTS).render(kind, **FIELDS)  # pyright: ignore[reportArgumentType]
    ids = tokenizer.apply_chat_template(
        [message.model_dump() for message in messages],
        add_generation_prompt=True,
        return_dict=False,
    )
    for counter in (load_counter(tmp_path), text_counter(tokenizer)):
        assert counter.count_messages(messages) == len(ids)
        assert counter.count(FIELDS["chunk"]) == 5
        assert counter.measure("the sun red").tokens_of_prefix(len("the sun")) == 2


def test_a_conversation_goes_on_behind_its_prompt() -> None:
    template = Template(word_tokenizer())
    asked = [Message(role="user", content="ask colour")]
    said = [*asked, Message(role="assistant", content="red"), Message(role="user", content="write")]
    before = template.render(asked)
    rendered = render_continuation(template, before, said, 1)
    assert rendered.tail is not None
    assert template.encode(rendered.text)[: len(template.encode(before))] == template.encode(before)


def test_the_prompt_set_says_at_most_ten_words() -> None:
    prompts = PromptSet.load(PROMPTS)
    counter = text_counter(word_tokenizer())
    templates = [
        message.content
        for kind in ("update", "answer")
        for message in prompts.render(kind, question="", memory="", chunk="")
    ]
    said = [*templates, prompts.empty_memory, prompts.keep, prompts.done]
    assert sum(map(counter.count, said)) <= 10
    assert {word for text in said for word in text.split()} == {*WORDING}
