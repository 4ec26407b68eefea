import io
import sys

import pytest

from memagent.cli.live import LiveWatcher
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.watch import PlainWatcher, Watcher, watcher
from memagent.events import (
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    Retried,
    RunStarted,
    Settled,
)
from memagent.messages import Usage

ONE = Usage(calls=1)


def events(*questions: str) -> list[Event]:
    made: list[Event] = [
        RunStarted(
            run_id="r1",
            model="scripted",
            document="book.txt",
            questions=questions,
            counter="c",
            window=2048,
            chunk_tokens=900,
            memory_tokens=174,
        ),
        ChunkRead(chunk=0, start=0, end=9, tokens=9, last=False),
        Neutralised(chunk=0, count=1),
        MemoryUpdated(chunk=0, memory="Ada came.", tokens=9, usage=ONE),
        ChunkRead(chunk=1, start=9, end=18, tokens=9, last=False),
        MemoryKept(chunk=1, usage=ONE),
        ChunkRead(chunk=2, start=18, end=27, tokens=9, last=False),
        Retried(chunk=2, reason="ServerBusy: come\nback", waited=2),
        MemoryTruncated(chunk=2, tokens_before=2000, tokens_after=8),
        MemoryUpdated(chunk=2, memory="Ada left.", tokens=8, usage=ONE),
        MemoryUpdated(chunk=2, memory="Ada left.", tokens=8, usage=ONE),
        Settled(chunk=2),
        Retried(chunk=None, reason="the reply is empty"),
    ]
    return [event.model_copy(update={"seq": seq}) for seq, event in enumerate(made)]


def lines(
    watcher: PlainWatcher, shown: list[Event], capsys: pytest.CaptureFixture[str]
) -> list[str]:
    with watcher:
        for event in shown:
            watcher.event(event)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_line_for_each_event_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(PlainWatcher(Tally()), events("Who?"), capsys) == [
        "run r1: book.txt, scripted, window 2,048 (chunk 900, memory 174)",
        "chunk 0 1 look-alike of prompt fields made harmless",
        "chunk 0 updated 9 tokens + Ada came.",
        "chunk 1 kept",
        "chunk 2 sent again after 2.0 s: ServerBusy: come back",
        "chunk 2 truncated 2,000 -> 8 8 tokens + Ada left.",
        "chunk 2 unchanged 8 tokens",
        "chunk 2 settled: the rest is not read",
        "answer sent again: the reply is empty",
    ]


def test_questions_are_numbered_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert "chunk 1 question 0 kept" in lines(PlainWatcher(Tally()), events("A?", "B?"), capsys)


def test_changes_only(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(PlainWatcher(Tally(), changes_only=True), events("Who?"), capsys)
    assert not any("kept" in line for line in shown)
    assert any("Ada came." in line for line in shown)


def test_what_an_earlier_session_did_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(PlainWatcher(Tally(replayed=6)), events("Who?"), capsys)
    assert shown[1] == "resumed; 2 chunks and 2 calls were done before"
    assert shown[2].startswith("chunk 2")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_a_terminal_gets_the_full_display(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    assert isinstance(watcher(Display.FULL, Tally()), LiveWatcher)
    assert isinstance(watcher(Display.PLAIN, Tally()), PlainWatcher)


@pytest.mark.parametrize("display", [Display.JSON, Display.NONE])
def test_data_on_standard_output_leaves_standard_error_for_progress(
    display: Display, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(watcher(display, Tally()), Watcher)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert isinstance(watcher(display, Tally()), LiveWatcher)


def test_the_bare_watcher_counts(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    with Watcher(tally) as silent:
        silent.event(ChunkRead(chunk=0, start=0, end=5, tokens=5, last=True))
    assert tally.chunks == 1
    assert capsys.readouterr() == ("", "")
