from collections.abc import Iterator

import pytest

from memagent.cli.history import History
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    Retried,
    Settled,
    Stopped,
)
from memagent.messages import Usage
from memagent.terminal import Paper
from memagent.trajectory import StopReason

ONE = Usage(calls=1)


def written(events: list[Event], capsys: pytest.CaptureFixture[str], *, number: int = 0) -> str:
    History(Paper(colour=False), number).write(iter(events))
    return capsys.readouterr().out


def updated(chunk: int, memory: str, question: int = 0) -> MemoryUpdated:
    return MemoryUpdated(
        chunk=chunk, memory=memory, tokens=len(memory), usage=ONE, question=question
    )


def test_memories_are_differences(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = [
        MemoryKept(chunk=0, usage=ONE),
        MemoryKept(chunk=1, usage=ONE),
        ChunkRead(chunk=2, start=20, end=1030, tokens=9, last=False),
        updated(2, "Ada lives in Bath."),
        updated(3, "Ada lives in Bath."),
        MemoryKept(chunk=4, usage=ONE),
        Retried(chunk=5, reason="ServerBusy: later", waited=1.5),
        MemoryTruncated(chunk=5, tokens_before=90, tokens_after=18),
        updated(5, "Ada lives in York."),
        Settled(chunk=5),
        Answered(answer="In York.", form_found=True, truncated=True, usage=ONE),
    ]
    assert written(events, capsys).splitlines() == [
        "chunks 0-1 kept",
        "chunk 2  characters 20 to 1,030  memory 18 tokens",
        "  + Ada lives in Bath.",
        "chunk 3 rewritten unchanged",
        "chunk 4 kept",
        "chunk 5 sent again after 1.5 s: ServerBusy: later",
        "chunk 5  memory 18 tokens  cut from 90 to 18",
        "  - Ada lives in Bath.",
        "  + Ada lives in York.",
        "settled after chunk 5: the rest was not read",
        "",
        "answer: In York.",
        "the reply was cut off by its token limit",
    ]


def test_one_question_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = [
        Neutralised(chunk=0, count=2),
        updated(0, "Theirs."),
        updated(0, "Ours.", question=1),
        Stopped(question=1, reason=StopReason.UNUSABLE_REPLY, detail="it was empty", usage=ONE),
    ]
    assert written(events, capsys, number=1).splitlines() == [
        "chunk 0: 2 look-alikes of prompt fields neutralised",
        "chunk 0  memory 5 tokens",
        "  + Ours.",
        "stopped (unusable reply): it was empty",
    ]


def test_a_long_run_is_read_as_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    alive = 0

    def events() -> Iterator[Event]:
        nonlocal alive
        for chunk in range(100_000):
            alive += 1
            yield MemoryKept(chunk=chunk, usage=ONE)

    History(Paper(colour=False)).write(events())
    assert capsys.readouterr().out == "chunks 0-99999 kept\n"
    assert alive == 100_000
