"""With the model that needs no weights; policies are tested where torch is."""

import json

import pytest
from tests.cli.conftest import Invoke, only_json

from memagent.cli.demo_needle import Point, Trail, TrailWatcher, find_needle
from memagent.cli.exits import WRONG, Outcome
from memagent.cli.needle import Length, Needle
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.errors import ConfigError
from memagent.events import ChunkRead, Event, MemoryUpdated
from memagent.messages import Usage

CHARS = 1000


def test_a_needle_that_is_found_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_needle("extractive", Length.K16, 0, Outcome()) == 0
    said = capsys.readouterr().out
    for words in ("is hidden", "needle read: The purse of", "right: it is", " tokens/s"):
        assert words in said
    assert "more than once" not in said


def test_another_answer_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Needle, "is_right", lambda needle, answer: False)
    assert find_needle("extractive", Length.K16, 0, Outcome()) == WRONG
    assert "wrong: it is" in capsys.readouterr().out


def test_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(Display.JSON)
    assert find_needle("extractive", Length.K16, 5, outcome) == 0
    assert outcome.told
    said = json.loads(capsys.readouterr().out)
    assert said["right"] is True
    assert said["answer"] in said["fact"]
    assert 0 < said["place"] < said["characters"]
    assert said["usage"]["calls"] == said["chunks"] + 1
    (behind,) = (point for point in said["memories"] if point["needle"])
    assert said["fact"] in behind["memory"]


def test_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_needle("extractive", Length.K16, 0, Outcome(Display.NONE)) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_model_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        find_needle("nowhere:x", Length.K16, 0, Outcome(Display.NONE))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("Who?", "--model", "nano"), "'Who?'"),
        (("--tokens", "16k"), "--tokens 16k"),
        (("--tokens", "1m"), "--tokens 1M"),
        (("--model", "nan"), "'nan'"),
    ],
)
def test_what_does_not_go_together(invoke: Invoke, args: tuple[str, ...], words: str) -> None:
    done = invoke("demo", *args, "--display", "json")
    assert done.exit_code == 2
    assert words in only_json(done.stdout)["error"]["message"]


def events(*, chunks: int) -> list[Event]:
    width = CHARS // chunks
    made: list[Event] = []
    for n in range(chunks):
        last, memory = n == chunks - 1, f"after {(n + 1) * width}"
        made += [
            ChunkRead(chunk=n, start=n * width, end=(n + 1) * width, tokens=5, last=last),
            MemoryUpdated(chunk=n, memory=memory, tokens=2, usage=Usage(calls=1)),
        ]
    return made


def points(*, chunks: int) -> list[Point]:
    trail = Trail(chars=CHARS, needle=455)
    return [point for event in events(chunks=chunks) if (point := trail.add(event))]


def test_the_memory_is_noted_at_ten_points_at_first_and_behind_the_needle() -> None:
    noted = points(chunks=100)
    reads = [10, 100, 200, 300, 400, 460, 500, 600, 700, 800, 900, 1000]
    assert [point.memory for point in noted] == [f"after {read}" for read in reads]
    assert [point.read for point in noted] == [read / CHARS for read in reads]
    assert [point.memory for point in noted if point.needle] == ["after 460"]


def test_a_chunk_that_passes_several_marks_is_one_point() -> None:
    assert [(point.read, point.needle) for point in points(chunks=2)] == [(0.5, True), (1.0, False)]


def test_points_are_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = TrailWatcher(Tally(["q"], chars=CHARS), Trail(chars=CHARS, needle=455))
    for event in events(chunks=4):
        watcher.event(event)
    assert capsys.readouterr().out.splitlines() == [
        " 25%  after 250",
        " 50%  needle read: after 500",
        " 75%  after 750",
        "100%  after 1000",
    ]
    assert watcher.tally.finished == 4
