from collections.abc import Iterator

import pytest

from memagent.cli.progress import Tally
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryUpdated,
    Rereading,
    Retried,
    RunStarted,
    Settled,
)
from memagent.messages import Usage

USAGE = Usage(calls=1, prompt_tokens=90, completion_tokens=10)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(*questions: str) -> RunStarted:
    return RunStarted(
        run_id="r",
        model="m",
        document="d",
        questions=questions,
        counter="c",
        window=1,
        chunk_tokens=1,
        memory_tokens=1,
    )


def reading(chunks: int, chars: int = 100) -> Iterator[Event]:
    """A run of one question that keeps its memory."""
    seq = 0
    for event in [begin("Who?")]:
        yield event.model_copy(update={"seq": seq})
    for chunk in range(chunks):
        start, last = chunk * chars, chunk == chunks - 1
        read = ChunkRead(chunk=chunk, start=start, end=start + chars, tokens=9, last=last)
        for event in (read, MemoryKept(chunk=chunk, usage=USAGE)):
            seq += 1
            yield event.model_copy(update={"seq": seq})


def test_speed_and_time_left() -> None:
    clock = Clock()
    tally = Tally(chars=1000, clock=clock)
    for event in list(reading(10))[:9]:  # four chunks
        tally.add(event)
    clock.now = 8
    assert (tally.chunks, tally.finished, tally.usage.calls) == (4, 4, 4)
    assert tally.fraction == pytest.approx(0.4)
    assert tally.left == pytest.approx(12)
    assert tally.speed == pytest.approx(50)


def test_a_resumed_run_is_timed_from_where_it_was_taken_up() -> None:
    clock = Clock()
    tally = Tally(chars=1000, replayed=10, clock=clock)  # five chunks
    for event in list(reading(10))[:15]:
        clock.now += 1
        tally.add(event)
    assert tally.usage.calls == 7
    assert tally.elapsed == pytest.approx(4)
    assert tally.speed == pytest.approx(50)
    assert tally.left == pytest.approx(4 * 0.3 / 0.2)


@pytest.mark.parametrize("replayed", [-1, 10])
def test_a_branch_is_timed_from_its_copies_on(replayed: int) -> None:
    clock, done = Clock(), list(reading(5))
    tally = Tally(replayed=replayed, clock=clock)
    done[0] = begin("Who?").model_copy(update={"seq": 0, "before": 5})
    kept = MemoryKept(chunk=1, usage=USAGE)
    events = [
        Retried(chunk=None, reason="empty", seq=11),
        Rereading(chunks=(1,), recalled=(), usage=USAGE, seq=12),
        kept.model_copy(update={"seq": 13}),
        Answered(answer="a", form_found=True, truncated=False, usage=USAGE, seq=14),
    ]
    live = list[Event]()
    for event in [*done, *events]:
        if not tally.is_replay(event):
            live.append(event)
        tally.add(event)
        clock.now += 1
    assert live == [*done[:1], *events][replayed > 0 :]
    assert tally.elapsed == pytest.approx(5)
    assert tally.speed == pytest.approx(300 / 5)


def test_a_wrong_guess_of_the_length_never_says_done() -> None:
    tally = Tally(chars=50)
    seen = list(reading(3))
    for event in seen[:-1]:
        tally.add(event)
    assert tally.fraction == 0.99
    tally.add(seen[-1])
    assert tally.fraction == 1.0
    assert Tally().fraction is None
    assert Tally().left is None


def test_several_questions() -> None:
    tally = Tally(chars=200)
    tally.add(begin("A?", "B?"))
    tally.add(ChunkRead(chunk=0, start=0, end=100, tokens=9, last=False))
    tally.add(MemoryUpdated(chunk=0, memory="x", tokens=3, usage=USAGE, question=1))
    assert (tally.finished, tally.fraction) == (0, 0.0)
    assert tally.latest is tally.notebooks[1]
    tally.add(MemoryKept(chunk=0, usage=USAGE, question=0))
    assert (tally.finished, tally.fraction) == (1, 0.5)
    tally.add(Settled(chunk=0, question=0))
    tally.add(ChunkRead(chunk=1, start=100, end=200, tokens=9, last=True))
    tally.add(MemoryKept(chunk=1, usage=USAGE, question=1))
    assert tally.fraction == 1.0
    tally.add(Answered(answer="a", form_found=True, truncated=False, usage=USAGE, question=1))
    assert [book.finished for book in tally.notebooks] == [True, True]
