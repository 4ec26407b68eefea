"""Bytes -> text: what encoding, and where exactly a byte does not decode."""

import codecs
import logging
import random

import charset_normalizer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.documents.decoding import SAMPLE_BYTES, check_options, detect
from memagent.documents.decoding import decode as decoded
from memagent.errors import BinaryDocument, ConfigError, DecodingError

FRENCH = (
    "L'été dernier, la forêt brûlait à côté du château ; les élèves regardaient, très étonnés.\n"
    * 40
)
RUSSIAN = (
    "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n"
    * 40
)
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n" * 60
CHINESE = "话说天下大势,分久必合,合久必分。周末七国分争,并入于秦。\n" * 60


def decode(
    data: bytes, *, encoding: str | None = None, errors: str = "strict", step: int = 4096
) -> str:
    blocks = (data[at : at + step] for at in range(0, len(data), step))
    return "".join(decoded(blocks, "doc", encoding, errors))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.integers(1, 7))
def test_named_encodings_give_back_the_text_however_it_is_sliced(text: str, step: int) -> None:
    expected = text.removeprefix("\ufeff")
    for encoding in ("utf-8", "utf-16-le", "utf-32-be", "gb18030"):
        assert decode(text.encode(encoding), encoding=encoding, step=step) == expected


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_decides_and_is_dropped(mark: bytes, encoding: str, step: int) -> None:
    text = "naïve 日本 🇩🇪\r\n" * 20
    assert decode(mark + text.encode(encoding), step=step) == text


def test_only_the_leading_mark_is_dropped() -> None:
    assert decode(b"\xef\xbb\xbfa\xef\xbb\xbfb") == "a\ufeffb"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (FRENCH, "cp1252"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (CHINESE, "gb18030"),
    ],
)
def test_other_encodings_are_guessed_with_a_warning_that_names_the_setting(
    text: str, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "memagent"):
        assert decode(text.encode(encoding)) == text
    assert "--encoding" in caplog.text
    assert "'doc'" in caplog.text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(JAPANESE, "iso2022_jp"), ("수리 비용은 사천오백 원입니다.\n", "iso2022_kr")],
)
def test_encodings_that_shift_are_told_by_it(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding), step=7) == text
    with pytest.raises(DecodingError, match="name its encoding"):
        decode(text.encode(encoding) + b"\x1b$B~~")
    assert decode(b"\x1b[1mlog\x1b[0m $B") == "\x1b[1mlog\x1b[0m $B"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_without_a_mark_are_told_by_their_nul_bytes(encoding: str) -> None:
    assert (
        decode(("Plain English text, café.\n" * 30).encode(encoding))
        == "Plain English text, café.\n" * 30
    )


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_a_bad_byte_far_from_the_start_is_found_at_its_exact_offset(errors: str) -> None:
    head = ("naïve 日本語 " * 20000).encode()
    data = head + b"\xff" + b"tail"
    assert len(head) > 3 * SAMPLE_BYTES
    if errors == "replace":
        assert decode(data, errors=errors) == head.decode() + "\ufffdtail"
        return
    for step in (1000, 65536, len(data)):
        with pytest.raises(DecodingError, match="errors='replace'") as caught:
            decode(data, step=step)
        assert caught.value.offset == len(head)
        assert "--encoding" in str(caught.value)


@given(
    st.integers(0, 40),
    st.sampled_from([b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xe6\x97"]),
    st.integers(1, 9),
)
def test_offsets_do_not_depend_on_slices(before: int, bad: bytes, step: int) -> None:
    head = ("é日" * before).encode()
    with pytest.raises(DecodingError) as caught:
        decode(head + bad, encoding="utf-8", step=step)
    assert caught.value.offset == len(head)


def test_offset_counts_the_mark_and_other_codecs_too() -> None:
    with pytest.raises(DecodingError) as caught:
        decode(codecs.BOM_UTF8 + b"abc\xff")
    assert caught.value.offset == 6
    for encoding in ("gbk", "shift_jis", "euc_jp", "big5"):
        head = "日本".encode(encoding) * 5000
        with pytest.raises(DecodingError) as caught:
            decode(head + b"\xff\xff", encoding=encoding, step=4095)
        assert caught.value.offset == len(head)


def test_a_character_cut_off_at_the_end_is_an_error() -> None:
    with pytest.raises(DecodingError) as caught:
        decode("日本".encode()[:-1], encoding="utf-8")
    assert caught.value.offset == 3


def test_utf8_with_stray_bytes_is_an_error_not_a_guess() -> None:
    data = (
        "Ünïcödé tèxt wïth äccents. ".encode() * 10 + b"\x93quoted\x94" + "ünd so weiter".encode()
    )
    with pytest.raises(DecodingError) as caught:
        decode(data)
    assert caught.value.offset == data.index(b"\x93quoted")
    assert decode(data, errors="replace").count("\ufffd") == 2
    assert decode(data, errors="ignore") == data.decode(errors="ignore")


def test_ascii_with_a_sample_border_inside_a_character_is_utf8() -> None:
    text = "a" * (SAMPLE_BYTES - 1) + "é" * 10
    assert decode(text.encode(), step=SAMPLE_BYTES) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"%PDF-1.4 ...", "a PDF file.*pass its path"),
        (b"text\0text", "NUL byte at offset 4"),
        (bytes(range(1, 32)) * 30, "control characters"),
        (random.Random(0).randbytes(4000), "NUL"),
    ],
)
def test_binary_data_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(BinaryDocument, match=message):
        decode(data)


def test_a_named_encoding_overrides_what_looks_binary() -> None:
    assert decode(b"text\0text", encoding="utf-8") == "text\0text"


@pytest.mark.parametrize("encoding", ["utf-9", "rot13", "base64", "undefined", ""])
def test_encodings_that_are_none_are_refused(encoding: str) -> None:
    with pytest.raises(ConfigError, match="encoding="):
        check_options(encoding, "strict")


def test_error_modes_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="surrogateescape"):
        check_options(None, "surrogateescape")
    check_options("utf-8", "ignore")


def test_what_nothing_decodes_is_an_error_with_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def best(self) -> None:
            return None

    monkeypatch.setattr(charset_normalizer, "from_bytes", lambda _: Nothing())
    with pytest.raises(
        DecodingError, match=r"cannot be determined.*encoding='utf-8', errors='replace'"
    ) as caught:
        detect(b"abc \x80\x81\x82", True, "doc")
    assert caught.value.offset == 4
