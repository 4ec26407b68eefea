"""Names of binary formats, by their first bytes."""

import bz2
import io
import lzma
import zipfile

import pytest

from memagent.documents.formats import control_share, recognise


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
        (zipped(), "zip"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG"),
        (b"\x7fELF\x02\x01\x01\0", "ELF"),
        (bz2.compress(b"text" * 50), "bzip2"),
        (lzma.compress(b"text" * 50), "xz"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old or encrypted Microsoft"),
        (b"SQLite format 3\0\x10\0", "SQLite"),
        (b"RIFF\x24\x08\0\0WAVEfmt ", "RIFF"),
        (b"\0\0\0\x18ftypmp42", "MP4"),
    ],
)
def test_known_formats_are_named(data: bytes, word: str) -> None:
    name = recognise(data[:64])
    assert name is not None
    assert word in name


@pytest.mark.parametrize(
    "text",
    ["BZh is how a word may begin", "ID3 tags are explained here", "PK", "", "RIFF raff", "%PDF"],
)
def test_text_that_begins_like_a_format_is_text(text: str) -> None:
    assert recognise(text.encode()) is None


def test_control_share_counts_what_text_does_not_use() -> None:
    assert control_share(b"") == 0
    assert control_share(b"a\tb\r\n\x1b[0m\f") == 0
    assert control_share(b"\x01\x02ab") == 0.5
