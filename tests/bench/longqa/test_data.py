"""Data files of all forms, whole and broken."""

import gzip
import json
from pathlib import Path

import pytest
from tests.bench.longqa.data import hotpot, squad, titled, write

from memagent.errors import DocumentError, DocumentNotFound, EmptyDocument
from memagent_bench.longqa import data


def test_hotpotqa(tmp_path: Path) -> None:
    collection = data.hotpotqa((write(tmp_path / "h.json", hotpot()),))
    assert len(collection.paragraphs) == 60
    assert len(collection.questions) == 6
    assert collection.left_out == 0
    question = collection.questions[2]
    assert question.text == "How many bridges has the birthplace of Cyd Dunn?"
    assert question.answers == ("42 bridges",)
    assert [collection.paragraphs[i].title for i in question.gold] == [
        "Cyd Dunn",
        "Town of Mia Noor",
    ]
    assert collection.paragraphs[question.gold[0]].text == (
        "Cyd Dunn is a poet. Cyd Dunn was born in the Town of Mia Noor."
    )
    assert len(question.near) == 10
    assert set(question.gold) < set(question.near)
    assert collection.name.startswith("h.json:")


def test_hotpotqa_with_gold_titles_and_text_in_one_piece(tmp_path: Path) -> None:
    entries = hotpot(2)
    for entry in entries:
        entry["gold_titles"] = [title for title, _ in entry.pop("supporting_facts")]
        entry["context"] = [[title, "".join(text)] for title, text in entry["context"]]
    plain = data.hotpotqa((write(tmp_path / "a.json", entries),))
    usual = data.hotpotqa((write(tmp_path / "b.json", hotpot(2)),))
    assert plain.questions == usual.questions
    assert plain.paragraphs == usual.paragraphs


def memagents(entries: list[dict]) -> list[dict]:
    """As MemAgent's evaluation files hold such questions."""
    return [
        {
            "context": "\n\n".join(
                f"Document {i}:\n{title}\n{''.join(text)}"
                for i, (title, text) in enumerate(entry["context"], start=1)
            ),
            "input": entry["question"],
            "answers": [entry["answer"]],
            "num_docs": len(entry["context"]),
            "index": 7,
        }
        for entry in entries
    ]


def test_memagents_evaluation_files(tmp_path: Path) -> None:
    collection = data.hotpotqa((write(tmp_path / "eval_10.json", memagents(hotpot(3))),))
    usual = data.hotpotqa((write(tmp_path / "b.json", hotpot(3)),))
    assert collection.paragraphs == usual.paragraphs
    assert [(q.text, q.answers) for q in collection.questions] == [
        (q.text, q.answers) for q in usual.questions
    ]
    for question, of_usual in zip(collection.questions, usual.questions, strict=True):
        assert question.gold == (), "the file does not say"
        assert question.needed == question.given == of_usual.given


@pytest.mark.parametrize(
    "changed", [{"context": [3, 5]}, {"answers": []}, {"answers": {"a": 1}}, {"input": None}]
)
def test_memagents_files_without_text_are_refused(tmp_path: Path, changed: dict) -> None:
    (entry,) = memagents(hotpot(1))
    with pytest.raises(DocumentError, match="MemAgent's evaluation files"):
        data.hotpotqa((write(tmp_path / "eval_12800.json", [entry | changed]),))


def test_several_files_are_one_collection_without_doubles(tmp_path: Path) -> None:
    first, second = hotpot(4), hotpot(6)
    for entry in first:
        entry["context"] = [[title, ["".join(s) + " "]] for title, s in entry["context"]]
    paths = (write(tmp_path / "a.json", first), write(tmp_path / "b.json", second))
    collection = data.hotpotqa(paths)
    assert len(collection.questions) == 6
    assert len(collection.paragraphs) == 60, "white space does not make another paragraph"


def test_questions_without_their_gold_paragraphs_are_left_out_and_counted(tmp_path: Path) -> None:
    entries = hotpot(4)
    entries[1]["context"] = entries[1]["context"][:4]
    entries[2]["supporting_facts"] = []
    entries[3]["answer"] = " "
    collection = data.hotpotqa((write(tmp_path / "h.json", entries),))
    assert [q.text[-8:] for q in collection.questions] == ["na Brel?"]
    assert collection.left_out == 3


