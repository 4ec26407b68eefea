import json
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.messages import Completion, Message, ToolCall
from memagent.texts import (
    VALUE_CHARS,
    clip,
    map_texts,
    message,
    name_error,
    plural,
    quote,
    repair_surrogates,
    show_length,
    words,
)


def test_a_huge_value_is_quoted_fast_and_short() -> None:
    huge = {"a": ["x" * 10_000_000] * 1000, "b": 10**4000}
    started = time.process_time()
    assert len(quote(huge)) < VALUE_CHARS + 40
    assert time.process_time() - started < 1


def test_numbers_of_things() -> None:
    assert [plural(n, "summary") for n in (0, 1, 2000)] == [
        "0 summaries",
        "1 summary",
        "2,000 summaries",
    ]
    assert (plural(1, "call"), plural(2, "call")) == ("1 call", "2 calls")


@given(st.text(st.characters(), max_size=20))
def test_repair_keeps_the_length_and_makes_a_text_encodable(text: str) -> None:
    made = repair_surrogates(text)
    assert len(made) == len(text)
    made.encode()
    assert repair_surrogates(made) is made


def test_data_is_changed_text_by_text() -> None:
    value = {"a": ["b", 1, None, {"c": "d"}]}
    assert map_texts(value, str.upper) == {"A": ["B", 1, None, {"C": "D"}]}


def test_no_message_call_or_reply_holds_half_a_surrogate_pair() -> None:
    extra: dict[str, Any] = {"reasoning_\ud800": ["\ud800"]}
    call = ToolCall(id="\ud800", name="a\ud800", arguments="\ud800", extra=extra)
    for value in (
        Message(role="tool", content="\ud800", tool_call_id="\ud800", extra=extra),
        Completion(text="\ud800", reasoning="\ud800", tool_calls=(call,), extra=extra),
        Completion.model_validate({"text": "\ud800"}),
    ):
        assert "\ufffd" in json.loads(value.model_dump_json().encode()).__repr__()


def test_a_short_text_is_left_as_it_is() -> None:
    assert clip("abc", 3) == "abc"


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert clip("abcdef", 2) == "ab... (4 more characters)"


class Silent(Exception):
    def __str__(self) -> str:
        raise OSError


def test_an_error_is_its_class_and_message() -> None:
    assert name_error(ValueError("no such page")) == "ValueError: no such page"
    assert name_error(KeyError()) == "KeyError"
    assert name_error(Silent()) == "Silent"
    assert message(ValueError("x" * 10_000)).endswith("... (8000 more characters)")


def test_lengths_are_shown_as_they_are_written() -> None:
    assert [show_length(n) for n in (8192, 1024 * 1024, 1536 * 1024, 1000)] == [
        "8K",
        "1M",
        "1536K",
        "1000",
    ]


@pytest.mark.parametrize(
    "text",
    ["लड़का लड़की", "ไม่ ไม้", "كَتَبَ الوَلَدُ", "שָׁלוֹם", "tea_1 10² ½ Ⅳ", "日 本 語 ABC ー", "warning"],
)
def test_words_have_their_vowel_signs_and_numbers(text: str) -> None:
    assert (
        words(text.replace("日 本 語 ", "日本語") + " \u26a0\ufe0f")
        == unicodedata.normalize("NFC", text.casefold()).split()
    )
