import gzip
from pathlib import Path

import pytest

from memagent.cli.setup import expected_chars, open_source
from memagent.errors import DocumentNotFound


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain words. " * 9000, "utf-8"),
        ("русские слова. " * 9000, "utf-8"),
        ("日本語。" * 900, "utf-16"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_expected_chars_is_near_enough_for_a_bar(
    tmp_path: Path, text: str, encoding: str, packed: bool
) -> None:
    path = tmp_path / "text"
    raw = text.encode(encoding)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    expected = expected_chars(open_source(path))
    assert expected is not None
    assert abs(expected - len(text)) <= 0.01 * len(text)


def test_nobody_knows_the_length(tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty", tmp_path / "broken.gz"
    empty.write_bytes(b"")
    broken.write_bytes(b"\x1f\x8bnonsense")
    assert expected_chars(open_source(empty)) is None
    assert expected_chars(open_source(broken)) is None


@pytest.mark.parametrize(
    ("name", "start", "known"),
    [
        ("page.html", b"<p>", False),
        ("page.HTM.gz", b"<p>", False),
        ("film.srt", b"1\n", False),
        ("book.docx", b"PK\x03\x04", False),
        ("letter.eml", b"From: ", False),
        ("paper.pdf", b"%PDF-1.7", False),
        ("paper", b"%PDF-1.7", False),
        ("notes.md", b"# ", True),
        ("notes.md.gz", b"# ", True),
        ("notes", b"<p>", True),
    ],
)
def test_what_is_converted_may_have_any_length(
    tmp_path: Path, name: str, start: bytes, known: bool
) -> None:
    raw = start + b"word " * 100
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert expected_chars(open_source(path)) == (len(raw) if known else None)


def test_paths_and_names(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")
    assert open_source(path).path == str(path)
    assert open_source(str(path), name="A").name == "A"
    with pytest.raises(DocumentNotFound):
        open_source(tmp_path / "nosuch")
