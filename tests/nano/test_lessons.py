import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from memagent.messages import Message
from memagent.tokens import load_counter
from memagent_nano import lessons, material
from memagent_nano.expert import Expert, read_memory
from memagent_nano.lessons import Lesson
from memagent_nano.sizes import NANO, PICO, SIZES, Size
from memagent_nano.stages import Place
from memagent_nano.task import FAMILIES

N = 300
KINDS = ("echoes", "copies", "relevant", "random")


def some(size: Size, kind: str, tokenizer: Path, seed: int = 3) -> Iterator[Lesson]:
    if kind == "echoes":
        return lessons.echoes(size, material.pieces(tokenizer), N, seed)
    if kind == "copies":
        return lessons.copies(size, N, seed)
    return lessons.traces(size, "relevant" if kind == "relevant" else "random", tokenizer, 30, seed)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_replies_fit_a_memory_and_prompts_the_window(
    tokenizers: dict[str, Path], name: str, kind: str
) -> None:
    size, counter = SIZES[name], load_counter(tokenizers[name])
    made = list(some(size, kind, tokenizers[name]))
    assert len(made) >= 60
    replies = max(counter.count(reply) for _, reply in made) + 1  # the end is a token too
    prompts = [counter.count_messages([Message(role="user", content=said)]) for said, _ in made]
    assert max(prompts) + replies <= size.window
    if kind != "echoes":  # those are no memories
        assert replies <= size.memory_tokens
        assert max(prompts) + size.memory_tokens <= size.window
    assert all(reply == reply.strip() != "" for _, reply in made)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_the_same_lessons(tokenizers: dict[str, Path], kind: str) -> None:
    first = list(some(PICO, kind, tokenizers["pico"]))
    assert list(some(PICO, kind, tokenizers["pico"])) == first
    other = {*some(PICO, kind, tokenizers["pico"], seed=4)}
    # Of answers from an empty memory there are few.
    assert {said for said, reply in {*first} & other if reply != "none"} == set()


@pytest.mark.parametrize("name", SIZES)
def test_replies_of_copies_are_the_only_right_ones(name: str) -> None:
    size = SIZES[name]
    all_notes = Expert("random", entries=99, syllables=size.syllables)
    kinds = {"answer": 0, "update": 0, "none": 0}
    for said, reply in lessons.copies(size, N, 3):
        question = said.split("Question: ")[1].split("\n")[0]
        memory = read_memory(said.split("Memory:\n")[1].split("\nText: ")[0])
        if said.endswith("Answer:"):
            kinds["answer"] += 1
            kinds["none"] += reply == "none"
            assert reply == all_notes.answer(question, memory)
        else:
            kinds["update"] += 1
            text = said.split("\nText: ")[1].removesuffix("\nNew memory:")
            assert reply == all_notes.update(question, memory, text)
            assert len(read_memory(reply)) <= size.entries
    assert kinds["answer"] > kinds["none"] > 0
    assert kinds["update"] > kinds["answer"]


def test_experts_of_the_same_documents_are_told_apart_by_what_they_keep(
    tokenizers: dict[str, Path],
) -> None:
    kept = {
        keep: [len(read_memory(r)) for _, r in some(PICO, keep, tokenizers["pico"])]
        for keep in ("relevant", "random")
    }
    assert len(kept["relevant"]) == len(kept["random"])
    assert max(kept["relevant"]) <= 2  # somebody's master, and the master's number
    assert max(kept["random"]) == PICO.kept


def test_files_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "ECHOES", 5)
    monkeypatch.setattr(material, "COPIES", 6)
    place, said = Place(tmp_path / "out", PICO, 0), list[str]()
    material.make(place, ["", "rollouts"])
    assert not place.root.exists()
    material.make(place, ["copies", "echoes"], say=said.append)
    assert [" ".join(line.split()[:3]) for line in said] == [
        f"lessons {name}: {how}" for name in ("copies", "echoes") for how in ("begun", "written")
    ]
    text = (place.lessons / "copies.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [[one["role"] for one in line["messages"]] for line in lines] == [
        ["user", "assistant"]
    ] * 6
    assert [
        (line["messages"][0]["content"], line["messages"][1]["content"]) for line in lines
    ] == list(islice(lessons.copies(PICO, 6, 0), 6))
    (place.lessons / "copies.jsonl").write_text("mine")
    material.make(place, ["copies", "echoes"], say=said.append)
    assert (place.lessons / "copies.jsonl").read_text() == "mine"
    assert len(said) == 4


def test_every_other_of_the_longer_documents_has_few_notes() -> None:
    reader = Expert("random", entries=999, syllables=NANO.syllables)
    count = 2 * len(NANO.longer) * len(FAMILIES)
    made = list(lessons.documents(NANO, count, 0, lengths=NANO.longer, spread=lessons.SPREAD))
    notes = [len(reader.notes(sample.context)) for sample in made]
    assert all(many > 5 > few for many, few in zip(notes[::2], notes[1::2], strict=True))
