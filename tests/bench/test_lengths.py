"""Lengths as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.errors import ConfigError
from memagent.texts import show_length
from memagent_bench.lengths import MAX_LENGTH, parse_length, parse_lengths


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8k", 8192), ("4m", 4 * 1024 * 1024), ("8192", 8192), (" 1K ", 1024), ("1000", 1000)],
)
def test_k_is_1024_and_m_is_its_square(text: str, tokens: int) -> None:
    assert parse_length(text) == tokens


@pytest.mark.parametrize(
    "text", ["", "k", "0", "0k", "-8k", "8kb", "1.5m", "8 k", "٨k", "9" * 13, "99999999m", "8k\n8k"]
)
def test_what_is_no_length_is_named(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_length(text)
    assert repr(text) in str(caught.value)
    assert "8k" in str(caught.value)


def test_dots_double_until_the_next() -> None:
    assert parse_lengths("8k,16k,...,128k,4m") == (
        *(1024 * n for n in (8, 16, 32, 64, 128)),
        4 * 1024 * 1024,
    )
    assert parse_lengths("8k, …, 16k") == (8192, 16384)
    assert parse_lengths("3k,...,10k") == (3072, 6144, 10240), "the end is always in"


@pytest.mark.parametrize(
    "text", ["...,8k", "8k,...", "...", "8k,...,...,32k", "16k,...,8k", "8k,...,8k", "8k,,16k", ","]
)
def test_dots_stand_between_a_smaller_and_a_larger(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_lengths(text)


def test_a_length_comes_once() -> None:
    with pytest.raises(ConfigError, match="8K more than once"):
        parse_lengths("8k,16k,8192")


@given(st.integers(1, MAX_LENGTH))
def test_shown_lengths_read_back(length: int) -> None:
    assert parse_length(show_length(length)) == length
