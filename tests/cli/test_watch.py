import io
import sys
from contextlib import closing

import pytest

from memagent import MemoryAgent
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.watch import PlainWatcher, watch
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
from memagent.runstore import RunStore

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
    for event in shown:
        watcher.add(event)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_line_for_each_event_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(PlainWatcher(Tally()), events("Who?"), capsys) == [
        "run r1: book.txt, scripted, window 2,048 (chunk 900, memory 174)",
        "chunk 0 1 look-alike of prompt fields neutralised",
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
    assert shown[1] == "resumed; 2 chunks and 2 calls already done"
    assert shown[2].startswith("chunk 2")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("display", "drawn"),
    [
        (Display.FULL, [True, False]),
        (Display.PLAIN, [False, False]),
        (Display.JSON, [False, True]),
        (Display.NONE, [False, True]),
    ],
)
def test_progress_is_drawn_where_no_data_goes(
    display: Display, drawn: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    streams = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    tally = Tally()
    with closing(RunStore(None)) as store:
        agent = MemoryAgent("extractive", store=store)
        watch(agent, agent.stream("Ada was born in London.", "Where was Ada born?"), tally, display)
    assert ["\x1b[?25l" in stream.getvalue() for stream in streams] == drawn
    assert tally.notebooks[0].answer


def test_data_that_nobody_watches_is_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(RunStore(None)) as store:
        agent = MemoryAgent("extractive", store=store)
        watch(agent, agent.stream("It rains.", "Does it rain?"), Tally(), Display.JSON)
    assert capsys.readouterr() == ("", "")
