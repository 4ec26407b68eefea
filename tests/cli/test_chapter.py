"""With the model that needs no weights; `smol` reads the chapter where torch is."""

import json
from pathlib import Path

import pytest

from memagent import RunStore
from memagent.cli.chapter import chapter, read_chapter, tell_fate
from memagent.cli.exits import Outcome
from memagent.cli.fact import trace
from memagent.cli.options import Display
from memagent.errors import ConfigError
from memagent.events import ChunkRead, Event, MemoryKept, MemoryUpdated
from memagent.messages import Usage
from memagent.tasks.scores import string_match_part


def test_each_answer_stands_in_the_chapter_and_in_no_question() -> None:
    read = chapter()
    assert read.title.endswith("chapter IX")
    assert read.text.startswith("CHAPTER IX\n\nIt was past one o’clock")
    assert read.text.count("CHAPTER") == 1
    for asked in read.asked:
        assert all(answer in read.text for answer in asked["answers"])
        assert not any(
            string_match_part(other["question"], asked["answers"]) for other in read.asked
        )


def test_an_answer_is_followed_through_text_and_memories() -> None:
    def followed(*memories: str | None, number: int = 1) -> tuple[list[int], list[int], str]:
        store, answers = RunStore(None), chapter().asked[1]["answers"]
        store.create("r", {}, {}, {})
        spans = [(0, "I bet fifty. "), (13, "They drank. "), (25, "Fifty, he said.")]
        for chunk, ((start, text), memory) in enumerate(zip(spans, memories, strict=True)):
            given = {"chunk": chunk, "usage": Usage(), "question": number}
            end = start + len(text)
            events: list[Event] = [
                ChunkRead(chunk=chunk, start=start, end=end, tokens=1, last=chunk == 2),
                MemoryKept(**given)
                if memory is None
                else MemoryUpdated(memory=memory, tokens=1, **given),
            ]
            store.commit("r", f"chunk-{chunk}", {"text": text}, events=events)
        found = trace(store, "r", 1, *answers)
        return found.chunks, *tell_fate(found, 3)

    assert followed("A bet.", "A bet.", "A bet.") == ([0, 2], [], "never written")
    assert followed("He bets fifty.", None, "Fifty.") == ([0, 2], [0, 1, 2], "kept to the end")
    assert followed("He bets fifty.", None, "A bet.")[1:] == ([0, 1], "lost at chunk 2")
    assert followed("Fifty.", "none", "Fifty.")[1:] == ([0, 2], "kept to the end")
    assert followed("Fifty.", "Fifty.", "Fifty.", number=0)[1] == [], "another question's memory"


def test_three_questions_in_one_pass(capsys: pytest.CaptureFixture[str]) -> None:
    read_chapter("extractive", 0, Outcome())
    said = capsys.readouterr().out
    for words in (
        *(asked["question"] for asked in chapter().asked),
        "the book says 'Horse Guards'",
        "the book says 'fifty'",
        "kept to the end",
        " of 3 right. The point is the record",
        "chunks · ",
    ):
        assert words in said


def test_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    read_chapter("extractive", 0, Outcome(Display.JSON))
    said = json.loads(capsys.readouterr().out)
    assert [result["question"] for result in said["results"]] == [
        asked["question"] for asked in chapter().asked
    ]
    for result, asked in zip(said["results"], chapter().asked, strict=True):
        assert result["answers"] == list(asked["answers"])
        assert result["right"] is bool(string_match_part(result["answer"], asked["answers"]))
        assert result["said"]
        kept = result["fate"] == "kept to the end"
        assert kept is bool(string_match_part(result["memory"], asked["answers"]))
        assert kept is (result["remembered"][-1:] == [result["chunks"] - 1])


def test_the_answers_alone(capsys: pytest.CaptureFixture[str]) -> None:
    read_chapter("extractive", 0, Outcome(Display.NONE))
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_model_that_cannot_be_loaded_gets_no_headline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        read_chapter(f"transformers:{tmp_path / 'none'}", 0, Outcome(Display.PLAIN))
    assert capsys.readouterr().out == ""
