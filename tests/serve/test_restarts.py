"""An endpoint that was killed and started again continues the conversations that it shortened."""

import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.integrations.book import Book, Player
from tests.models.chat_server import CHATML_TOOLS
from tests.serve.conftest import KEY, Start, ended
from tests.serve.engine import WINDOW, Engine
from tests.serve.test_histories import Loop

from memagent_serve import states
from memagent_serve.states import States

STATE = {"version": 1, "text": "\ud800"}


@pytest.fixture
def engine(engine: Engine) -> Engine:
    engine.be_vllm(WINDOW, template=CHATML_TOOLS)
    return engine


def kept(folder: Path) -> Path:
    return folder / "runs.sqlite-histories"


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=url, api_key=KEY, max_retries=0)


def play(engine: Engine, start: Start, *, kill: bool) -> tuple[Player, Loop, int]:
    """Plays a game of 90 pages to its end; the endpoint is killed after each third summary.

    Returns the player, the loop and the number of kills.
    """
    engine.default = player = Player(book := Book(90), WINDOW)
    process, url = start()
    loop, due, kills = Loop(client_of(url), book), 3, 0
    while (answer := loop.step()) is None:
        if kill and player.summaries >= due:
            ended(process, signal.SIGKILL)
            process, url = start()
            loop.client, due, kills = client_of(url), player.summaries + 3, kills + 1
    assert answer == book.answer
    ended(process, signal.SIGTERM)
    return player, loop, kills


@pytest.mark.timeout(300)
def test_what_was_summarised_stays_summarised(engine: Engine, start: Start, tmp_path: Path) -> None:
    broken, loop, kills = play(engine, start, kill=True)
    kept(tmp_path).unlink()
    unbroken, other, _ = play(engine, start, kill=False)
    assert unbroken.summaries > 6
    print(f"{kills} kills, {broken.summaries} summaries, {unbroken.summaries} without kills")
    assert kills > 1
    assert broken.summaries == unbroken.summaries
    assert loop.history == other.history
    assert loop.paid == other.paid


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    with closing(States(tmp_path / "kept")) as kept:
        kept.keep(b"1", STATE)
        assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600


def test_a_state_of_another_version_is_written_anew(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    engine.default = player = Player(book := Book(60), WINDOW)
    process, url = start()
    loop = Loop(client_of(url), book)
    while not player.summaries:
        loop.step()
    ended(process, signal.SIGTERM)
    with closing(sqlite3.connect(kept(tmp_path))) as db:
        db.execute("UPDATE states SET state = json_set(state, '$.version', 99)")
        db.commit()
    _, url = start()
    loop.client = client_of(url)
    assert loop.play() == book.answer
    assert player.refused == []


def test_the_longest_history_is_found(tmp_path: Path) -> None:
    with closing(States(tmp_path / "kept")) as kept:
        kept.keep(b"b", STATE | {"n": 2})
        kept.keep(b"c", STATE | {"n": 3})
        many = [b"%d" % n for n in range(40_000)]
        assert kept.find([b"a", b"b", b"c", *many]) == STATE | {"n": 3}
        assert kept.find([b"a", b"b"]) == STATE | {"n": 2}
        assert kept.find([b"a"]) is None


def test_two_endpoints_in_a_process_and_another_process_share_a_file(tmp_path: Path) -> None:
    """Opening the second one must not drop the first one's locks: the other process would delete its log."""
    path = tmp_path / "kept"
    keep = (
        "import sys; from pathlib import Path; from memagent_serve.states import States; "
        "s = States(Path(sys.argv[1])); s.keep(b'other', {}); s.close()"
    )
    with closing(States(path)) as first, closing(States(path)) as second:
        first.keep(b"first", STATE)
        second.keep(b"second", STATE)
        subprocess.run([sys.executable, "-c", keep, str(path)], check=True)
        assert path.with_name("kept-wal").exists()
        first.keep(b"third", STATE)
        found = [second.find([digest]) for digest in (b"first", b"second", b"third", b"other")]
        assert found == [STATE, STATE, STATE, {}]


def test_endpoints_that_make_the_file_at_once_all_use_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for turn in range(30):
        started = threading.Barrier(3)

        def keep(number: int, path: Path, started: threading.Barrier) -> None:
            with closing(States(path)) as kept:
                started.wait()
                kept.keep(b"%d" % number, STATE)

        path = tmp_path / f"kept-{turn}"
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(keep, range(3), [path] * 3, [started] * 3))
        with closing(States(path)) as kept:
            assert all(kept.find([b"%d" % number]) for number in range(3))
    assert caplog.text == ""


def test_a_file_that_may_not_be_written_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(States(tmp_path / "kept")) as kept:
        kept.keep(b"old", STATE)
    monkeypatch.setattr(states.os, "access", lambda *_: False)  # tests may run as root
    with closing(States(tmp_path / "kept")) as kept:
        kept.keep(b"new", STATE)
        assert [kept.find([b"old"]), kept.find([b"new"])] == [None, STATE]
    assert "can't be opened (it may not be read and written)" in caplog.text


def test_the_file_behind_a_link_is_private(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(tmp_path / "kept")
    with closing(States(link)) as kept:
        kept.keep(b"a", STATE)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600


def test_those_not_used_for_longest_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "REMEMBERED", 3)
    with closing(States(tmp_path / "kept")) as kept:
        for digest in (b"1", b"2", b"3"):
            kept.keep(digest, STATE)
        assert kept.find([b"1"])
        kept.keep(b"4", STATE)
        found = [kept.find([digest]) for digest in (b"1", b"2", b"3", b"4")]
        assert found == [STATE, None, STATE, STATE]


def test_without_its_file_it_remembers_until_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "not SQLite, but text that is long enough for a header" * 10
    (tmp_path / "kept").write_text(text)
    with closing(States(tmp_path / "kept")) as kept:
        kept.keep(b"1", STATE)
        assert kept.find([b"1"]) == STATE
    assert "delete it" in caplog.text
    assert (tmp_path / "kept").read_text() == text


def test_a_disk_that_fails_later_costs_work_but_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(States(tmp_path / "kept")) as kept:
        kept.keep(b"0", STATE)
        assert kept._db
        kept._db.execute("PRAGMA max_page_count = 4")
        big: dict[str, Any] = {"text": "x" * 100_000}
        kept.keep(b"1", big)
        assert "full" in caplog.text
        assert kept.find([b"1"]) is None
