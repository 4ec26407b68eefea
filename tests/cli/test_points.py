from typing import Any

import pytest

from memagent.cli.display import SilentWatcher
from memagent.cli.points import PointsWatcher
from memagent.cli.progress import Tally
from memagent.events import ChunkRead, MemoryUpdated, RunStarted
from memagent.messages import Usage

CHARS = 1000


def watched(*, chunks: int, needle: int = 455, say: bool = False) -> tuple[PointsWatcher, Tally]:
    tally = Tally(chars=CHARS)
    points = PointsWatcher(SilentWatcher(tally), tally, chars=CHARS, needle=needle, say=say)
    sizes: dict[str, Any] = {"window": 900, "chunk_tokens": 9, "memory_tokens": 9}
    names: dict[str, Any] = {"model": "m", "document": "d", "counter": "c"}
    with points:
        points.event(RunStarted(run_id="r", questions=("q",), **names, **sizes))
        width = CHARS // chunks
        for n in range(chunks):
            place = {"start": n * width, "end": (n + 1) * width, "last": n == chunks - 1}
            points.event(ChunkRead(chunk=n, tokens=5, **place))
            memory = f"after {(n + 1) * width}"
            points.event(MemoryUpdated(chunk=n, memory=memory, tokens=2, usage=Usage(calls=1)))
    return points, tally


def test_the_memory_is_noted_at_ten_points_at_first_and_behind_the_needle() -> None:
    points, tally = watched(chunks=100)
    reads = [10, 100, 200, 300, 400, 460, 500, 600, 700, 800, 900, 1000]
    assert [point.memory for point in points.points] == [f"after {read}" for read in reads]
    assert [point.share for point in points.points] == [read / CHARS for read in reads]
    assert [point.memory for point in points.points if point.needle] == ["after 460"]
    assert tally.finished == 100


def test_a_chunk_that_passes_several_marks_is_one_point() -> None:
    points, _ = watched(chunks=2)
    assert [(point.share, point.needle) for point in points.points] == [(0.5, True), (1.0, False)]


def test_points_are_said_at_once_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched(chunks=4)
    assert capsys.readouterr().out == ""
    watched(chunks=4, say=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        " 25%  after 250",
        " 50%  needle read: after 500",
        " 75%  after 750",
        "100%  after 1000",
    ]
