import threading

import pytest

from memagent_nano.errors import StageFailed
from memagent_nano.work import Work, perform_all


def test_a_piece_waits_for_what_it_begins_with() -> None:
    done, said = list[str](), list[str]()
    work = [
        Work("second", lambda: done.append("second"), ready=lambda: "first" in done),
        Work("first", lambda: done.append("first")),
        Work("third", lambda: done.append("third"), ready=lambda: "second" in done),
    ]
    perform_all(work, jobs=2, say=said.append)
    assert done == ["first", "second", "third"]
    assert [line.split(" in ")[0] for line in said] == [
        "first: begun", "first: done", "second: begun", "second: done", "third: begun", "third: done",
    ]  # fmt: skip
    assert said[1].endswith("; 2 of 3 left")
    assert said[-1].endswith("; 0 of 3 left")


def test_no_more_at_once_than_there_are_jobs() -> None:
    both = threading.Barrier(2, timeout=10)
    active, most, lock = 0, 0, threading.Lock()

    def do() -> None:
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        both.wait()
        with lock:
            active -= 1

    perform_all([Work(str(i), do) for i in range(6)], jobs=2, say=lambda _: None)
    assert most == 2


def test_where_one_fails_the_others_end_and_nothing_more_is_begun() -> None:
    done, failed, said = list[str](), threading.Event(), list[str]()

    def fail() -> None:
        failed.set()
        raise StageFailed("broken")

    def long() -> None:
        failed.wait(10)
        done.append("long")

    work = [Work("fails", fail), Work("long", long), Work("late", lambda: done.append("late"))]
    with pytest.raises(StageFailed, match="broken"):
        perform_all(work, jobs=2, say=said.append)
    assert done == ["long"]
    assert any(line.startswith("fails: failed") for line in said)


def test_what_can_never_be_begun_is_named() -> None:
    with pytest.raises(StageFailed, match="missing: late"):
        perform_all([Work("late", lambda: None, ready=lambda: False)], jobs=1, say=lambda _: None)


def test_nothing_to_do() -> None:
    perform_all([], jobs=1, say=pytest.fail)
