"""What a benchmark shows of itself while it runs."""

import io

import pytest
from tests.bench.fakes import model, record

from memagent import Usage
from memagent.cli.options import Display
from memagent_bench.cli.measure import Going, watcher
from memagent_bench.grid import Job
from memagent_bench.meter import Account, Meter
from memagent_bench.systems.base import Status
from memagent_bench.table import lines, means, task_means
from memagent_bench.watch import Board, LiveWatcher, PlainWatcher, SilentWatcher, line_of

JOBS = [Job("tracking", "a", 1000, index, "memory") for index in range(4)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    weights = dict(zip(JOBS, (100.0, 100.0, 200.0, 400.0), strict=True))
    return Board(weights, 6, Meter(model()), clock)


def test_time_left_goes_by_tokens_and_counts_what_is_under_way(board: Board, clock: Clock) -> None:
    assert (board.fraction, board.left) == (0.0, None)
    account = Account()
    board.begin(JOBS[0], account)
    clock.now = 10.0
    account.usage = Usage(prompt_tokens=60, completion_tokens=20)
    assert board.fraction == pytest.approx(0.1)
    assert board.left == pytest.approx(90)
    board.end(JOBS[0], record())
    board.end(JOBS[2], record())
    assert board.fraction == pytest.approx(300 / 800)
    account = Account(Usage(prompt_tokens=10**9))
    board.begin(JOBS[3], account)
    assert board.fraction < 1, "more tokens than were foreseen do not end a job"
    board.end(JOBS[3], None)
    board.end(JOBS[1], record(score=None, status=Status.FAILED, answer=None))
    assert (board.fraction, board.left) == (1.0, 0.0)
    assert board.facts()[0] == "9 of 10 records", "one could not be made"
    assert board.facts()[-1] == "1 without an answer"


def test_time_left_goes_by_the_pace_of_each_system(clock: Clock) -> None:
    """What calls no model is done at once; the others would seem to take as long for each of their many tokens."""
    fast = [Job("ruler", "a", 1000, index, "bm25") for index in range(2)]
    board = Board(
        {**dict.fromkeys(fast, 10.0), **dict.fromkeys(JOBS, 9000.0)}, 0, Meter(model()), clock
    )
    clock.now = 3.0  # data were made
    board.begin(fast[0], Account())
    clock.now = 3.1
    board.end(fast[0], record(system="bm25"))
    assert board.left is None, "nothing is known of the other system"
    board.begin(JOBS[0], Account())
    clock.now = 3.6
    board.end(JOBS[0], record())
    assert board.left == pytest.approx(3 * 0.5 + 0.1)
    for job in JOBS[1:3]:
        board.begin(job, Account())
    clock.now = 4.6
    for job in JOBS[1:3]:
        board.end(job, record())
    # 2.6 s of work were done in 1.6 s
    assert board.left == pytest.approx((2.5 / 3 + 0.1) * 1.6 / 2.6)


def test_plain_lines(board: Board, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = PlainWatcher(board)
    for job in JOBS[:2]:
        shown.begin(job, Account())
    clock.now = 8.0
    shown.end(JOBS[0], record())
    shown.end(JOBS[1], record(score=None, status=Status.STOPPED, detail="no\x1bway\nback"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(" 7/10")
    assert first.endswith("56 s left")
    assert "1.00" in first
    assert "STOPPED: no\ufffdway back" in second


def test_a_terminal_gets_a_bar(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "90")
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    live = LiveWatcher(board, "ruler · x", stream)
    with live.screen:
        live.end(JOBS[0], record())
    out = stream.getvalue()
    assert "ruler · x" in out
    assert "7 of 10 records" in out
    assert line_of(record()).split()[1] in out


def test_what_cannot_be_made_is_said_at_once_and_once_a_task(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = SilentWatcher(board)
    for job in JOBS:
        shown.drop(job, "there is no data")
    assert capsys.readouterr().err == "sample 0 of a at 1000 cannot be made: there is no data\n"
    assert (board.fraction, board.done) == (1.0, 6)


@pytest.mark.parametrize("display", [Display.JSON, Display.NONE])
def test_displays_that_carry_data_stay_silent(board: Board, display: Display) -> None:
    going = Going(display)
    assert type(watcher(going, "x", board)) is SilentWatcher
    assert going.begun
    assert type(watcher(Going(Display.PLAIN), "x", board)) is PlainWatcher


def test_means_count_each_task_the_same_and_the_missing_as_zero() -> None:
    records = [record(n, score=1.0) for n in range(3)]
    records += [record(0, task="b", score=0.5), record(1, task="b", score=None)]
    records += [record(0, system="direct", length=2048, score=None)]
    records += [record(0, task="b_no_context", score=0.0)]
    found = means(records, {1000: ["a", "b", "c", "b_no_context"]})
    assert [(m.system, m.length, m.score, m.n, m.missing) for m in found] == [
        ("direct", 2048, 0.0, 1, 1),
        ("memory", 1000, (1 + 0.25) / 2, 5, 1),
        ("memory (no context)", 1000, 0.0, 1, 0),
    ]
    assert lines(found) == [
        "                     1000                                  2K",
        "direct               -                                     0.000 (n=1, 1 missing)",
        "memory               0.625 (n=5, 1 missing, 2 of 3 tasks)  -",
        "memory (no context)  0.000 (n=1)                           -",
    ]
    assert lines([]) == []


def test_each_task_has_its_mean() -> None:
    records = [record(0, score=1.0), record(1, score=None), record(0, task="b", score=0.5)]
    assert [(m.task, m.score, m.n, m.missing) for m in task_means(records)] == [
        ("a", 0.5, 2, 1),
        ("b", 0.5, 1, 0),
    ]
