import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.runstore.conftest import SmallDisk

from memagent.errors import (
    RunNotFound,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
)
from memagent.runstore import RunStore


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = RunStore(tmp_path / "state" / "runs.sqlite")
        store.create("r1", {}, {}, {})
        modes = {
            file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "state").iterdir()
        }
    finally:
        os.umask(old)
    assert modes == {"runs.sqlite": 0o600, "runs.sqlite-wal": 0o600, "runs.sqlite-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    store.close()


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    RunStore(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 4")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"version 4, this one reads 3.*upgrade"):
        RunStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_from_before_the_first_release_is_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.sqlite"
    RunStore(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {version}")
    db.execute("DROP TABLE effects")
    db.execute("CREATE TABLE steps (run TEXT)")
    db.close()
    before = path.read_bytes()
    said = rf"runs\.sqlite.*version {version}, this one reads 3.*--store.*checkout that wrote it$"
    with pytest.raises(StoreError, match=said) as caught:
        RunStore(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_are_no_run_store(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("These are my notes, and not a database. " * 50)
    with pytest.raises(StoreCorrupt, match=r"notes\.txt.*--store"):
        RunStore(text)
    other = tmp_path / "other.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE songs (title)")
    db.commit()
    db.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        RunStore(other)
    assert "These are my notes" in text.read_text()


@pytest.mark.parametrize("path", ["~nobody-here/runs.sqlite", "a\0b", "loop/runs.sqlite"])
def test_what_cannot_be_a_path(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(StoreError, match="--store") as caught:
        RunStore(path)
    assert repr(path)[1:-1] in str(caught.value)


def test_a_damaged_store_says_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    store = RunStore(path)
    for number in range(200):
        store.create(f"r{number}", {"questions": ["x" * 500]}, {}, {})
    store.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = os.urandom(len(raw) - 4096)
    path.write_bytes(raw)
    store = RunStore(path)
    with pytest.raises(StoreCorrupt, match="damaged"):
        store.runs()
    store.close()


@pytest.mark.parametrize("path", [".", os.devnull])
def test_a_folder_or_device_as_a_store(path: str, tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly, match=r"directory or a device.*--store"):
        RunStore(tmp_path / path)


def fill(store: RunStore) -> int:
    """Commits steps until the disk is full; returns how many are committed."""
    store.create("r1", {"questions": ["q"]}, {}, {})
    for number in range(10_000):
        try:
            store.begin("r1", f"act-{number}")
            store.commit("r1", f"act-{number}", {"text": os.urandom(2000).hex()})
        except StoreFull:
            return number
    raise AssertionError("the disk never filled")


def test_a_full_disk_keeps_what_was_committed(small_disk: SmallDisk) -> None:
    store = RunStore(small_disk.folder / "runs.sqlite")
    with small_disk.full():
        committed = fill(store)
    assert committed > 3
    assert store.count("r1", "act") == committed
    store.close()
    again = RunStore(small_disk.folder / "runs.sqlite")
    assert again.count("r1", "act") == committed
    again.close()


def test_a_store_on_a_full_disk_says_so(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "runs.sqlite"
    RunStore(path).close()
    with small_disk.full(0), pytest.raises(StoreFull, match="free some space"):
        RunStore(path)
    RunStore(path).close()


def test_a_read_only_disk(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "runs.sqlite"
    RunStore(path).close()
    small_disk.make_read_only(path)
    with pytest.raises(StoreReadOnly, match=r"--store"), closing(RunStore(path)) as store:
        store.create("r1", {}, {}, {})


def test_a_store_in_a_folder_that_cannot_be_written_can_be_viewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ru?ns.sqlite"
    store = RunStore(path)
    store.create("r1", {}, {}, {"name": "a.txt"})
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    other = RunStore(path)  # not a view: the log, which is still open, has a part of it
    other.create("r2", {}, {}, {})
    other.close()
    store.close()
    view = RunStore(path)
    assert [run.id for run in view.runs()] == ["r2", "r1"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(StoreReadOnly, match=r"readonly database.*--store"):
        view.create("r3", {}, {}, {})
    view.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.runs()


def test_many_processes_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    code = "import sys; from memagent.runstore import RunStore; RunStore(sys.argv[1]).create(sys.argv[2], {}, {}, {})"
    path = tmp_path / "runs.sqlite"
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), f"r{number}"])
        for number in range(6)
    ]
    assert [worker.wait() for worker in workers] == [0] * 6
    store = RunStore(path)
    assert len(store.runs()) == 6
    for gone in ("r9", "caf\udce9"):
        with pytest.raises(RunNotFound):
            store.get(gone)
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_store_from_before_a_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom memagent.errors import StoreError\nfrom memagent.runstore import RunStore\n"
        "store = RunStore(sys.argv[1])\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try: store.create('child', {}, {}, {})\n"
        "    except StoreError as error: os._exit(7 if 'spawn' in str(error) else 8)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "runs.sqlite")]
    assert subprocess.run(command, timeout=20, check=False).returncode == 7


def test_two_connections_share_one_file(tmp_path: Path) -> None:
    one, two = RunStore(tmp_path / "runs.sqlite"), RunStore(str(tmp_path / "runs.sqlite"))
    one.create("r1", {}, {}, {})
    two.create("r2", {}, {}, {})
    assert [run.id for run in one.runs()] == [run.id for run in two.runs()] == ["r2", "r1"]
    two.begin("r1", "act-0")
    assert one.begin("r1", "act-0").sent == 1
    one.close()
    two.close()


def test_the_schema_on_disk_is_what_version_3_promises(tmp_path: Path) -> None:
    RunStore(tmp_path / "runs.sqlite").close()
    db = sqlite3.connect(tmp_path / "runs.sqlite")
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"runs", "effects", "events"}
    assert db.execute("PRAGMA user_version").fetchone() == (3,)
    assert db.execute("PRAGMA application_id").fetchone() == (0x6D656D61,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_a_removed_run_leaves_no_lock(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    store.create("r1", {}, {}, {})
    store.remove("r1")
    assert not list((tmp_path / "runs.sqlite.locks").iterdir())
    store.close()


def test_two_stores_in_a_process_and_another_process_share_a_file(tmp_path: Path) -> None:
    """Opening the second one must not drop the first one's locks: the other process would delete its log."""
    path = tmp_path / "runs.sqlite"
    create = (
        "import sys; from memagent import RunStore; s = RunStore(sys.argv[1]); "
        "s.create(sys.argv[2], {}, {}, {}); s.close()"
    )
    first = RunStore(path)
    first.create("a", {}, {}, {})
    second = RunStore(path)
    subprocess.run([sys.executable, "-c", create, str(path), "b"], check=True)
    assert (tmp_path / "runs.sqlite-wal").exists()
    for number in range(50):
        first.create(f"c{number}", {"questions": ["q" * 500]}, {}, {})
    subprocess.run([sys.executable, "-c", create, str(path), "d"], check=True)
    assert len(first.runs()) == len(second.runs()) == len(RunStore(path).runs()) == 53
