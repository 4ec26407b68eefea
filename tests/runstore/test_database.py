import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memagent.errors import (
    RunNotFound,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
)
from memagent.messages import Message, Usage
from memagent.runstore import RunStore, Step
from memagent.trajectory import Conversation


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
    db.execute("PRAGMA user_version = 3")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"version 3, this one reads 2.*upgrade"):
        RunStore(path)
    assert path.read_bytes() == before


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


def test_a_folder_as_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly, match=r"directory.*--store"):
        RunStore(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 400 KiB, read-write, that can be remounted read-only (needs root, as CI has)."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        yield None
        return
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(store: RunStore) -> int:
    """Commits steps until the disk is full; returns how many are committed."""
    store.create("r1", {"questions": ["q"]}, {}, {})
    for chunk in range(10_000):
        message = Message(role="user", content=os.urandom(2000).hex())
        step = Step(
            question=0,
            chunk=chunk,
            conversation=Conversation(messages=(message,)),
            usage=Usage(calls=1),
            memory=f"M{chunk}",
        )
        try:
            store.begin("r1", chunk, [0])
            store.commit("r1", step, [])
        except StoreFull:
            return chunk
    raise AssertionError("the disk never filled")


def test_a_full_disk_keeps_what_was_committed(small_disk: Path | None, tmp_path: Path) -> None:
    if small_disk is not None:
        store = RunStore(small_disk / "runs.sqlite")
    else:  # without mount rights: SQLite's own page limit raises the same error
        store = RunStore(tmp_path / "runs.sqlite")
        store._db._db.execute("PRAGMA max_page_count = 60")
    committed = fill(store)
    assert committed > 3
    state = store.state("r1", 1)[0]
    assert (state.next_chunk, state.memory) == (committed, f"M{committed - 1}")
    store.close()
    if small_disk is not None:
        again = RunStore(small_disk / "runs.sqlite")
        assert again.state("r1", 1)[0].memory == f"M{committed - 1}"
        again.close()


def test_a_read_only_disk(small_disk: Path | None, tmp_path: Path) -> None:
    if small_disk is not None:
        RunStore(small_disk / "runs.sqlite").close()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        path = small_disk / "runs.sqlite"
    else:
        path = tmp_path / "runs.sqlite"
        RunStore(path).close()
        path.chmod(0o400)
    with pytest.raises(StoreReadOnly, match=r"--store"):
        RunStore(path).create("r1", {}, {}, {})


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
    with pytest.raises(RunNotFound):
        store.get("r9")
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