def test_a_gold_paragraph_may_come_with_another_question(tmp_path: Path) -> None:
    entries = hotpot(2)
    entries[1]["context"].append(entries[0]["context"].pop(3))
    collection = data.hotpotqa((write(tmp_path / "h.json", entries),))
    assert collection.left_out == 0
    gold = collection.questions[0].gold
    assert [collection.paragraphs[i].title for i in gold] == ["Ana Brel", "Town of Ola Park"]


def test_titles_are_without_html(tmp_path: Path) -> None:
    entries = hotpot(1)
    entries[0]["context"][0][0] = "Hornsby &amp; Sons"
    collection = data.hotpotqa((write(tmp_path / "h.json", entries),))
    assert collection.paragraphs[0].title == "Hornsby & Sons"


def test_squad(tmp_path: Path) -> None:
    collection = data.squad(write(tmp_path / "s.json", squad()))
    assert len(collection.paragraphs) == 30
    assert len(collection.questions) == 30, "impossible questions are left out"
    question = collection.questions[7]
    assert question.answers == ("1101 mills", "1101"), "each form once, in order"
    assert question.gold == (7,)
    assert list(question.near) == [6, 7, 8, 9, 10, 11]
    assert collection.paragraphs[7].title == "Old Mills 1"


def test_paragraphs_of_every_form(tmp_path: Path) -> None:
    paths = (
        write(tmp_path / "t.json", titled(3)),
        write(tmp_path / "h.json", hotpot(2)),
        write(tmp_path / "s.json", squad(2)),
    )
    collection = data.paragraphs(paths)
    assert len(collection.paragraphs) == 3 + 20 + 12
    assert collection.questions == ()
    assert data.paragraphs(()).paragraphs == []


def test_gzip_and_byte_order_marks(tmp_path: Path) -> None:
    path = tmp_path / "h.json.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(hotpot(2)).encode()))
    assert len(data.hotpotqa((path,)).questions) == 2
    unpacked = tmp_path / "no-suffix"
    unpacked.write_bytes(path.read_bytes())
    assert len(data.hotpotqa((unpacked,)).questions) == 2


def broken() -> dict[str, bytes]:
    packed = gzip.compress(json.dumps(hotpot(2)).encode())
    return {
        "text": b"Once upon a time",
        "cut": json.dumps(hotpot(2)).encode()[:-20],
        "number": b"7",
        "other list": b'[{"question": "Who?", "answer": "She"}]',
        "other object": b'{"rows": []}',
        "no list": b'[{"question": 3, "answer": "x", "context": []}]',
        "nothing in it": b"[]",
        "data of another kind": b'{"data": 5}',
        "packed and cut": packed[: len(packed) // 2],
        "packed and damaged": packed[:40] + b"\0\0\0\0" + packed[44:],
        "not UTF-8": json.dumps(hotpot(1)).encode("utf-16"),
        "deep": b"[" * 100_000,
    }


@pytest.mark.parametrize("what", broken())
@pytest.mark.parametrize("kind", ["hotpotqa", "squad", "paragraphs"])
def test_broken_files_are_named_with_what_was_expected(
    tmp_path: Path, what: str, kind: str
) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(broken()[what])
    with pytest.raises(DocumentError) as caught:
        data.squad(path) if kind == "squad" else getattr(data, kind)((path,))
    assert str(path) in str(caught.value)
    assert any(word in str(caught.value) for word in ("expected", "fetch it again", "no paragraph"))


# Named, and without a time: each process of pytest has to collect the same tests.
EMPTY = {"nothing": b"", "white space": b" \n", "gzip": gzip.compress(b"", mtime=0)}


@pytest.mark.parametrize("raw", EMPTY.values(), ids=EMPTY.keys())
def test_empty_files(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(raw)
    with pytest.raises(EmptyDocument, match="is empty; expected JSON"):
        data.squad(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, Path("a\0b")):
        with pytest.raises(DocumentNotFound, match="cannot be read"):
            data.hotpotqa((path,))


def test_swapped_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="SQuAD's own files"):
        data.squad(write(tmp_path / "h.json", hotpot(1)))
    with pytest.raises(DocumentError, match="HotpotQA's distractor files"):
        data.hotpotqa((write(tmp_path / "s.json", squad(1)),))
