"""What an expert says about documents, and how data are divided for it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from memagent.errors import DocumentError
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_smol.expert import KEEP
from memagent_smol.lessons import EASY, MEMORY, Messages, Teacher, write
from memagent_smol.sources import (
    HELD_OUT_ARTICLES,
    SEEN_HOTPOT,
    SEEN_SQUAD,
    UNSEEN_HOTPOT,
    UNSEEN_SQUAD,
    divide,
)

ARTICLES = 24


def words(rng: Random, count: int) -> str:
    return " ".join(
        "".join(rng.choices("abcdeimnorstu", k=rng.randint(3, 8))) for _ in range(count)
    )


def squad_data(rng: Random) -> dict[str, Any]:
    def paragraph(place: int, number: int) -> dict[str, Any]:
        fact = f"Town {place} has {number} mills."
        context = f"{words(rng, 40).capitalize()}. {fact} {words(rng, 40).capitalize()}."
        asked = {
            "question": f"How many mills are in town {place} of {number}?",
            "answers": [{"text": f"{number} mills"}],
        }
        return {"context": context, "qas": [asked]}

    return {
        "data": [
            {"title": f"Article_{i}", "paragraphs": [paragraph(i, 100 * i + n) for n in range(8)]}
            for i in range(ARTICLES)
        ]
    }


def hotpot_data(rng: Random, count: int, first: int, *, supporting: bool) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for i in range(first, first + count):
        one, two = f"Person {i}", f"Place {i}"
        gold = [
            [one, [f"{one} is a painter.", f" He was born in {two}.", f" {words(rng, 10)}."]],
            [two, [f"{two} lies on river {i}.", f" {words(rng, 10)}."]],
        ]
        others = [[f"Other {i} {n}", [f"{words(rng, 60)}."]] for n in range(8)]
        entry = {
            "_id": str(i),
            "question": f"On which river was person {i} born?",
            "answer": f"river {i}",
            "context": [*gold, *others],
        }
        if supporting:
            entry["supporting_facts"] = [[one, 1], [two, 0]]
        else:
            entry["gold_titles"] = [one, two]
        entries.append(entry)
    return entries


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Divided data, made up here."""
    rng, folder = Random(0), tmp_path_factory.mktemp("data")
    squad, first, rest = (folder / f"{name}.json" for name in ("squad", "first", "rest"))
    squad.write_text(json.dumps(squad_data(rng)))
    first.write_text(json.dumps(hotpot_data(rng, 4, 0, supporting=False)))
    # Two of the other file are among the first ones, and are left out.
    rest.write_text(json.dumps(hotpot_data(rng, 40, 2, supporting=True)))
    divide(
        DataOptions(counter=length_counter(None), squad=squad, hotpotqa=(first, rest)),
        folder / "sources",
    )
    return folder / "sources"


def read(file: Path) -> Any:
    return json.loads(gzip.decompress(file.read_bytes()))


def test_articles_and_questions_are_divided(sources: Path) -> None:
    seen, unseen = (
        {article["title"] for article in read(sources / name)["data"]}
        for name in (SEEN_SQUAD, UNSEEN_SQUAD)
    )
    assert len(unseen) == HELD_OUT_ARTICLES
    assert len(seen) == ARTICLES - HELD_OUT_ARTICLES
    assert not seen & unseen
    asked, never = (
        {e["question"] for e in read(sources / name)} for name in (SEEN_HOTPOT, UNSEEN_HOTPOT)
    )
    assert (len(asked), len(never)) == (38, 4)
    assert not asked & never


def test_an_unusable_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "squad.json"
    file.write_text("[]")
    with pytest.raises(DocumentError, match="does not have the expected form"):
        divide(
            DataOptions(counter=length_counter(None), squad=file, hotpotqa=(file,)),
            tmp_path / "out",
        )


@pytest.fixture(scope="module")
def lessons(sources: Path) -> list[Messages]:
    """Those of 60 documents."""
    return list(Teacher(sources, length_counter(None), 0).lessons(60))


def test_replies_are_copied_from_what_is_shown(lessons: list[Messages]) -> None:
    counter = length_counter(None)
    written = [
        one for one in lessons if "Write down" in one[0]["content"] and one[-1]["content"] != KEEP
    ]
    assert len(written) > 40
    for said, reply in written:
        shown = " ".join(said["content"].split())
        assert counter.count(reply["content"]) <= MEMORY
        for line in reply["content"].splitlines():
            note = line.removeprefix("- ")
            assert note != line
            title, colon, text = note.partition(": ")
            assert note in shown or (colon and title in shown and text in shown)


def test_there_is_some_of_everything(lessons: list[Messages]) -> None:
    replies = [one[-1]["content"] for one in lessons]
    kept = replies.count(KEEP)
    answers = [one for one in lessons if "Answer in a few words" in one[0]["content"]]
    assert 0.2 < kept / len(lessons) < 0.6
    assert 30 < len(answers) <= 60
    assert any(one[-1]["content"] == "unknown" for one in answers)
    told = "\n".join(replies)
    assert "mills" in told
    assert "river" in told


def test_easy_lessons_have_nothing_that_looks_alike(sources: Path) -> None:
    counter = length_counter(None)
    lessons = list(Teacher(sources, counter, 0, EASY).lessons(20))
    assert len(lessons) > 40
    assert all(counter.count(one[0]["content"]) < 400 for one in lessons)
    assert not any("river" in one[-1]["content"] for one in lessons)  # HotpotQA comes later


def test_lessons_are_a_function_of_their_seed(sources: Path, lessons: list[Messages]) -> None:
    counter = length_counter(None)
    assert list(Teacher(sources, counter, 0).lessons(60)) == lessons
    assert list(Teacher(sources, counter, 1).lessons(10)) != lessons[:10]


def test_lessons_are_written_as_sft_reads_them(tmp_path: Path) -> None:
    said: Messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert write(iter([said, said]), tmp_path / "lessons.jsonl") == 2
    lines = (tmp_path / "lessons.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"messages": said}] * 2
