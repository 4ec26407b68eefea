import time

from hypothesis import given
from hypothesis import strategies as st

from memagent.tools.wording import VALUE_CHARS, clip, message, named, sendable, shown


def test_a_short_text_is_left_as_it_is() -> None:
    assert clip("abc", 3) == "abc"


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert clip("abcdef", 2) == "ab... (4 more characters)"


def test_a_huge_value_is_quoted_fast_and_short() -> None:
    huge = {"a": ["x" * 10_000_000] * 1000, "b": 10**4000}
    started = time.perf_counter()
    assert len(shown(huge)) < VALUE_CHARS + 40
    assert time.perf_counter() - started < 1


class Silent(Exception):
    def __str__(self) -> str:
        raise OSError


def test_an_error_is_its_class_and_message() -> None:
    assert named(ValueError("no such page")) == "ValueError: no such page"
    assert named(KeyError()) == "KeyError"
    assert named(Silent()) == "Silent"
    assert message(ValueError("x" * 10_000)).endswith("... (8000 more characters)")


def test_halves_of_surrogate_pairs_become_what_can_be_sent() -> None:
    assert sendable("a\ud800b") == "a\ufffdb"
    assert sendable("\ud83d\ude00") == "😀"


@given(st.text(st.characters()))
def test_any_text_can_be_sent(text: str) -> None:
    assert sendable(text).encode() is not None
    if all(not "\ud800" <= char <= "\udfff" for char in text):
        assert sendable(text) == text
