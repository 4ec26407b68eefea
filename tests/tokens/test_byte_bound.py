"""UTF-8 bytes as an upper bound."""

import gzip
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from memagent.messages import Message
from memagent.tokens import ByteBound
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE
from memagent.tokens.byte_bound import line_ends

ROOT = Path(__file__).parents[2]
TEST = ROOT / "tests" / "data" / "tokenizer" / "tokenizer.json"
# A real vocabulary, where a checkout has it beside it; nothing depends on it.
GPT2 = ROOT.parent / "shared" / "data" / "gpt2-bpe-tokenizer" / "tokenizer.json.gz"
# Characters that NFC makes longer, and marks that it sorts and joins anew.
GROWING = [
    char for char in map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x2FA20)])
    if len(unicodedata.normalize("NFC", char).encode()) > len(char.encode())
]  # fmt: skip
MARKS = [*"\u0323\u0308\u0301\u0344\u0f73\u093c", "ä", "a", "ō", "क", "\u1100", "\u1161", "각"]
AWKWARD = st.text(
    st.sampled_from([*GROWING, *MARKS]) | st.characters(exclude_categories=["Cs"]), max_size=30
)


def nfc_tokenizer(file: Path) -> Tokenizer:
    raw = file.read_bytes()
    tokenizer = Tokenizer.from_buffer(gzip.decompress(raw) if file.suffix == ".gz" else raw)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = None
    return tokenizer


NFC = {file.name: nfc_tokenizer(file) for file in (TEST, GPT2) if file.is_file()}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
)


@given(JSON)
def test_line_ends_are_those_of_indented_json(value: object) -> None:
    assert line_ends(value) == json.dumps(value, indent=4).count("\n")


def test_it_says_what_it_is() -> None:
    assert (ByteBound().name, ByteBound().control_tokens) == ("utf8-bytes", frozenset())


@given(AWKWARD)
def test_counts_bytes_of_the_text_or_of_its_normal_form(text: str) -> None:
    forms = text, unicodedata.normalize("NFC", text)
    assert ByteBound().count(text) == max(len(form.encode()) for form in forms)


def test_a_character_that_grows_is_counted_as_it_will_be() -> None:
    note = "\U0001d160"  # a musical note: 4 bytes, and 12 in NFC
    assert [ByteBound().count(note * n) for n in (1, 100)] == [12, 1200]
    assert ByteBound().measure(note * 100).chars_within(600) == 50


@pytest.mark.parametrize("tokenizer", NFC.values(), ids=NFC)
@given(text=AWKWARD)
def test_it_bounds_tokenizers_that_normalise(tokenizer: Tokenizer, text: str) -> None:
    tokens = len(tokenizer.encode(text, add_special_tokens=False))
    assert tokens <= ByteBound().count(text)


def test_messages_have_their_allowances() -> None:
    messages = [Message(role="system", content="é"), Message(role="user", content="ab")]
    assert ByteBound().count_messages(messages) == 4 + 2 * MESSAGE_ALLOWANCE + REQUEST_ALLOWANCE


@given(st.text(max_size=30), st.integers(-1, 130))
def test_the_prefix_within_a_limit_is_the_longest(text: str, limit: int) -> None:
    chars = ByteBound().measure(text).chars_within(limit)
    if unicodedata.is_normalized("NFC", text):
        assert chars == max(
            [n for n in range(len(text) + 1) if len(text[:n].encode()) <= limit], default=0
        )


@given(AWKWARD, st.integers(0, 150))
def test_where_texts_are_not_normal_the_prefix_fits_all_but_for_resorted_marks(
    text: str, limit: int
) -> None:
    counter = ByteBound()
    chars = counter.measure(text).chars_within(limit)
    assert counter.count(text[:chars]) <= limit + len(text)
