import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from memagent_nano.sizes import PICO, SIZES
from memagent_nano.tokenizer import END, PAD, POLICY, USER, new_tokenizer

SPECIAL = (PAD, END, USER, POLICY)
ORDINARY = (
    "[keep]", "[done]", "<question>", "</memory>", "<chunk>", "<|im_start|>", "<s>", "none", "\\boxed{1}",
)  # fmt: skip


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(
    request: pytest.FixtureRequest, tokenizers: dict[str, Path]
) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(tokenizers[request.param])


@given(text=st.text())
def test_any_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(number=st.integers(min_value=0, max_value=10**12))
def test_each_digit_is_a_token(tokenizer: PreTrainedTokenizerFast, number: int) -> None:
    spelt = [tokenizer.decode([one]) for one in tokenizer.encode(f"has {number} coins")]
    assert [one for one in spelt if any(letter.isdigit() for letter in one)] == [*str(number)]


def test_only_four_tokens_are_special(tokenizer: PreTrainedTokenizerFast) -> None:
    assert sorted(tokenizer.all_special_tokens) == sorted(SPECIAL)
    for text in SPECIAL:
        assert len(tokenizer.encode(text)) == 1
    for text in ORDINARY:
        assert not {*tokenizer.encode(text)} & {*tokenizer.all_special_ids}
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_a_conversation(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = [{"role": "user", "content": " ask\n"}, {"role": "assistant", "content": "- Tolu 12"}]
    told = tokenizer.apply_chat_template(chat, tokenize=False)
    assert told == f"{USER}ask{END}{POLICY}- Tolu 12{END}"
    asked = tokenizer.apply_chat_template(chat[:1], tokenize=False, add_generation_prompt=True)
    assert asked == f"{USER}ask{END}{POLICY}"
    tools: list[Any] = [{"type": "function", "function": {"name": "look"}}]
    offered = tokenizer.apply_chat_template(chat, tools=tools, tokenize=False)
    assert offered == f"{USER}{json.dumps(tools)}{END}{told}"


def test_it_is_always_the_same_and_of_its_size(tokenizers: dict[str, Path], tmp_path: Path) -> None:
    new_tokenizer(PICO).save_pretrained(tmp_path)
    file = "tokenizer.json"
    assert (tmp_path / file).read_bytes() == (tokenizers["pico"] / file).read_bytes()
    for name, folder in tokenizers.items():
        assert len(AutoTokenizer.from_pretrained(folder)) == SIZES[name].vocabulary
