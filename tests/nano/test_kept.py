from collections.abc import Callable
from pathlib import Path

import pytest

from memagent import ScriptedModel
from memagent.messages import ChatRequest
from memagent_nano import gate as module
from memagent_nano.expert import Expert, read_memory
from memagent_nano.kept import measure_kept
from memagent_nano.lessons import memory_of, teacher
from memagent_nano.sizes import PICO

DOCUMENTS = 48
Reply = Callable[[str, str, str], str]
"""Question, memory, chunk -> the new memory."""


@pytest.fixture
def shares(
    tokenizers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Reply], dict[str, float]]:
    """What is kept by a program in a policy's place."""
    for file in tokenizers["pico"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())

    def measure(reply: Reply) -> dict[str, float]:
        def of(request: ChatRequest) -> str:
            said = request.messages[0].content
            question, text = said.split("\n")[0], said.split("\nText:")[1]
            return reply(question.removeprefix("Question: "), memory_of(said), text)

        monkeypatch.setattr(module, "TransformersModel", lambda _: ScriptedModel(of, window=2048))
        found = measure_kept(PICO, tmp_path, documents=DOCUMENTS)
        assert all(
            one["low"] - 1e-9 <= one["share"] <= one["high"] + 1e-9 for one in found.values()
        )
        assert found["asked"]["n"] == found["asked, by chance"]["n"] > 30
        return {kind: one["share"] for kind, one in found.items()}

    return measure


def expert(keep: Expert) -> Reply:
    return lambda question, memory, chunk: keep.update(question, read_memory(memory), chunk)


def test_who_keeps_what_is_asked_for(shares: Callable[[Reply], dict[str, float]]) -> None:
    found = shares(expert(teacher(PICO, "relevant", 0)))
    # It adds to what the expert before it kept, and where that is too much drops one of all.
    assert found["asked"] > found["asked, by chance"] + 0.2
    assert found["other"] < found["other, by chance"] - 0.2
    assert found["made up"] == 0.0


def test_who_keeps_anything_is_what_chance_is(
    shares: Callable[[Reply], dict[str, float]],
) -> None:
    found = shares(expert(teacher(PICO, "random", 1)))
    for kind in ("asked", "other"):
        assert found[kind] == pytest.approx(found[f"{kind}, by chance"], abs=0.12)
    assert found["asked"] == pytest.approx(found["other"], abs=0.12)


def test_a_line_of_three_words_holds_two_notes_and_what_nobody_said_is_made_up(
    shares: Callable[[Reply], dict[str, float]],
) -> None:
    whole = Expert("random", entries=99, syllables=2)

    def chained(question: str, memory: str, chunk: str) -> str:
        entries = read_memory(whole.update(question, read_memory(memory), chunk))
        numbers = dict(entry for entry in entries if entry[1].isdigit())
        lines = [f"- {who} {what} {numbers.get(what, '')}".rstrip() for who, what in entries]
        return "\n".join([*lines, *lines[:1], "- Nobody 7"])

    found = shares(chained)
    assert found["asked"] == found["other"] == 1.0
    assert 0.0 < found["made up"] < 0.3
    assert 0.0 < found["again"] < 0.7
    assert shares(lambda *_: "none")["asked"] == 0.0
