"""Counting with tiktoken, without its downloads."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from memagent.errors import TokenizerError
from memagent.messages import Message
from memagent.tokens import Tiktoken, load_counter
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE

BYTES = {bytes([i]): i for i in range(256)}


def small(pattern: str = r" ?\p{L}+|\s+(?!\S)|\s+| ?[^\s\p{L}]+") -> tiktoken.Encoding:
    ranks = {**BYTES, b"he": 256, b"ll": 257, b"hell": 258, b" w": 259}
    return tiktoken.Encoding(
        "small", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|end|>": 270}
    )


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a download was tried")

    monkeypatch.setattr("requests.get", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


def test_counts_and_measures() -> None:
    counter = Tiktoken(small())
    assert counter.name == "tiktoken:small"
    assert counter.count("hello w") == 3
    measured = counter.measure("hello w")
    assert (measured.tokens, measured.chars_within(2)) == (3, 5)
    assert counter.count("\ud800") == 3  # as U+FFFD


def test_control_tokens_in_a_text_are_plain_text() -> None:
    counter = Tiktoken(small())
    assert counter.control_tokens == {"<|end|>"}
    assert counter.count("<|end|>") == 7


def test_messages_have_an_upper_bound() -> None:
    bound = Tiktoken(small()).count_messages([Message(role="user", content="hello w")])
    assert bound == 3 + MESSAGE_ALLOWANCE + REQUEST_ALLOWANCE


def test_a_missing_vocabulary_is_an_error_that_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(
        TokenizerError, match=r"not in .*doesn't download.*get_encoding\('o200k_base'\)"
    ) as caught:
        load_counter("tiktoken:o200k_base")
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(TokenizerError, match="TIKTOKEN_CACHE_DIR"):
        Tiktoken("gpt2")


def test_a_damaged_vocabulary_is_not_fetched_again(tmp_path: Path) -> None:
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    file = tmp_path / hashlib.sha1(url.encode()).hexdigest()
    file.write_bytes(b"damaged")
    with pytest.raises(TokenizerError, match="damaged"):
        Tiktoken("cl100k_base")
    assert file.read_bytes() == b"damaged"


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(TokenizerError, match=r"'davinci'.*cl100k_base"):
        load_counter("tiktoken:davinci")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(TokenizerError, match=r"memagent\[tiktoken\]"):
        Tiktoken("cl100k_base")
