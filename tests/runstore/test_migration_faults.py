"""Whatever happens while a file is rewritten, it is the old one or the new one, and nobody's work is disturbed."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runstore.conftest import SmallDisk
from tests.runstore.version2 import content, restored, rows

from memagent.errors import RunBusy, StoreFull, StoreReadOnly
from memagent.runstore import RunStore, run_lock


@pytest.mark.parametrize("run", ["one", "text", "three"])  # running, stopped, finished
def test_a_run_at_work_keeps_the_file_as_it_is(tmp_path: Path, run: str) -> None:
    path = restored("several", tmp_path)
    before = content(path)
    with run_lock(path, run), pytest.raises(RunBusy, match=rf"{run!r}.*finish or stop it first"):
        RunStore(path)
    assert content(path) == before
    assert rows(path, "PRAGMA user_version") == [{"user_version": 2}]
    RunStore(path).close()


def test_a_file_may_hold_more_runs_than_a_process_files(tmp_path: Path) -> None:
    path = restored("several", tmp_path)
    db = sqlite3.connect(path)
    db.executemany(
        "INSERT INTO runs SELECT ?, created, updated, status, binding, settings, source FROM runs WHERE id = 'three'",
        [(f"copy-{number}",) for number in range(120)],
    )
    db.commit()
    db.close()
    code = (
        "import resource, sys; from memagent.runstore import RunStore; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print(len(RunStore(sys.argv[1]).runs()))"
    )
    command = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "127\n"


def test_two_processes_may_open_the_file_at_once(tmp_path: Path) -> None:
    path = restored("several", tmp_path)
    code = "import sys; from memagent.runstore import RunStore; print(len(RunStore(sys.argv[1]).runs()))"
    command = [sys.executable, "-c", code, str(path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [worker.communicate()[0] for worker in workers] == ["7\n"] * 4
    reference = restored("several", tmp_path / "alone")
    RunStore(reference).close()
    assert content(path) == content(reference)


@pytest.mark.parametrize("holds_copy", [False, True])
def test_a_full_disk_keeps_the_file_as_it_is(small_disk: SmallDisk, *, holds_copy: bool) -> None:
    if holds_copy and not small_disk.mounted:
        pytest.skip("needs a file system of its own")
    room = 190_000 if holds_copy else 50_000
    path = restored("several", small_disk.folder)
    before = content(path)
    with small_disk.full(room), pytest.raises(StoreFull, match="free some space"):
        RunStore(path)
    assert content(path) == before
    assert not list(small_disk.folder.glob("*.part"))
    assert (small_disk.folder / "runs.sqlite.version2").exists() is holds_copy


def test_a_read_only_disk_keeps_the_file_as_it_is(small_disk: SmallDisk) -> None:
    path = restored("several", small_disk.folder)
    before = path.read_bytes()
    small_disk.make_read_only(path)
    with pytest.raises(StoreReadOnly, match="--store"):
        RunStore(path)
    assert path.read_bytes() == before


def test_no_place_for_the_copy(tmp_path: Path) -> None:
    path = restored("several", tmp_path)
    before = content(path)
    (tmp_path / "runs.sqlite.version2").mkdir()
    with pytest.raises(StoreReadOnly, match=r"runs\.sqlite\.version2"):
        RunStore(path)
    assert content(path) == before
    assert not list(tmp_path.glob("*.part"))


DRIVER = """
import os, shutil, sqlite3, sys
from pathlib import Path
from memagent.runstore import RunStore

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
connect = sqlite3.connect

def content(path):
    db = connect(path)
    lines = [*db.iterdump(), *db.execute("PRAGMA user_version")]
    db.close()
    return lines

def is_killed(path, left):
    # Opens the store in a process that ends before its statement number `left`, on any connection.
    def count(statement):
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(9)
    def traced(*args, **options):
        db = connect(*args, **options)
        db.set_trace_callback(count)
        return db
    pid = os.fork()
    if pid == 0:
        sqlite3.connect = traced
        RunStore(path).close()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9

before, after, states, number = content(source), None, [], 0
while True:
    path = folder / str(number) / "runs.sqlite"
    path.parent.mkdir()
    shutil.copy(source, path)
    if not is_killed(path, number):
        break
    states.append(content(path))
    RunStore(path).close()
    migrated = content(path)
    assert after in (None, migrated), number
    after = migrated
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["runs.sqlite", "runs.sqlite.locks", "runs.sqlite.version2"], names
    assert content(path.with_name("runs.sqlite.version2")) == before
    number += 1
assert content(path) == after
print(number, states.count(before), states.count(after))
"""


def test_a_kill_before_any_statement_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = restored("several", tmp_path)
    (tmp_path / "killed").mkdir()
    command = [sys.executable, "-c", DRIVER, str(path), str(tmp_path / "killed")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    statements, before, after = map(int, done.stdout.split())
    assert before > 15, "the kills hit nothing"
    assert before + after == statements
