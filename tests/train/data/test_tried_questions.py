"""The file of what a model knows."""

from pathlib import Path

import pytest

from memagent_train.data.tried_questions import Header, TriedQuestion, drop_known, line, read_tried
from memagent_train.errors import DataError

HEADER = Header(
    source="squad", data="abc", model="scripted", tries=4, scorer="f1", prompt="def", seed=0
)


def written(path: Path, *right: int, after: bytes = b"") -> Path:
    tried = [TriedQuestion(index=10 * i, right=number, tries=4) for i, number in enumerate(right)]
    path.write_bytes(line(HEADER) + b"".join(map(line, tried)) + after)
    return path


def test_known_questions_are_left_out(tmp_path: Path) -> None:
    file = written(tmp_path / "tried.jsonl", 0, 1, 2, 4)
    assert drop_known([0, 10, 20, 30], file, 0.5, "abc") == [0, 10]
    assert drop_known([30, 10], file, 1.0, "abc") == [10]
    assert drop_known([0, 10], file, 0.01, "abc") == [0]


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    file = written(tmp_path / "tried.jsonl", 0, 1, after=b'{"index": 20, "rig')
    found = read_tried(file)
    assert list(found.tried) == [0, 10]
    assert file.read_bytes()[found.size :] == b'{"index": 20, "rig'


@pytest.mark.parametrize(
    ("asked", "digest", "said"),
    [
        ([0, 10], "abd", "for other data"),
        ([0, 10, 77, 78], "abc", r"lacks 2 of 4 questions \(the first is 77\)"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    asked: list[int], digest: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        drop_known(asked, written(tmp_path / "tried.jsonl", 0, 1), 0.5, digest)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff\n", b'{"index": 0}\n', b"no newline"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "tried.jsonl"
    file.write_bytes(content)
    with pytest.raises(DataError, match="is not a file of answers without the document"):
        read_tried(file)


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        read_tried(tmp_path / "none.jsonl")
