"""The display on a terminal, drawn onto a pseudo-terminal by a process of its own."""

import io
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.conftest import FACT, QUESTION
from tests.cli.pseudo_terminal import converse, texts

from memagent.cli.progress import Tally
from memagent.cli.watch import LiveWatcher
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryUpdated,
    RunStarted,
)
from memagent.messages import Usage

USAGE = Usage(calls=1, prompt_tokens=90, completion_tokens=10)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def started(*questions: str) -> RunStarted:
    return RunStarted(
        run_id="r",
        model="scripted",
        document="a[b]ook.txt",
        questions=questions,
        counter="c",
        window=2048,
        chunk_tokens=900,
        memory_tokens=174,
    )


def drawn(
    events: list[Event], monkeypatch: pytest.MonkeyPatch, *, memory: bool = True, lines: int = 24
) -> str:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", str(lines))
    stream, tally = Terminal(), Tally(chars=200)
    with LiveWatcher(tally, stream, memory=memory):
        for event in events:
            tally.add(event)
    return texts(stream.getvalue())


def test_progress_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = drawn(
        [
            started("Who [bold]is[/] it?"),
            ChunkRead(chunk=0, start=0, end=100, tokens=50, last=False),
            MemoryUpdated(chunk=0, memory="It is\x1b[31m Ada.", tokens=9, usage=USAGE),
            ChunkRead(chunk=1, start=100, end=150, tokens=50, last=False),
        ],
        monkeypatch,
    )
    assert "a[b]ook.txt · scripted" in screen
    assert "Who [bold]is[/] it?" in screen
    assert " 50%" in screen
    assert "2 chunks · 1 call · " in screen
    assert "memory after chunk 0 · 9 of 174 tokens" in screen
    assert "It is\ufffd[31m Ada." in screen  # a document cannot steer the terminal


def test_a_long_memory_is_cut_to_the_screen_around_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = "".join(f"Fact number {n} is old.\n" for n in range(40))
    new = old.replace("Fact number 25 is old.", "Something new.")
    screen = drawn(
        [
            started("Who?"),
            ChunkRead(chunk=0, start=0, end=100, tokens=50, last=False),
            MemoryUpdated(chunk=0, memory=old, tokens=90, usage=USAGE),
            MemoryUpdated(chunk=1, memory=new, tokens=90, usage=USAGE),
        ],
        monkeypatch,
    )
    assert "Something new." in screen
    assert "Fact number 2 is old." not in screen
    assert "29 more lines" in screen


def test_several_questions_have_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = drawn(
        [
            started(*(f"Question number {n}?" for n in range(10))),
            ChunkRead(chunk=0, start=0, end=200, tokens=50, last=True),
            MemoryUpdated(chunk=0, memory="Mine.", tokens=5, usage=USAGE, question=1),
            MemoryKept(chunk=0, usage=USAGE, question=0),
            Answered(answer="a", form_found=True, truncated=False, usage=USAGE, question=1),
        ],
        monkeypatch,
        lines=40,
    )
    assert "· 0 Question number 0?" in screen
    assert "✓ 1 Question number 1?" in screen
    assert "5 tokens, chunk 0" in screen
    assert "and 2 more questions" in screen
    assert "memory 1 after chunk 0" in screen


def test_questions_in_wide_characters_stay_on_their_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = drawn(
        [
            started("谁住在这里？", "谁" * 60),
            ChunkRead(chunk=0, start=0, end=200, tokens=50, last=True),
            MemoryUpdated(chunk=0, memory="Mine.", tokens=5, usage=USAGE, question=0),
            MemoryUpdated(chunk=0, memory="Mine.", tokens=5, usage=USAGE, question=1),
        ],
        monkeypatch,
    )
    asked = [line for line in screen.splitlines() if line.startswith(("· 0", "· 1"))]
    assert {cell_len(line) for line in asked} == {60}
    assert all(line.endswith(" 5 tokens, chunk 0") for line in asked)


def test_the_bar_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = drawn(
        [started("Who?"), ChunkRead(chunk=0, start=0, end=100, tokens=50, last=False)],
        monkeypatch,
        memory=False,
    )
    assert "Who?" not in screen
    assert "  0%" in screen


def test_on_a_real_terminal(book: Path, tmp_path: Path) -> None:
    ask = ["ask", str(book), QUESTION, "--model", "extractive", "--window", "2048"]
    code, seen = converse([sys.executable, "-m", "memagent", *ask], tmp_path)
    assert code == 0
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")  # the cursor is given back
    screen = texts(seen)
    assert "100%" in screen
    assert FACT in screen[screen.index(f"╭─ {QUESTION}") :]
